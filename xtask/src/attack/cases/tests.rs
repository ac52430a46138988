//! Tests of the table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::super::case::PARTS;
use super::*;

/// Calls `visit` with every file below a folder that has this extension, or name.
fn files(folder: &Path, end: &str, visit: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type().unwrap().is_dir() {
            if !["target", ".git", "node_modules", ".libtorch"].contains(&name.as_str()) {
                files(&path, end, visit);
            }
        } else if name.ends_with(end) {
            visit(&path);
        }
    }
}

/// Returns the folder of each package.
fn packages(root: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    files(root, "Cargo.toml", &mut |path| {
        let manifest: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        if let Some(name) = manifest.get("package").and_then(|package| package["name"].as_str()) {
            found.entry(name.to_owned()).or_insert_with(|| path.parent().unwrap().to_path_buf());
        }
    });
    found
}

#[test]
fn every_named_test_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let packages = packages(root);
    let mut sources: BTreeMap<&str, Vec<(PathBuf, String)>> = BTreeMap::new();
    for Test { package, name } in CASES.iter().flat_map(|case| case.tests.iter().chain(case.controls)) {
        let folder = packages.get(*package).unwrap_or_else(|| panic!("there is no package {package}"));
        let sources = sources.entry(package).or_insert_with(|| {
            let mut all = Vec::new();
            files(folder, ".rs", &mut |path| {
                all.push((path.to_path_buf(), std::fs::read_to_string(path).unwrap()));
            });
            all
        });
        let (module, function) = name.rsplit_once("::").map_or((None, *name), |(m, f)| (Some(m), f));
        let has = |(path, text): &(PathBuf, String)| {
            let is_module = module.is_none_or(|module| path.file_stem().is_some_and(|stem| stem == module));
            is_module && text.contains(&format!("fn {function}("))
        };
        assert!(sources.iter().any(has), "{package} has no test {name}");
    }
}

#[test]
fn every_case_and_finding_of_the_review_is_in_the_table() {
    let numbers: Vec<u32> = CASES.iter().map(|case| case.number).collect();
    assert_eq!(numbers, (1..=31).collect::<Vec<_>>(), "30 of the review, and more since");
    let findings: BTreeSet<&str> = CASES.iter().flat_map(|case| case.findings).copied().collect();
    let all = (1..=26).map(|number| format!("F{number}")).chain((1..=15).map(|number| format!("L{number}")));
    for finding in all {
        let is_excused = WITHOUT_CASE.iter().any(|(name, reason)| *name == finding && !reason.is_empty());
        assert!(findings.contains(finding.as_str()) != is_excused, "{finding}: a case, or a reason");
    }
    for case in CASES {
        let has_all = !case.tests.is_empty() && !case.controls.is_empty();
        assert!(PARTS.contains(&case.part) && has_all, "{}", case.number);
    }
}
