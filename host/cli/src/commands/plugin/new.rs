//! `pl-host plugin new`: creates a project from a template.

use std::io::Write;

use pl_toolchain::{Language, World};

use crate::arguments::plugin::{PluginKind, PluginLanguage, PluginNewArgs};
use crate::commands::fmt::format_generated;
use crate::exit::CommandResult;

pub fn run(options: &PluginNewArgs) -> CommandResult {
    let project =
        pl_toolchain::create(&options.name, options.lang.into(), options.kind.into(), &options.into)?;
    let (name, folder) = (&project.name, options.into.join(&options.name));
    format_generated(&folder.join(format!("{name}.mas")))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workflow_of_a_new_plugin_is_formatted() {
        let folder = tempfile::tempdir().unwrap();
        for (lang, kind, name) in [
            (PluginLanguage::Python, PluginKind::Agent, "guess"),
            (PluginLanguage::Rust, PluginKind::Environment, "a_rather_long_name"),
        ] {
            let options =
                PluginNewArgs { name: name.to_owned(), lang, kind, into: folder.path().to_path_buf() };
            run(&options).unwrap();
            let text = std::fs::read_to_string(folder.path().join(format!("{name}/{name}.mas"))).unwrap();
            assert_eq!(pl_dsl::format(&text).as_ref(), Ok(&text), "{name}");
        }
    }
}
