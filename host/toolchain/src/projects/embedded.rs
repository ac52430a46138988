//! Files that are embedded in the program: the SDKs, the contract, the templates.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use crate::error::{Error, Result};

use super::project::Language;

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Returns the files below `folder`: their paths relative to it, and their texts.
pub(crate) fn files_below(folder: &str) -> impl Iterator<Item = (&'static str, &'static str)> + use<'_> {
    FILES.iter().filter_map(move |(path, text)| Some((path.strip_prefix(folder)?.strip_prefix('/')?, *text)))
}

/// Writes the SDK of `language` with its contract to `folder`.
pub(crate) fn write_sdk(language: Language, folder: &Path) -> Result<()> {
    let contract = files_below("wit").map(|(path, text)| (format!("wit/{path}"), text.to_owned()));
    let own = format!("sdk/{language}");
    for (path, text) in files_below(&own) {
        // The manifest inherits from this workspace, which the author does not have.
        let text = if path == "Cargo.toml" { standalone(text)? } else { text.to_owned() };
        write(&folder.join(path), &text)?;
    }
    contract.into_iter().try_for_each(|(path, text)| write(&folder.join(path), &text))
}

/// Writes a file and the folders above it.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
    }
    fs::write(path, text).map_err(Error::io("write", path))
}

/// Returns a manifest of this workspace with all inherited values filled in.
fn standalone(manifest: &str) -> Result<String> {
    let broken = |e: toml::de::Error| Error::failed(format!("this pl-host contains a broken SDK: {e}"));
    let workspace: Table = FILES
        .iter()
        .find(|(path, _)| *path == "Cargo.toml")
        .map_or(Ok(Table::new()), |(_, text)| text.parse())
        .map_err(broken)?;
    let mut table: Table = manifest.parse().map_err(broken)?;
    table.remove("lints");
    let inherited = |section: &str| workspace.get("workspace").and_then(|all| all.get(section));
    for (section, source) in [
        ("package", "package"),
        ("dependencies", "dependencies"),
        ("build-dependencies", "dependencies"),
        ("dev-dependencies", "dependencies"),
    ] {
        let Some(Value::Table(keys)) = table.get_mut(section) else { continue };
        for (key, value) in keys {
            if let Some(inherited) = inherited(source).and_then(|all| all.get(key)) {
                inherit(value, inherited);
            }
        }
    }
    Ok(table.to_string())
}

/// Replaces `workspace = true` by the workspace's value. Features are combined.
fn inherit(value: &mut Value, inherited: &Value) {
    let Value::Table(own) = &*value else { return };
    if own.get("workspace").and_then(Value::as_bool) != Some(true) {
        return;
    }
    // The manifest may add features or make a dependency optional.
    let mut added = own.clone();
    added.remove("workspace");
    *value = match inherited {
        Value::String(_) if !added.is_empty() => {
            Table::from_iter([("version".to_owned(), inherited.clone())]).into()
        }
        inherited => inherited.clone(),
    };
    let Value::Table(table) = value else { return };
    for (key, more) in added {
        match (table.get_mut(&key), more) {
            (Some(Value::Array(has)), Value::Array(more)) => {
                let new: Vec<Value> = more.into_iter().filter(|item| !has.contains(item)).collect();
                has.extend(new);
            }
            (_, more) => {
                table.insert(key, more);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sdk_needs_no_workspace() {
        let folder = tempfile::tempdir().unwrap();
        write_sdk(Language::Rust, folder.path()).unwrap();
        let manifest = fs::read_to_string(folder.path().join("Cargo.toml")).unwrap();
        assert!(!manifest.contains("workspace"), "{manifest}");
        let table: Table = manifest.parse().unwrap();
        assert_eq!(table["package"]["edition"].as_str(), Some("2024"));
        let json = table["dependencies"]["serde_json"]["features"].as_array().unwrap();
        assert!(json.iter().any(|feature| feature.as_str() == Some("float_roundtrip")));
        assert!(folder.path().join("wit/plugin.wit").is_file());
        assert!(folder.path().join("src/lib.rs").is_file());
        assert!(!folder.path().join("tests").exists());
    }

    #[test]
    fn additions_to_the_workspace_are_kept() {
        let value = |text: &str| toml::from_str::<Table>(&format!("a = {text}")).unwrap()["a"].clone();
        for (asked, workspace, expected) in [
            ("{ workspace = true }", "\"1.0\"", "\"1.0\""),
            (
                "{ workspace = true, features = [\"x\"], optional = true }",
                "\"1.0\"",
                "{ version = \"1.0\", features = [\"x\"], optional = true }",
            ),
            (
                "{ workspace = true, features = [\"x\", \"y\"] }",
                "{ version = \"1.0\", features = [\"x\"] }",
                "{ version = \"1.0\", features = [\"x\", \"y\"] }",
            ),
        ] {
            let mut found = value(asked);
            inherit(&mut found, &value(workspace));
            assert_eq!(found, value(expected));
        }
    }
}
