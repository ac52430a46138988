//! From a core module to a component.

use std::fs;
use std::path::Path;

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wit_component::ComponentEncoder;

use crate::{Error, Result};

/// Wraps a core module into a component and validates it. Gives back the component's size in bytes.
///
/// The module says itself which world of the contract it implements, in a custom section that its bindings brought.
///
/// # Errors
/// When the module can't be read or is none, or the component can't be written.
pub fn encode(module: &Path, component: &Path) -> Result<u64> {
    let bytes = fs::read(module).map_err(Error::io("read", module))?;
    let encoded = ComponentEncoder::default()
        .validate(true)
        .module(&bytes)
        // C's `printf` imports WASI's first preview; a module that does not is left as it is.
        .and_then(|e| e.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER))
        .and_then(|encoder| encoder.encode())
        .map_err(|e| Error::failed(format!("{} does not make a component: {e:#}", module.display())))?;
    replace(component, &encoded)?;
    Ok(encoded.len() as u64)
}

/// Written aside and renamed: whoever starts meanwhile never reads half a component.
fn replace(component: &Path, bytes: &[u8]) -> Result<()> {
    let aside = component.with_extension("wasm.part");
    fs::write(&aside, bytes).map_err(Error::io("write", &aside))?;
    fs::rename(&aside, component).map_err(Error::io("write", component))
}

/// Gives a component that a tool wrote its place. Gives back its size in bytes.
pub(crate) fn place(made: &Path, component: &Path) -> Result<u64> {
    let bytes = fs::read(made).map_err(Error::io("read", made))?;
    replace(component, &bytes)?;
    Ok(bytes.len() as u64)
}
