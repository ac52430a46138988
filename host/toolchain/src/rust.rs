//! Rust: a crate is compiled to a core module for `wasm32-unknown-unknown` and wrapped into a component. No WASI is
//! involved.
//!
//! The only thing that a machine may lack is the target's standard library. There are two ways to it: rustup's, and
//! Debian's web toolchain, which builds it from source where rustup's servers can't be reached.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::process::{capture, run_for};
use crate::{Error, Result, Say};

mod debian;

/// The target of every guest: no operating system, nothing imported but the contract.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// rustup answers within seconds where it can answer at all; behind a wall that drops packets it would hang.
const RUSTUP_TIMEOUT: Duration = Duration::from_secs(180);

/// What is to be compiled.
#[derive(Debug, Clone, Copy)]
pub struct Crate<'a> {
    /// A folder of the workspace.
    pub folder: &'a Path,
    /// A package of it; the folder's own by default.
    pub package: Option<&'a str>,
    /// `dev`, `release` or one of the workspace's own profiles.
    pub profile: &'a str,
    /// Where cargo keeps what it makes.
    pub target_dir: &'a Path,
}

/// Where the target's standard library comes from.
#[derive(Debug)]
pub enum Toolchain {
    /// It stands in rustup's sysroot.
    Installed,
    /// Debian's compiler builds it from Debian's sources.
    FromSource(debian::WebToolchain),
}

impl Toolchain {
    /// Looks for the toolchain that builds in `folder` (which may ask for a release of its own).
    ///
    /// # Errors
    /// When there is none, with what to install.
    pub fn find(folder: &Path) -> Result<Self> {
        let library = library(folder)?;
        if has_target(&library) {
            return Ok(Self::Installed);
        }
        debian::WebToolchain::find(&library)?.map(Self::FromSource).ok_or_else(|| Error::NoTool {
            missing: format!("Rust's target {TARGET} is not installed: {} has no such folder", library.display()),
            ways: vec![
                format!("`rustup target add {TARGET}`"),
                "on Debian 12, where rustup's servers can't be reached: `apt-get install rustc-web rust-web-src`".to_owned(),
                "`pl-host plugin build --fetch` tries the first, and then fetches the second into the cache folder".to_owned(),
            ],
        })
    }

    /// [`Self::find`], and where there is none, asks rustup and then Debian for one.
    ///
    /// # Errors
    /// When neither has one, with what they said.
    pub fn find_or_fetch(folder: &Path, say: Say) -> Result<Self> {
        match Self::find(folder) {
            Err(Error::NoTool { .. }) => {}
            found => return found,
        }
        let library = library(folder)?;
        say(&format!("asking rustup for {TARGET}"));
        let mut rustup = Command::new("rustup");
        rustup.args(["target", "add", TARGET]).current_dir(folder);
        let refusal = match run_for(&mut rustup, RUSTUP_TIMEOUT) {
            Ok(()) if has_target(&library) => return Ok(Self::Installed),
            Ok(()) => format!("it has nothing in {} afterwards", library.display()),
            Err(e) => e,
        };
        say(&format!("rustup could not add {TARGET} ({refusal}); asking Debian for its web toolchain"));
        debian::WebToolchain::fetch(&library, say).map(Self::FromSource).map_err(|e| Error::NoTool {
            missing: format!(
                "Rust's target {TARGET} is not installed, and no way to it worked.\n  rustup target add {TARGET}: \
                 {refusal}\n  Debian's web toolchain: {e}"
            ),
            ways: vec![
                format!("where rustup's servers can be reached: `rustup target add {TARGET}`"),
                "on Debian 12: `apt-get install rustc-web rust-web-src`".to_owned(),
            ],
        })
    }

    /// What it is, for people.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match self {
            Self::Installed => "rustup's target",
            Self::FromSource(_) => "Debian's web toolchain, standard library included",
        }
    }

    /// Compiles a crate to a core module and gives back its file. The compiler's messages go to standard error.
    ///
    /// # Errors
    /// When cargo does not start, the sources don't compile or are no plugin.
    pub fn compile(&self, what: &Crate) -> Result<PathBuf> {
        let mut cargo = Command::new(sibling("cargo"));
        cargo.current_dir(what.folder);
        // Flags for programs of this machine are not for guests.
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS"] {
            cargo.env_remove(name);
        }
        cargo.env("CARGO_ENCODED_RUSTFLAGS", same_paths(what.folder));
        // One crate type: link-time optimisation is refused to a crate that is an rlib too.
        cargo.args(["rustc", "--quiet", "--lib", "--crate-type", "cdylib", "--profile", what.profile]);
        cargo.args(["--target", TARGET, "--message-format", "json-render-diagnostics", "--target-dir"]);
        cargo.arg(what.target_dir);
        if let Some(package) = what.package {
            cargo.args(["--package", package]);
        }
        if let Self::FromSource(web) = self {
            web.configure(&mut cargo, TARGET);
        }
        let output = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(|e| {
            Error::failed(format!("cargo does not start ({e}): install Rust from https://rustup.rs"))
        })?;
        let name = what.package.map_or_else(|| what.folder.display().to_string(), str::to_owned);
        if !output.status.success() {
            return Err(Error::failed(format!("{name} does not compile; the compiler's messages are above")));
        }
        module(&output.stdout).ok_or_else(|| {
            Error::failed(format!(
                "{name} makes no {TARGET} module: its Cargo.toml needs `[lib] crate-type = [\"cdylib\"]`"
            ))
        })
    }
}

/// Flags under which a component says the same paths, and so has the same hash, wherever it is built: sources of the
/// project are relative, those of its dependencies stand below `/cargo`.
fn same_paths(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let flags = home.iter().map(|home| remap(home, "/cargo")).chain([remap(&folder, ".")]);
    // What cargo splits the variable at.
    flags.collect::<Vec<_>>().join("\x1f")
}

/// The module among the files that cargo says it made; the crate itself is the last.
fn module(messages: &[u8]) -> Option<PathBuf> {
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

/// `lib/rustlib` of the toolchain that builds in `folder`.
fn library(folder: &Path) -> Result<PathBuf> {
    let mut rustc = Command::new(sibling("rustc"));
    let sysroot =
        capture(rustc.args(["--print", "sysroot"]).current_dir(folder)).map_err(|e| Error::NoTool {
            missing: format!("Rust is needed to build Rust plugins, and rustc does not start: {e}"),
            ways: vec![format!("install Rust from https://rustup.rs, then `rustup target add {TARGET}`")],
        })?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib"))
}

fn has_target(library: &Path) -> bool {
    library.join(TARGET).join("lib").is_dir()
}

/// The program beside the cargo that runs this one, if any, so that both belong to one toolchain.
fn sibling(name: &str) -> PathBuf {
    std::env::var_os("CARGO")
        .map(|cargo| PathBuf::from(cargo).with_file_name(name))
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_the_last_that_cargo_made() {
        let messages = br#"{"reason":"compiler-artifact","filenames":["/t/libserde.rlib"]}
{"reason":"compiler-artifact","filenames":["/t/first.wasm"]}
{"reason":"compiler-artifact","filenames":["/t/guess.d","/t/guess.wasm"]}
{"reason":"build-finished","success":true}
"#;
        assert_eq!(module(messages), Some(PathBuf::from("/t/guess.wasm")));
        assert_eq!(module(b"no json"), None);
    }
}
