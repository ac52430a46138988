//! Cargo commands in the workspace.

use std::path::Path;
use std::process::Command;

/// Returns a cargo command in the workspace, with the environment of one started by hand: build scripts that read the
/// variables which `cargo run` sets for this program (ring's does) would rebuild their crates and all dependents.
pub fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root);
    for (name, _) in std::env::vars_os() {
        let set_by_cargo =
            ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.to_string_lossy().starts_with(start));
        if set_by_cargo || name == "CARGO" {
            cargo.env_remove(name);
        }
    }
    cargo
}
