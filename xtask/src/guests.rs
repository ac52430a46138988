//! Builds the guests: the plugins of this workspace, from source to WebAssembly components.
//!
//! `pl-toolchain` does the work, as for any plugin, and fetches a missing target. Nothing is built while the hash of the
//! sources is unchanged.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pl_toolchain::rust::{Crate, Toolchain};

/// A guest crate and its component.
struct Guest {
    package: &'static str,
    /// File name of the component, as workflows refer to it.
    component: &'static str,
}

const GUESTS: [Guest; 7] = [
    Guest { package: "maths", component: "math.wasm" },
    Guest { package: "code", component: "code.wasm" },
    Guest { package: "planning", component: "planning.wasm" },
    Guest { package: "search", component: "search.wasm" },
    Guest { package: "std-chat", component: "std_chat.wasm" },
    Guest { package: "letters", component: "letters.wasm" },
    Guest { package: "visitor", component: "visitor.wasm" },
];

/// Components that only tests use.
const TEST_GUESTS: [&str; 2] = ["letters.wasm", "visitor.wasm"];

/// Builds all guests into `out_dir`, unless they exist and their sources are unchanged.
///
/// # Errors
/// Returns a message that names the failed stage and what to do.
pub fn build(workspace_root: &Path, out_dir: &Path) -> Result<()> {
    let stamp = out_dir.join(".guests.stamp");
    let key = source_hash(workspace_root)?;
    let complete = GUESTS.iter().all(|guest| out_dir.join(guest.component).is_file());
    if complete && fs::read_to_string(&stamp).is_ok_and(|old| old == key) {
        return Ok(());
    }
    let toolchain = Toolchain::find_or_fetch(workspace_root, &|line| eprintln!("guests: {line}"))?;
    fs::create_dir_all(out_dir).with_context(|| format!("cannot create {}", out_dir.display()))?;
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
    fs::write(&stamp, key).with_context(|| format!("cannot write {}", stamp.display()))
}

/// Paths of the components that ship beside the program; `std` is embedded in it.
pub fn shipped(out_dir: &Path) -> impl Iterator<Item = PathBuf> {
    let separate = GUESTS.iter().filter(|guest| guest.package != "std-chat");
    separate.map(|guest| out_dir.join(guest.component))
}

/// Paths of the components that a package has beside the program: those that are not for tests.
pub fn published(out_dir: &Path) -> impl Iterator<Item = PathBuf> {
    shipped(out_dir).filter(|path| TEST_GUESTS.iter().all(|guest| !path.ends_with(guest)))
}

/// Hashes all sources of all guests.
fn source_hash(root: &Path) -> Result<String> {
    let mut files = vec![root.join("Cargo.toml"), root.join("Cargo.lock")];
    collect(&root.join("wit"), &mut files)?;
    const SOURCES: [&str; 8] = [
        "plugins/sdk/rust",
        "plugins/math",
        "plugins/code",
        "plugins/planning",
        "plugins/search",
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
        let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        // Length prefixes, so that two different lists of files never hash the same bytes.
        for part in [name.as_bytes(), &bytes] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Appends all files below `folder`.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
