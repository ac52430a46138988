//! Conversion of a core module to a component.

use std::fs;
use std::path::Path;

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wit_component::ComponentEncoder;

use crate::error::{Error, Result};

/// Wraps a core module into a component, validates it, and returns its size in bytes.
///
/// A custom section of the module, which comes from its bindings, names the world of the contract that it
/// implements.
///
/// # Errors
/// [`Error::Io`] if a file can't be read or written, [`Error::Failed`] if the module is invalid.
pub fn encode(module: &Path, component: &Path) -> Result<u64> {
    let bytes = fs::read(module).map_err(Error::io("read", module))?;
    let encoded = ComponentEncoder::default()
        .validate(true)
        .module(&bytes)
        // C's `printf` imports WASI preview 1. A module without these imports stays unchanged.
        .and_then(|e| e.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER))
        .and_then(|encoder| encoder.encode())
        .map_err(|e| Error::failed(format!("{} does not make a component: {e:#}", module.display())))?;
    replace(component, &encoded)?;
    Ok(encoded.len() as u64)
}

/// Replaces a component atomically.
fn replace(component: &Path, bytes: &[u8]) -> Result<()> {
    let partial = component.with_extension("wasm.part");
    fs::write(&partial, bytes).map_err(Error::io("write", &partial))?;
    fs::rename(&partial, component).map_err(Error::io("write", component))
}

/// Copies a component that a tool has made, and returns its size in bytes.
pub(crate) fn install(made: &Path, component: &Path) -> Result<u64> {
    let bytes = fs::read(made).map_err(Error::io("read", made))?;
    replace(component, &bytes)?;
    Ok(bytes.len() as u64)
}
