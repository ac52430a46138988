//! Crates without examples in their documentation have `doctest = false`, because rustdoc would analyse them for nothing.
//! This test finds examples in such crates, which would never run.

use std::path::Path;

/// Returns the lines that open a code block which rustdoc would run.
fn examples(source: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut inside = false;
    for (index, line) in source.lines().enumerate() {
        let line = line.trim_start();
        if line.starts_with("#![doc") {
            continue;
        }
        let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            inside = false;
            continue;
        };
        if let Some(language) = text.trim().strip_prefix("```") {
            let runs = ["", "rust", "no_run", "should_panic"].contains(&language.trim());
            if !inside && runs {
                found.push(index + 1);
            }
            inside = !inside;
        }
    }
    found
}

/// Calls `visit` with every Rust file below a folder.
fn rust_files(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, visit);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            visit(&path);
        }
    }
}

#[test]
fn code_blocks_are_found() {
    assert_eq!(
        examples("/// ```\n/// f();\n/// ```\nfn f() {}\n//! ```text\n//! x\n//! ```\n/// ```no_run\n"),
        [1, 8]
    );
}

#[test]
fn examples_in_documentation_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let manifest: toml::Table = std::fs::read_to_string(root.join("Cargo.toml")).unwrap().parse().unwrap();
    for member in manifest["workspace"]["members"].as_array().unwrap() {
        let member = root.join(member.as_str().unwrap().trim_end_matches("/*"));
        let folders = match member.join("Cargo.toml").is_file() {
            true => vec![member],
            false => std::fs::read_dir(member).unwrap().map(|entry| entry.unwrap().path()).collect(),
        };
        for folder in folders {
            let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
            if !text.contains("doctest = false") {
                continue;
            }
            rust_files(&folder.join("src"), &mut |file| {
                let lines = examples(&std::fs::read_to_string(file).unwrap());
                let file = file.display();
                assert!(
                    lines.is_empty(),
                    "{file}: the example of line {lines:?} never runs: remove `doctest = false`"
                );
            });
        }
    }
}
