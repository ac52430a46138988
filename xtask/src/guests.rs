//! Builds the guests: the plugins of this workspace, from source to WebAssembly components.
//!
//! The work is `pl-toolchain`'s, as for anybody's plugin; a missing target is fetched. Nothing is done at all while a
//! hash over the sources is unchanged.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use pl_toolchain::rust::{Crate, Toolchain};

/// A guest crate and the component made of it.
struct Guest {
    package: &'static str,
    /// File that a workflow names.
    component: &'static str,
}

const GUESTS: [Guest; 5] = [
    Guest { package: "maths", component: "math.wasm" },
    Guest { package: "code", component: "code.wasm" },
    Guest { package: "std-chat", component: "std_chat.wasm" },
    Guest { package: "letters", component: "letters.wasm" },
    Guest { package: "visitor", component: "visitor.wasm" },
];

/// Builds all guests into `out_dir`, unless they are there and nothing they are made of
/// has changed.
///
/// # Errors
/// A sentence that says which stage failed and what to do.
pub fn build(workspace_root: &Path, out_dir: &Path) -> Result<(), String> {
    let stamp = out_dir.join(".guests.stamp");
    let key = source_hash(workspace_root)?;
    let complete = GUESTS.iter().all(|guest| out_dir.join(guest.component).is_file());
    if complete && fs::read_to_string(&stamp).is_ok_and(|old| old == key) {
        return Ok(());
    }
    let toolchain = Toolchain::find_or_fetch(workspace_root, &|line| eprintln!("guests: {line}"))?;
    fs::create_dir_all(out_dir).map_err(|e| failed("create", out_dir, &e))?;
    let target_dir = workspace_root.join("target/guests");
    for Guest { package, component } in &GUESTS {
        eprintln!("guests: compiling {package} ({})", toolchain.describe());
        let what = Crate {
            folder: workspace_root,
            package: Some(package),
            profile: "guest",
            target_dir: &target_dir,
        };
        let module = toolchain.compile(&what)?;
        let component = out_dir.join(component);
        let size = pl_toolchain::encode(&module, &component)?;
        eprintln!("guests: {} is ready ({} KiB)", component.display(), size / 1024);
    }
    fs::write(&stamp, key).map_err(|e| failed("write", &stamp, &e))
}

/// The components that lie beside the program; `std` is inside of it.
pub fn shipped(out_dir: &Path) -> impl Iterator<Item = PathBuf> {
    let beside = GUESTS.iter().filter(|guest| guest.package != "std-chat");
    beside.map(|guest| out_dir.join(guest.component))
}

/// Hash over everything that a guest is made of.
fn source_hash(root: &Path) -> Result<String, String> {
    let mut files = vec![root.join("Cargo.toml"), root.join("Cargo.lock")];
    collect(&root.join("wit"), &mut files)?;
    const SOURCES: [&str; 6] = [
        "plugins/sdk/rust",
        "plugins/math",
        "plugins/code",
        "plugins/chat",
        "tests/guests/letters",
        "tests/guests/visitor",
    ];
    for plugin in SOURCES {
        files.push(root.join(plugin).join("Cargo.toml"));
        collect(&root.join(plugin).join("src"), &mut files)?;
    }
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for file in files {
        let bytes = fs::read(&file).map_err(|e| failed("read", &file, &e))?;
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        // Lengths first, so that no two lists of files make one stream of bytes.
        for part in [name.as_bytes(), &bytes] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// All files below `folder`.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(|e| failed("read", folder, &e))? {
        let path = entry.map_err(|e| failed("read", folder, &e))?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn failed(verb: &str, path: &Path, error: &dyn Display) -> String {
    let path = path.display();
    format!("cannot {verb} {path}: {error}")
}
