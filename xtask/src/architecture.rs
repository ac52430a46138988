//! `cargo xtask architecture`: the picture of the crates in docs/architecture.md, made from their manifests.

#[cfg(test)]
mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo::cargo;

const PAGE: &str = "docs/architecture.md";
const BEGIN: &str = "<!-- cargo xtask architecture: begin -->\n";
const END: &str = "<!-- cargo xtask architecture: end -->";

/// Folders whose crates the picture shows.
const SHOWN: [&str; 2] = ["host/", "dsl/"];

/// A crate's name without its prefix, and the names of the shown crates that it depends on.
type Dependencies = BTreeMap<String, BTreeSet<String>>;

/// Writes the picture into the page.
pub fn write(root: &Path) -> Result<()> {
    let path = root.join(PAGE);
    let page = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let page = insert(&page, &picture(root)?)?;
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}

/// Replaces the text between the two markers.
fn insert(page: &str, picture: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).with_context(|| format!("{PAGE} lacks {BEGIN:?}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{PAGE} lacks {END:?}"))?;
    Ok(format!("{before}{BEGIN}{picture}{END}{after}"))
}

/// Returns the packages of the workspace, as cargo describes them.
fn metadata(root: &Path) -> Result<Value> {
    let output = cargo(root)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Draws the crates as a Mermaid flowchart, one arrow per dependency that no other path implies.
fn picture(root: &Path) -> Result<String> {
    let crates = dependencies(root, &metadata(root)?);
    let mut lines = vec!["```mermaid".to_owned(), "flowchart TD".to_owned()];
    for (name, direct) in &crates {
        for dependency in direct {
            let implied =
                direct.iter().any(|other| other != dependency && reaches(&crates, other, dependency));
            if !implied {
                lines.push(format!("  {name} --> {dependency}"));
            }
        }
    }
    lines.push("```\n".to_owned());
    Ok(lines.join("\n"))
}

fn dependencies(root: &Path, metadata: &Value) -> Dependencies {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let shown = |package: &&Value| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.strip_prefix(root).unwrap_or(manifest).to_string_lossy().into_owned();
        SHOWN.iter().any(|start| folder.starts_with(start))
    };
    let packages: Vec<&Value> = packages.iter().filter(shown).collect();
    let names: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let direct = |package: &Value| {
        let list = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter()
            .filter(|dependency| dependency["kind"].is_null())
            .filter_map(|dependency| dependency["name"].as_str())
            .filter(|name| names.contains(name))
            .map(short)
            .collect()
    };
    packages.iter().filter_map(|package| Some((short(package["name"].as_str()?), direct(package)))).collect()
}

fn short(name: &str) -> String {
    if name == "pl-host" { "cli".to_owned() } else { name.trim_start_matches("pl-").to_owned() }
}

/// Returns true if a path of dependencies leads from one crate to another.
fn reaches(crates: &Dependencies, from: &str, to: &str) -> bool {
    crates.get(from).is_some_and(|direct| direct.iter().any(|next| next == to || reaches(crates, next, to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn the_page_shows_the_crates_as_they_are() {
        let page = std::fs::read_to_string(root().join(PAGE)).unwrap();
        let expected = insert(&page, &picture(root()).unwrap()).unwrap();
        assert!(page == expected, "{PAGE} is out of date: run `cargo xtask architecture`");
    }

    #[test]
    fn an_arrow_that_another_path_implies_is_left_out() {
        let crates: Dependencies = [("a", vec!["b", "c"]), ("b", vec!["c"]), ("c", vec![])]
            .map(|(name, direct)| (name.to_owned(), direct.into_iter().map(str::to_owned).collect()))
            .into();
        assert!(reaches(&crates, "a", "c") && reaches(&crates, "b", "c"));
        assert!(!reaches(&crates, "c", "a"));
    }

    /// Floors of the design: a crate never depends on one of the crates listed here.
    #[test]
    fn lower_crates_stay_free_of_torch_and_wasm() {
        let crates = dependencies(root(), &metadata(root()).unwrap());
        for (from, to) in [
            ("types", "model"),
            ("dsl", "model"),
            ("dsl", "wasm"),
            ("rollout", "model"),
            ("rollout", "inference"),
            ("trainer", "record"),
            ("trainer", "rollout"),
            ("record", "model"),
            ("wasm", "plugin"),
        ] {
            assert!(!reaches(&crates, from, to), "{from} must not depend on {to}");
        }
    }
}
