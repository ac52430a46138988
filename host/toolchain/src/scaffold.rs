//! New projects, from the templates in `plugins/templates`.
//!
//! A project is the files that all projects of its language have, those of its kind, and a workflow. The templates are
//! whole files of a plugin called `my_plugin`; the new name takes the place of that one.

use std::path::{Path, PathBuf};

use crate::project::check_name;
use crate::{Error, Language, Project, Result, World, cache, embedded};

/// What the templates' plugin is called.
const NAME: &str = "my_plugin";

/// How a workflow names its component.
const COMPONENT: &str = "\"my_plugin.wasm\"";

/// Makes the project `name` in a folder of that name below `parent`, whole or not at all.
///
/// # Errors
/// When the name can't be a plugin's, or the folder is there already.
pub fn create(name: &str, language: Language, world: World, parent: &Path) -> Result<Project> {
    check_name(name).map_err(Error::Input)?;
    let folder = parent.join(name);
    if folder.exists() {
        return Err(Error::Input(format!(
            "{} is there already; choose another name, or another place with `--into DIR`",
            folder.display()
        )));
    }
    cache::folder(&folder, |partial| fill(partial, name, language, world))?;
    Project::open(&folder)
}

fn fill(folder: &Path, name: &str, language: Language, world: World) -> Result<()> {
    for part in ["common", world.name()] {
        for (path, text) in embedded::below(&format!("templates/{language}/{part}")) {
            embedded::write(&folder.join(place(path, name)), &named(text, name, world))?;
        }
    }
    for (path, text) in embedded::below("templates/workflow") {
        if path == format!("{world}.mas") {
            let text = text.replace(COMPONENT, &format!("{COMPONENT}{}", settings(language)));
            embedded::write(&folder.join(format!("{name}.mas")), &named(&text, name, world))?;
        }
    }
    embedded::write_sdk(language, &folder.join("sdk"))
}

/// What a workflow gives a plugin of this language beyond the defaults.
fn settings(language: Language) -> &'static str {
    match language {
        // The interpreter alone takes half of the default.
        Language::Python => " { memory = 128MiB }",
        Language::Rust | Language::Js | Language::C => "",
    }
}

/// Where a template's file goes. Files that begin with a dot do so only here: in the templates' own folder they would
/// be heeded.
fn place(path: &str, name: &str) -> PathBuf {
    match path {
        "gitignore" => ".gitignore".into(),
        path => path.replace(NAME, name).into(),
    }
}

fn named(text: &str, name: &str, world: World) -> String {
    text.replace(NAME, name).replace("my_kind", world.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_project_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        for language in Language::ALL {
            for world in World::ALL {
                let name = format!("{language}_{world}");
                let project = create(&name, language, world, folder.path()).unwrap();
                assert_eq!((project.language, project.world), (language, world));
                for file in [
                    format!("{name}.mas"),
                    ".gitignore".into(),
                    "README.md".into(),
                    "sdk/wit/plugin.wit".into(),
                ] {
                    assert!(project.folder.join(&file).is_file(), "{name} lacks {file}");
                }
                for file in ["pl-plugin.toml".to_owned(), format!("{name}.mas"), "README.md".to_owned()] {
                    let text = std::fs::read_to_string(project.folder.join(&file)).unwrap();
                    assert!(!text.contains("my_") && text.contains(&name), "{file}: {text}");
                }
            }
        }
    }

    #[test]
    fn a_folder_that_is_there_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("guess")).unwrap();
        let error = create("guess", Language::Rust, World::Agent, folder.path()).unwrap_err().to_string();
        assert!(error.contains("guess is there already") && error.contains("--into"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path().join("guess")).unwrap().count(), 0);
    }

    #[test]
    fn a_name_that_can_not_be_makes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let error = create("My-Game", Language::C, World::Domain, folder.path()).unwrap_err().to_string();
        assert!(error.contains("My-Game") && error.contains("lower-case"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
