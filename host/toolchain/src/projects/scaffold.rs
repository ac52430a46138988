//! New projects, from the templates in `plugins/templates`.
//!
//! A project consists of the files that all projects of its language share, those of its kind, and a
//! workflow. The templates are complete files of a plugin called `my_plugin`, whose name is replaced.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

use super::embedded;
use super::project::{Language, Project, World, check_name};

/// Name of the plugin in the templates.
const NAME: &str = "my_plugin";

/// Reference to its component in a workflow.
const COMPONENT: &str = "\"my_plugin.wasm\"";

/// Name of the team in the templates.
const TEAM: &str = "my_team";

/// Name of the pattern in the templates.
const PATTERN: &str = "my_pattern";

/// Line that stands for the agents and turns of a pattern in the templates.
const MEMBERS: &str = "# my_members";

/// Creates the plugin project `name` in a folder of that name below `parent`. A failure leaves no folder.
///
/// # Errors
/// [`Error::Input`] if the name is not allowed for a plugin or the folder exists.
pub fn create(name: &str, language: Language, world: World, parent: &Path) -> Result<Project> {
    let folder = create_folder(name, parent, |folder| fill(folder, name, language, world))?;
    Project::open(&folder)
}

/// Creates a project of a workflow without a plugin in a folder of its name below `parent`, and returns the folder. A
/// failure leaves no folder.
///
/// # Errors
/// [`Error::Input`] if the name is not allowed for a workflow or the folder exists.
pub fn create_team(name: &str, parent: &Path) -> Result<PathBuf> {
    create_folder(name, parent, |folder| {
        for (path, text) in embedded::files_below("templates/team") {
            let text = text.replace(TEAM, name);
            embedded::write(&folder.join(target_path(path, TEAM, name)), &text)?;
        }
        Ok(())
    })
}

/// Creates a project like [`create_team`] whose team follows a pattern. `members` are its agents and its turns, in the language
/// of workflows.
///
/// # Errors
/// Those of [`create_team`].
pub fn create_pattern(name: &str, parent: &Path, pattern: &str, members: &str) -> Result<PathBuf> {
    create_folder(name, parent, |folder| {
        for (path, text) in embedded::files_below("templates/pattern") {
            // A team of one agent has no use for the second policy.
            let is_alone = !members.contains("= checker");
            let unused = |line: &str| is_alone && line.starts_with("policy checker ");
            let text: String = text.split_inclusive('\n').filter(|line| !unused(line)).collect();
            let text = text.replace(TEAM, name).replace(PATTERN, pattern).replace(MEMBERS, members);
            embedded::write(&folder.join(target_path(path, TEAM, name)), &text)?;
        }
        Ok(())
    })
}

/// Creates a folder and fills it. A failure leaves no folder.
fn create_folder(name: &str, parent: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    check_name(name).map_err(|e| Error::Input(e.to_string()))?;
    let folder = parent.join(name);
    if folder.exists() {
        return Err(Error::Input(format!(
            "{} exists already; choose another name, or another parent folder with `--into DIR`",
            folder.display()
        )));
    }
    std::fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    if let Err(error) = fill(&folder) {
        // The error of the project is the one that matters.
        let _ = std::fs::remove_dir_all(&folder);
        return Err(error);
    }
    Ok(folder)
}

fn fill(folder: &Path, name: &str, language: Language, world: World) -> Result<()> {
    for part in ["common", world.name()] {
        for (path, text) in embedded::files_below(&format!("templates/{language}/{part}")) {
            embedded::write(&folder.join(target_path(path, NAME, name)), &fill_in(text, name, world))?;
        }
    }
    for (path, text) in embedded::files_below("templates/workflow") {
        if path == format!("{world}.mas") {
            let text = text.replace(COMPONENT, &format!("{COMPONENT}{}", settings(language)));
            embedded::write(&folder.join(format!("{name}.mas")), &fill_in(&text, name, world))?;
        }
    }
    embedded::write_sdk(language, &folder.join("sdk"))
}

/// Returns the settings that a workflow needs for a plugin of this language.
fn settings(language: Language) -> &'static str {
    match language {
        // The interpreter alone takes half of the default memory.
        Language::Python => " { memory = 128MiB }",
        Language::Rust | Language::Js | Language::C => "",
    }
}

/// Returns the path of a template's file in the project. Templates have no names with a leading dot, because
/// tools would apply such files to the templates' own folder.
fn target_path(path: &str, placeholder: &str, name: &str) -> PathBuf {
    match path {
        "gitignore" => ".gitignore".into(),
        path => path.replace(placeholder, name).into(),
    }
}

fn fill_in(text: &str, name: &str, world: World) -> String {
    text.replace(NAME, name).replace("my_kind", world.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_project_is_complete() {
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
    fn a_team_has_a_workflow_and_a_prompt() {
        let folder = tempfile::tempdir().unwrap();
        let team = create_team("team", folder.path()).unwrap();
        assert_eq!(team, folder.path().join("team"));
        for file in ["team.mas", "prompts/solve.txt", "README.md", ".gitignore"] {
            let text = std::fs::read_to_string(team.join(file)).unwrap();
            assert!(!text.is_empty() && !text.contains(TEAM), "{file}: {text}");
        }
        assert!(create_team("team", folder.path()).unwrap_err().to_string().contains("team exists already"));
    }

    #[test]
    fn a_pattern_has_its_members() {
        let folder = tempfile::tempdir().unwrap();
        let team = create_pattern("duo", folder.path(), "debate", "turns { }\n").unwrap();
        let text = std::fs::read_to_string(team.join("duo.mas")).unwrap();
        assert!(text.contains("turns { }\n\nreward") && text.contains("`debate`"), "{text}");
        assert!(text.contains("policy solver ") && !text.contains("checker"), "{text}");
        let two = create_pattern("two", folder.path(), "debate", "agent b = std.chat { policy = checker }\n");
        assert!(std::fs::read_to_string(two.unwrap().join("two.mas")).unwrap().contains("policy checker "));
        for file in ["duo.mas", "README.md", ".gitignore"] {
            let text = std::fs::read_to_string(team.join(file)).unwrap();
            assert!(!text.is_empty() && !text.contains("my_"), "{file}: {text}");
        }
    }

    #[test]
    fn an_existing_folder_stays_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("guess")).unwrap();
        let error = create("guess", Language::Rust, World::Agent, folder.path()).unwrap_err().to_string();
        assert!(error.contains("guess exists already") && error.contains("--into"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path().join("guess")).unwrap().count(), 0);
    }

    #[test]
    fn an_invalid_name_creates_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let error = create("My-Game", Language::C, World::Domain, folder.path()).unwrap_err().to_string();
        assert!(error.contains("My-Game") && error.contains("lower-case"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
