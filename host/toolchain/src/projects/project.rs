//! A plugin project: a folder with a `pl-plugin.toml`.
//!
//! ```toml
//! [plugin]
//! name     = "guess"        # of the component and in workflows
//! language = "python"       # rust, python, js or c
//! world    = "domain"       # what it exports: agent, environment, reward, or domain (all three)
//! source   = "guess.py"     # the main file; for Rust, cargo determines it
//! out      = "guess.wasm"   # the file that `pl-host plugin build` writes
//! sdk      = "sdk"          # the SDK and the contract
//! ```
//!
//! The last three are optional and have these defaults.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::error::{Error, Result};

/// Name of the file that describes a project.
pub const FILE: &str = "pl-plugin.toml";

/// A language with an SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Rust,
    Python,
    /// JavaScript and TypeScript.
    Js,
    /// C and C++.
    C,
}

impl Language {
    /// All languages.
    pub const ALL: [Language; 4] = [Language::Rust, Language::Python, Language::Js, Language::C];

    /// Returns its name in `pl-plugin.toml` and `--lang`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::Js => "js",
            Self::C => "c",
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A world of the contract: the interfaces that a plugin exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum World {
    Agent,
    Environment,
    Reward,
    /// All three.
    Domain,
}

impl World {
    /// All worlds.
    pub const ALL: [World; 4] = [World::Agent, World::Environment, World::Reward, World::Domain];

    /// Returns its name in `pl-plugin.toml`, `--kind` and the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Environment => "environment",
            Self::Reward => "reward",
            Self::Domain => "domain",
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Optimisation of a build. Python and JavaScript have only one kind of build, which keeps source lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Quick to build, with source lines in the stack of a trap.
    Dev,
    /// Small and fast.
    Release,
}

/// A project. All paths are absolute.
#[derive(Debug, Clone)]
pub struct Project {
    pub folder: PathBuf,
    pub name: String,
    pub language: Language,
    pub world: World,
    /// The main file.
    pub source: PathBuf,
    /// The component.
    pub out: PathBuf,
    /// The language's SDK; its `wit` is the contract.
    pub sdk: PathBuf,
}

/// `pl-plugin.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    plugin: Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: String,
    language: Language,
    world: World,
    source: Option<PathBuf>,
    out: Option<PathBuf>,
    sdk: Option<PathBuf>,
}

impl Error {
    pub(super) fn project(path: &Path, message: impl Into<String>) -> Error {
        Error::Project { path: path.to_path_buf(), message: message.into() }
    }
}

impl Project {
    /// Reads the project in `folder`.
    ///
    /// # Errors
    /// [`Error::Project`] if its file is missing or invalid.
    pub fn open(folder: &Path) -> Result<Project> {
        let file = folder.join(FILE);
        if !file.is_file() {
            return Err(Error::project(
                &file,
                "this file is missing, so the folder is not a plugin project; `pl-host plugin new NAME --lang \
                 LANGUAGE` creates one",
            ));
        }
        let text = std::fs::read_to_string(&file).map_err(Error::io("read", &file))?;
        let Document { plugin } =
            toml::from_str(&text).map_err(|e| Error::project(&file, e.to_string().trim_end()))?;
        check_name(&plugin.name).map_err(|e| Error::project(&file, e.to_string()))?;
        // Absolute, because tools run in the project's folder.
        let folder = folder.canonicalize().map_err(Error::io("find", folder))?;
        let Table { name, language, world, source, out, sdk } = plugin;
        let source = folder.join(source.unwrap_or_else(|| main_file(language, &name)));
        if !source.is_file() {
            return Err(Error::project(
                &file,
                format!("`source` is {}, which does not exist", source.display()),
            ));
        }
        let out = out.unwrap_or_else(|| format!("{name}.wasm").into());
        if !stays_inside(&out) {
            let message = format!("`out` is {}, which is outside of the project", out.display());
            return Err(Error::project(&file, message));
        }
        let sdk = sdk.unwrap_or_else(|| "sdk".into());
        if !stays_inside(&sdk) && !folder.join(&sdk).is_dir() {
            let message =
                format!("`sdk` is {}, which is outside of the project and does not exist", sdk.display());
            return Err(Error::project(&file, message));
        }
        let (out, sdk) = (folder.join(out), folder.join(sdk));
        Ok(Project { folder, name, language, world, source, out, sdk })
    }

    /// Returns the folder for intermediate results of tools. It can be deleted at any time.
    #[must_use]
    pub fn scratch(&self) -> PathBuf {
        self.folder.join("target/plugin")
    }
}

/// Returns true if a relative path stays below its folder. A build writes only there.
fn stays_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// Returns the default main file of a project.
pub(crate) fn main_file(language: Language, name: &str) -> PathBuf {
    match language {
        Language::Rust => "src/lib.rs".into(),
        Language::Python => format!("{name}.py").into(),
        Language::Js => format!("{name}.js").into(),
        Language::C => format!("{name}.c").into(),
    }
}

/// Reason why a name is not allowed for a plugin or a project.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NameError {
    #[error(
        "{0:?} can't be used as a name: it must begin with a lower-case letter, followed by lower-case letters, \
         digits and `_`"
    )]
    Characters(String),
    #[error("{0:?} can't be used as a name: it is longer than 64 characters")]
    Length(String),
    #[error("{0:?} can't be used as a name: it is reserved; choose another one")]
    Reserved(String),
}

/// Checks that a plugin can have this name: in a workflow, and as a crate, a module and a file.
pub(crate) fn check_name(name: &str) -> std::result::Result<(), NameError> {
    /// Likely names that are keywords of workflows, Rust, Python, JavaScript or C, modules of Python, or
    /// plugins of pl-host.
    const RESERVED: &str = "abstract agent alloc and as assert async await break case catch chat class code const \
        continue core crate def default del delete do dyn elif else end enum env environment except export extern \
        false final finally fn for from function global goto if impl import in int is lambda let loop match math \
        maths mod move mut new nonlocal not null or package pass plugin pub python raise ref register return reward \
        self short signed sizeof start static std struct super switch test then this throw trait true try turn turns \
        type typedef union unsafe use var void volatile when where while with yield \
        array ast calendar collections copy csv dataclasses datetime email fractions functools glob graphlib html http \
        inspect io itertools json keyword locale logging numbers operator os platform profile queue random re sched \
        secrets select shelve signal site socket statistics string symtable sys tests time token tokenize trace types \
        typing unittest uuid warnings";
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(allowed) {
        return Err(NameError::Characters(name.to_owned()));
    }
    if name.len() > 64 {
        return Err(NameError::Length(name.to_owned()));
    }
    if RESERVED.split_whitespace().any(|reserved| reserved == name) || name.starts_with("pl_") {
        return Err(NameError::Reserved(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &str) -> Result<Project> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        std::fs::write(folder.path().join("guess.py"), "").unwrap();
        Project::open(folder.path())
    }

    #[test]
    fn optional_keys_have_defaults() {
        let project =
            open("[plugin]\nname = \"guess\"\nlanguage = \"python\"\nworld = \"domain\"\n").unwrap();
        assert_eq!((project.language, project.world), (Language::Python, World::Domain));
        let names = [&project.source, &project.out, &project.sdk];
        assert_eq!(
            names.map(PathBuf::clone),
            ["guess.py", "guess.wasm", "sdk"].map(|name| project.folder.join(name))
        );
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        let message = |text: &str| open(text).unwrap_err().to_string();
        let plugin = "[plugin]\nname = \"guess\"\nworld = \"domain\"\n";
        let language = message(&format!("{plugin}language = \"ruby\"\n"));
        assert!(language.contains("pl-plugin.toml: ") && language.contains("line 4"), "{language}");
        assert!(language.contains("`rust`, `python`, `js`, `c`"), "{language}");
        let key = message(&format!("{plugin}language = \"python\"\nsauce = 1\n"));
        assert!(key.contains("sauce") && key.contains("`source`"), "{key}");
        let source = message(&format!("{plugin}language = \"rust\"\n"));
        assert!(source.contains("src/lib.rs, which does not exist"), "{source}");
        let missing = Project::open(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(missing.contains("/nowhere/pl-plugin.toml") && missing.contains("plugin new"), "{missing}");
    }

    #[test]
    fn a_build_writes_only_into_the_project() {
        let plugin = "[plugin]\nname = \"guess\"\nlanguage = \"python\"\nworld = \"domain\"\n";
        for key in ["out", "sdk"] {
            for path in ["/etc/nowhere", "../../nowhere", "a/../../nowhere"] {
                let message = open(&format!("{plugin}{key} = \"{path}\"\n")).unwrap_err().to_string();
                assert!(message.contains(&format!("`{key}` is {path}, which is outside")), "{message}");
            }
        }
        open(&format!("{plugin}out = \"./target/guess.wasm\"\nsdk = \"vendor/sdk\"\n")).unwrap();
    }

    #[test]
    fn names_are_identifiers_everywhere() {
        for name in ["guess", "g2", "my_game"] {
            check_name(name).unwrap();
        }
        for name in [
            "",
            "Guess",
            "2g",
            "my-game",
            "über",
            "a b",
            "../x",
            "class",
            "std",
            "env",
            "pl_sdk",
            &"a".repeat(65),
        ] {
            check_name(name).unwrap_err();
        }
    }
}
