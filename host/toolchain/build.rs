//! Embeds the SDKs, the contract and the templates in the program, as `FILES`: pairs of a path and a text.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Embedded folders: the name in `FILES`, and the path in the repository.
const FOLDERS: [(&str, &str); 6] = [
    ("sdk/rust", "plugins/sdk/rust"),
    ("sdk/python", "plugins/sdk/python"),
    ("sdk/js", "plugins/sdk/js"),
    ("sdk/c", "plugins/sdk/c"),
    ("wit", "wit/v0.1"),
    ("templates", "plugins/templates"),
];

/// Parts of an SDK that authors don't need, and results of tools. The contract comes from its own folder.
const EXCLUDED: [&str; 8] =
    ["tests", "test", "examples", "target", "node_modules", "__pycache__", "wit", "Cargo.lock"];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../..").canonicalize()?;
    let mut files = vec![("Cargo.toml".to_owned(), root.join("Cargo.toml"))];
    println!("cargo::rerun-if-changed={}", root.join("Cargo.toml").display());
    for (name, folder) in FOLDERS {
        let folder = root.join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        let excluded: &[&str] = if name.starts_with("sdk/") { &EXCLUDED } else { &["__pycache__"] };
        collect(name, &folder, excluded, &mut files)?;
    }
    files.sort();
    let mut code = String::from("static FILES: &[(&str, &str)] = &[\n");
    for (name, file) in files {
        writeln!(code, "    ({name:?}, include_str!({file:?})),")?;
    }
    code.push_str("];\n");
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("files.rs"), code)?;
    Ok(())
}

fn collect(
    name: &str,
    folder: &Path,
    excluded: &[&str],
    files: &mut Vec<(String, PathBuf)>,
) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))? {
        let path = entry?.path();
        let own = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if own.starts_with('.') || excluded.contains(&own.as_str()) {
            continue;
        }
        let name = format!("{name}/{own}");
        if path.is_dir() {
            collect(&name, &path, excluded, files)?;
        } else {
            files.push((name, path));
        }
    }
    Ok(())
}
