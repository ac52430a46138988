//! The WebAssembly engine: compile cache, limits, determinism.
//!
//! Knows nothing of agents. A guest is a component that runs under limits on memory, tables, stack, fuel, time and
//! returned bytes. Behind WASI it has an in-memory file system, no environment, no real clock, and no network except
//! the HTTP hosts that it was granted. Its behaviour depends only on its bytes and its arguments, with two exceptions:
//! HTTP responses, and the wall-clock backstop, which [`GuestFault::reproducible`] reports. A [`Module`] is less than that:
//! functions of the program's own that untrusted data must not lead beyond their limits.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use pl_wasm::{Engine, EngineConfig, Limits};
//!
//! let engine = Engine::new(EngineConfig::plugins().cache_dir("/var/cache/pl-host"))?;
//! let component = engine.load("math.wasm", &std::fs::read("math.wasm")?)?;
//! let ready = engine.linker::<()>()?.instantiate_pre(component.inner())?;
//! let mut store = engine.store((), &Limits::default());
//! let instance = pl_wasm::call(&mut store, async |store| ready.instantiate_async(store).await).await?;
//! # Ok(()) }
//! ```

mod allowed_host;
mod backstop;
mod cache;
mod clock;
mod compile_limits;
mod component;
mod engine;
mod error;
mod functions;
mod granted_folders;
mod guest;
mod http_connection;
mod http_link;
mod http_message;
mod http_policy;
mod input;
mod limits;
mod memory_budget;
mod memory_fs;
mod module;
mod output;
mod randomness;
mod stack;
mod stream_work;
mod wait_limit;
mod wasi_clock;
mod wasi_filesystem;
mod wasi_name_lookup;
mod wasi_poll;
mod wasi_random;

pub use allowed_host::AllowedHost;
pub use clock::Clock;
pub use component::Component;
pub use engine::{Engine, EngineConfig, InstancePermit, Lifetime};
pub use error::{Error, GuestFault, HostError, MachineError};
pub use granted_folders::{Folders, FoldersError, opened_path};
pub use guest::{Guest, Store, call};
pub use http_link::{deny_http, link_http};
pub use http_message::{Headers, HttpFailure, HttpRecorder, HttpRequest, HttpResponse};
pub use http_policy::DeniedRequests;
pub use limits::{FUEL_PER_SECOND, Limits};
pub use memory_fs::CreateFileError;
pub use module::{Module, ModuleInstance};
pub use output::{Captured, Output};
pub use randomness::Seed;
pub use stack::{Stack, StackFrame};
pub use wait_limit::WaitExemption;
/// Error with which a host function ends its guest with an exit code: [`GuestFault::Exit`].
pub use wasmtime_wasi::I32Exit as Exit;
