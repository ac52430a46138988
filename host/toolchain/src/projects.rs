//! Plugin projects: creation from templates, and builds into components with the tools of each language.
//!
//! A project is a folder with a [`pl-plugin.toml`](project), sources, and `sdk/`: the SDK of its language
//! with the contract at the time of its creation. [`create`] writes one, [`build`] turns it into a component.
//! Only [`fetch`] installs anything. The guests of this repository are built by the same code.

mod builder;
mod c;
mod component;
mod embedded;
mod js;
mod project;
mod python;
mod scaffold;

pub use builder::{BuildOutput, build, fetch, find_tools};
pub use component::encode;
pub use project::{Language, Profile, Project, World};
pub use scaffold::{create, create_pattern, create_team};
