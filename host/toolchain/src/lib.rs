//! Plugin projects: creation from templates, and builds into components with the tools of each language.
//!
//! A project is a folder with a [`pl-plugin.toml`](project), sources, and `sdk/`: the SDK of its language
//! with the contract at the time of its creation. [`create`] writes one, [`build`] turns it into a component.
//! Tools are looked up where their users install them and then in the cache folder. Only [`fetch`] installs
//! anything. The guests of this repository are built by the same code.

mod builder;
mod c;
pub mod cache;
mod component;
mod embedded;
mod error;
mod example_model;
mod js;
pub mod pip;
mod process;
pub mod project;
mod python;
pub mod rust;
mod scaffold;

pub use builder::{BuildOutput, build, fetch, find_tools};
pub use component::encode;
pub use error::{Error, Result};
pub use example_model::{EXAMPLE_MODEL, fetch_example_model};
pub use process::{ProgressFn, command_on_path, on_path};
pub use project::{Language, Profile, Project, World};
pub use scaffold::{create, create_pattern, create_team};
