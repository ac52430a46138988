//! Resources that all operations share.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pl_wasm::{Engine, EngineConfig};
use tokio::runtime::{Handle, Runtime};

use crate::error::Error;
use crate::permissions::{PermissionRequest, Permissions, SharedPermissions};
use crate::progress::{Notice, Progress};

/// WebAssembly components that a program ships with. The command line embeds them in its binary; a test reads
/// them from `target/release/plugins`.
#[derive(Debug, Clone, Copy)]
pub struct Embedded {
    /// Plugin `std`, with the agent `std.chat`.
    pub std_chat: &'static [u8],
    /// CPython with the standard library and sympy, for the sandbox's `wasm` backend. Compressed with zstd.
    pub python_worker: &'static [u8],
    /// Arguments with which this program calls [`pl_sandbox::serve_jobs`]. `None` if it never does: it can't have worker
    /// processes then.
    pub worker_arguments: Option<&'static [&'static str]>,
}

/// Longest time that dropping a host waits for its threads.
const LONGEST_SHUTDOWN: Duration = Duration::from_secs(5);

/// The tokio runtime, the embedded components and the receiver of progress reports.
pub struct Host {
    handle: Handle,
    /// `None` once the host is dropped.
    runtime: Option<Runtime>,
    embedded: Embedded,
    progress: Arc<dyn Progress>,
    permissions: SharedPermissions,
}

impl Host {
    /// Starts a multi-threaded runtime.
    ///
    /// # Errors
    /// [`Error::Runtime`] if the system refuses the threads.
    pub fn new(embedded: Embedded, progress: Arc<dyn Progress>) -> Result<Host, Error> {
        let runtime = Runtime::new().map_err(|source| Error::Runtime { source })?;
        let (handle, permissions) = (runtime.handle().clone(), SharedPermissions::default());
        Ok(Host { handle, runtime: Some(runtime), embedded, progress, permissions })
    }

    /// Lets workflows use more of the machine than their own folders, which is all by default.
    #[must_use]
    pub fn with_permissions(mut self, permissions: Permissions) -> Host {
        self.permissions = permissions.into();
        self
    }

    /// Allows what a workflow requests.
    pub fn allow(&self, requests: &[PermissionRequest]) {
        self.permissions.allow(requests.iter().map(|request| request.access.clone()));
    }

    /// Returns the permissions of workflows, which later answers of the user extend.
    pub fn permissions(&self) -> &SharedPermissions {
        &self.permissions
    }

    /// Returns a handle to the runtime, to spawn work on.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Returns the components that the program ships with.
    pub fn embedded(&self) -> Embedded {
        self.embedded
    }

    /// Runs a future to its end. Not to be called from within the runtime.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    pub(crate) fn progress(&self) -> &Arc<dyn Progress> {
        &self.progress
    }

    pub(crate) fn notify(&self, notice: Notice) {
        self.progress.notice(&notice);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The compilation of a component that nobody waits for any more can't be interrupted.
            runtime.shutdown_timeout(LONGEST_SHUTDOWN);
        }
    }
}

/// Folder of compiled components.
pub(crate) fn compile_cache() -> Result<PathBuf, Error> {
    pl_toolchain::cache::private("compiled").map_err(Error::Cache)
}

/// Returns the engine that plugins run in, with the compile cache.
///
/// # Errors
/// [`Error::Cache`] if there is no cache folder, [`Error::WasmEngine`] if WebAssembly can't be run here.
pub fn plugin_engine() -> Result<Engine, Error> {
    with_compile_cache(EngineConfig::plugins())
}

/// Returns one for plugins that the user builds: what an earlier build has in common with this one, such as an
/// interpreter, is not compiled again.
///
/// # Errors
/// Those of [`plugin_engine`].
pub fn build_engine() -> Result<Engine, Error> {
    with_compile_cache(EngineConfig { reuse_functions: true, ..EngineConfig::plugins() })
}

fn with_compile_cache(config: EngineConfig) -> Result<Engine, Error> {
    Engine::new(config.cache_dir(compile_cache()?)).map_err(Error::WasmEngine)
}
