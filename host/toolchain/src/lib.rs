//! Tools outside of this program, found where their users install them and then in the cache folder: compilers, wheels, and the
//! builds of plugin projects.

pub mod cache;
mod error;
mod example_model;
pub mod pip;
mod process;
mod projects;
pub mod rust;

pub use error::{Error, Result};
pub use example_model::{EXAMPLE_MODEL, fetch_example_model};
pub use process::{ProgressFn, command_on_path, on_path};
pub use projects::*;
