//! Plugin projects: made from templates, and built into components with each language's own tools.
//!
//! A project is a folder with a [`pl-plugin.toml`](project), the language's own sources, and `sdk/`: the SDK of its
//! language with the contract that it was made with. [`create`] writes one, [`build`] turns it into a component. Tools
//! are looked for where their users keep them and then in the cache folder; nothing is ever installed unless
//! [`fetch`] is asked for it. The same code builds this repository's own guests.

mod builder;
mod c;
pub mod cache;
mod component;
mod embedded;
mod error;
mod fetch;
mod js;
mod process;
pub mod project;
mod python;
pub mod rust;
mod scaffold;

pub use builder::{Built, Profile, build, fetch};
pub use component::encode;
pub use error::{Error, Result};
pub use project::{Language, Project, World};
pub use scaffold::create;

/// Told what is being done, a line at a time, by what may take long.
pub type Say<'a> = &'a dyn Fn(&str);
