//! The WebAssembly engine: compile cache, limits, determinism.
//!
//! Knows nothing of agents. A guest is a component that runs with no files but those it is given in memory, no network, no environment and no
//! real clock behind WASI, under limits on memory, tables, stack, fuel, time and returned bytes. What a guest
//! does depends on its bytes and its arguments alone; the one exception is the wall-clock backstop, and
//! [`Fault::reproducible`] tells when that one fired.
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

mod backstop;
mod cache;
mod clock;
mod component;
mod engine;
mod error;
mod exchange;
mod files;
mod filesystem;
mod folders;
mod guest;
mod http;
mod limits;
mod output;
mod randomness;
mod stack;

pub use clock::Clock;
pub use component::Component;
pub use engine::{Engine, EngineConfig, Seat, Stay};
pub use error::{Error, Fault, HostError};
pub use exchange::{Failure, Headers, Post, Request, Response};
pub use folders::{Folders, FoldersError};
pub use guest::{Guest, Store, call};
pub use http::Host;
pub use limits::{FUEL_PER_SECOND, Limits};
pub use output::{Captured, Output};
pub use randomness::Seed;
pub use stack::{Frame, Stack};
/// What a host function returns as an error to end its guest with an exit code: [`Fault::Exit`].
pub use wasmtime_wasi::I32Exit as Exit;
