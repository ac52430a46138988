//! `pl-host plugin new`: creates a project from a template.

use std::io::Write;

use pl_toolchain::{Language, World};

use crate::arguments::plugin::{PluginKind, PluginLanguage, PluginNewArgs};
use crate::exit::CommandResult;

pub fn run(options: &PluginNewArgs) -> CommandResult {
    let project =
        pl_toolchain::create(&options.name, options.lang.into(), options.kind.into(), &options.into)?;
    let (name, folder) = (&project.name, options.into.join(&options.name));
    let folder = folder.strip_prefix(".").unwrap_or(&folder).display();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{folder}: a plugin in {} ({})", project.language, project.world)?;
    writeln!(out, "  cd {folder}")?;
    writeln!(out, "  pl-host plugin build         # makes {name}.wasm")?;
    writeln!(out, "  pl-host play {name}.mas      # one episode, as a conversation")?;
    Ok(())
}

impl From<PluginLanguage> for Language {
    fn from(language: PluginLanguage) -> Language {
        match language {
            PluginLanguage::Rust => Language::Rust,
            PluginLanguage::Python => Language::Python,
            PluginLanguage::Js => Language::Js,
            PluginLanguage::C => Language::C,
        }
    }
}

impl From<PluginKind> for World {
    fn from(kind: PluginKind) -> World {
        match kind {
            PluginKind::Agent => World::Agent,
            PluginKind::Environment => World::Environment,
            PluginKind::Reward => World::Reward,
            PluginKind::Domain => World::Domain,
        }
    }
}
