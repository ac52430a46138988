//! Rust: a crate is compiled to a core module for `wasm32-unknown-unknown` and wrapped into a component. No
//! WASI is involved.
//!
//! The target's standard library comes from rustup, or, if rustup's servers can't be reached, from Debian's
//! web toolchain, which builds it from source.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::process::{ProgressFn, ToolError, capture, command_on_path, run_for};

mod debian;

/// Target of every guest: no operating system, no imports except the contract.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// rustup answers within seconds. Behind a firewall that drops packets it would hang.
const RUSTUP_TIMEOUT: Duration = Duration::from_secs(180);

/// A crate to compile.
#[derive(Debug, Clone, Copy)]
pub struct Crate<'a> {
    /// Folder of the workspace.
    pub folder: &'a Path,
    /// Package of the workspace. The default is that of the folder.
    pub package: Option<&'a str>,
    /// `dev`, `release` or a profile of the workspace.
    pub profile: &'a str,
    /// Cargo's target folder.
    pub target_dir: &'a Path,
}

/// Source of the target's standard library.
#[derive(Debug)]
pub enum Toolchain {
    /// It is installed in rustup's sysroot.
    Installed,
    /// Debian's compiler builds it from Debian's sources.
    FromSource(debian::WebToolchain),
}

impl Toolchain {
    /// Looks up the toolchain for `folder`, which may have its own `rust-toolchain.toml`.
    ///
    /// # Errors
    /// [`Error::NoTool`] with the commands that install it.
    pub fn find(folder: &Path) -> Result<Self> {
        let library = library(folder)?;
        if has_target(&library) {
            return Ok(Self::Installed);
        }
        debian::WebToolchain::find(&library)?.map(Self::FromSource).ok_or_else(|| Error::NoTool {
            missing: format!("Rust's target {TARGET} is not installed: {} has no such folder", library.display()),
            ways: vec![
                format!("`rustup target add {TARGET}`"),
                "on Debian 12, if rustup's servers can't be reached: `apt-get install rustc-web rust-web-src`".to_owned(),
                "`pl-host plugin build --fetch` tries the first way, then installs the second into the cache folder".to_owned(),
            ],
        })
    }

    /// Looks up the toolchain like [`Self::find`]. If it is missing, installs it with rustup or else from
    /// Debian.
    ///
    /// # Errors
    /// [`Error::NoTool`] with the reasons why neither worked.
    pub fn find_or_fetch(folder: &Path, progress: ProgressFn) -> Result<Self> {
        match Self::find(folder) {
            Err(Error::NoTool { .. }) => {}
            found => return found,
        }
        let library = library(folder)?;
        progress(&format!("installing {TARGET} with rustup"));
        let added = command_on_path("rustup").map_err(ToolError::from).and_then(|mut rustup| {
            run_for(rustup.args(["target", "add", TARGET]).current_dir(folder), RUSTUP_TIMEOUT)
        });
        let refusal = match added {
            Ok(()) if has_target(&library) => return Ok(Self::Installed),
            Ok(()) => format!("it has installed nothing in {}", library.display()),
            Err(e) => e.to_string(),
        };
        progress(&format!("rustup could not add {TARGET} ({refusal}); trying Debian's web toolchain"));
        debian::WebToolchain::fetch(&library, progress).map(Self::FromSource).map_err(|e| Error::NoTool {
            missing: format!(
                "Rust's target {TARGET} is not installed, and both ways to install it failed.\n  rustup target add {TARGET}: \
                 {refusal}\n  Debian's web toolchain: {e}"
            ),
            ways: vec![
                format!("if rustup's servers can be reached: `rustup target add {TARGET}`"),
                "on Debian 12: `apt-get install rustc-web rust-web-src`".to_owned(),
            ],
        })
    }

    /// Returns its description for display.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match self {
            Self::Installed => "rustup's target",
            Self::FromSource(_) => "Debian's web toolchain, standard library included",
        }
    }

    /// Compiles a crate to a core module and returns its file. The compiler's messages go to stderr.
    ///
    /// # Errors
    /// [`Error::Failed`] if cargo does not start, or if the sources don't compile or are not a plugin.
    pub fn compile(&self, guest: &Crate) -> Result<PathBuf> {
        let no_cargo = |e: std::io::Error| {
            Error::failed(format!("cargo does not start ({e}): install Rust from https://rustup.rs"))
        };
        let mut cargo = toolchain_command("cargo").map_err(no_cargo)?;
        cargo.current_dir(guest.folder);
        // These flags are meant for programs of this machine.
        for name in [
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_BUILD_TARGET",
            "CARGO_BUILD_RUSTFLAGS",
            "RUSTC_WORKSPACE_WRAPPER",
            "CARGO_RESOLVER_FEATURE_UNIFICATION",
        ] {
            cargo.env_remove(name);
        }
        cargo.env("CARGO_ENCODED_RUSTFLAGS", remap_paths(guest.folder));
        // Only one crate type: rustc refuses link-time optimisation for a crate that is also an rlib.
        cargo.args(["rustc", "--quiet", "--lib", "--crate-type", "cdylib", "--profile", guest.profile]);
        cargo.args(["--target", TARGET, "--message-format", "json-render-diagnostics", "--target-dir"]);
        cargo.arg(guest.target_dir);
        if let Some(package) = guest.package {
            cargo.args(["--package", package]);
        }
        if let Self::FromSource(web) = self {
            web.configure(&mut cargo, TARGET);
        }
        let output = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(no_cargo)?;
        let name = guest.package.map_or_else(|| guest.folder.display().to_string(), str::to_owned);
        if !output.status.success() {
            return Err(Error::failed(format!("{name} does not compile; the compiler's messages are above")));
        }
        module_file(&output.stdout).ok_or_else(|| {
            Error::failed(format!(
                "{name} makes no {TARGET} module: its Cargo.toml needs `[lib] crate-type = [\"cdylib\"]`"
            ))
        })
    }
}

/// Returns compiler flags that make paths in a component, and so its hash, independent of the machine:
/// sources of the project become relative, those of dependencies are below `/cargo`.
fn remap_paths(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let flags = home.iter().map(|home| remap(home, "/cargo")).chain([remap(&folder, ".")]);
    // The separator in this variable.
    flags.collect::<Vec<_>>().join("\x1f")
}

/// Returns the module among the files in cargo's messages. The crate itself comes last.
fn module_file(messages: &[u8]) -> Option<PathBuf> {
    let lines = messages.split(|byte| *byte == b'\n').rev();
    let artifacts = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let files = artifacts.filter_map(|message| match message.get("filenames") {
        Some(Value::Array(files)) => {
            files.iter().filter_map(Value::as_str).find(|file| file.ends_with(".wasm")).map(PathBuf::from)
        }
        _ => None,
    });
    files.into_iter().next()
}

/// Returns `lib/rustlib` of the toolchain for `folder`.
fn library(folder: &Path) -> Result<PathBuf> {
    let sysroot = toolchain_command("rustc")
        .map_err(ToolError::from)
        .and_then(|mut rustc| capture(rustc.args(["--print", "sysroot"]).current_dir(folder)))
        .map_err(|e| Error::NoTool {
            missing: format!("rustc, which builds Rust plugins, does not start: {e}"),
            ways: vec![format!("install Rust from https://rustup.rs, then `rustup target add {TARGET}`")],
        })?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib"))
}

fn has_target(library: &Path) -> bool {
    library.join(TARGET).join("lib").is_dir()
}

/// Returns a command of the program next to the cargo that runs this one, if any, so that both belong to one toolchain.
fn toolchain_command(name: &str) -> std::io::Result<Command> {
    let beside = std::env::var_os("CARGO").map(|cargo| PathBuf::from(cargo).with_file_name(name));
    match beside.filter(|path| path.is_file()) {
        Some(program) => Ok(Command::new(program)),
        None => command_on_path(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_the_last_one_in_the_messages() {
        let messages = br#"{"reason":"compiler-artifact","filenames":["/t/libserde.rlib"]}
{"reason":"compiler-artifact","filenames":["/t/first.wasm"]}
{"reason":"compiler-artifact","filenames":["/t/guess.d","/t/guess.wasm"]}
{"reason":"build-finished","success":true}
"#;
        assert_eq!(module_file(messages), Some(PathBuf::from("/t/guess.wasm")));
        assert_eq!(module_file(b"no json"), None);
    }
}
