//! Plugin projects: creation from templates, and builds into components with the tools of each language.
//!
//! A project is a folder with a [`pl-plugin.toml`](project), sources, and `sdk/`: the SDK of its language
//! with the contract at the time of its creation. [`create`] writes one, [`build`] turns it into a component.
//! Tools are looked up where their users install them and then in the cache folder. Only [`fetch`] installs
//! anything. The guests of this repository are built by the same code.

#![cfg_attr(
    not(feature = "projects"),
    allow(dead_code, reason = "build scripts need a part of what projects do")
)]

#[cfg(feature = "projects")]
mod builder;
#[cfg(feature = "projects")]
mod c;
pub mod cache;
#[cfg(feature = "projects")]
mod component;
#[cfg(feature = "projects")]
mod embedded;
mod error;
mod example_model;
#[cfg(feature = "projects")]
mod js;
pub mod pip;
mod process;
#[cfg(feature = "projects")]
pub mod project;
#[cfg(feature = "projects")]
mod python;
pub mod rust;
#[cfg(feature = "projects")]
mod scaffold;

#[cfg(feature = "projects")]
pub use builder::{BuildOutput, build, fetch, find_tools};
#[cfg(feature = "projects")]
pub use component::encode;
pub use error::{Error, Result};
pub use example_model::{EXAMPLE_MODEL, fetch_example_model};
pub use process::ProgressFn;
#[cfg(feature = "projects")]
pub use project::{Language, Profile, Project, World};
#[cfg(feature = "projects")]
pub use scaffold::{create, create_pattern, create_team};
