//! The way to the guests' target where rustup's servers cannot be reached: Debian's web toolchain.
//!
//! Debian 12 keeps a recent rustc (`rustc-web`) with the standard library's sources (`rust-web-src`, its
//! dependencies vendored) for building browsers. cargo's `-Zbuild-std` compiles the library for the guests'
//! target from them; the linker is the rust-lld that rustup's own toolchain carries. Where the packages are not
//! installed they can be fetched and unpacked into the cache, which needs apt's lists but no root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::capture;
use crate::{Error, Result, Say, cache};

/// The compiler, its library, the host's standard library (for procedural macros) and the sources.
const PACKAGES: [&str; 4] = ["rustc-web", "libstd-rust-web-dev", "rust-web-src", "libstd-rust-web"];

/// Where a Debian system keeps shared libraries, below the root of an unpacked package.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A Debian compiler with the sources of its standard library.
#[derive(Debug)]
pub struct WebToolchain {
    rustc: PathBuf,
    linker: PathBuf,
    /// Set where the packages are unpacked rather than installed.
    libraries: Option<PathBuf>,
}

impl WebToolchain {
    /// The toolchain on the system or in the cache, if there is one.
    ///
    /// `rustup_library` is `lib/rustlib` of the active rustup toolchain.
    pub(super) fn find(rustup_library: &Path) -> Result<Option<Self>> {
        let Some(linker) = find_linker(rustup_library) else { return Ok(None) };
        let unpacked = unpacked()?;
        Ok(Self::under(Path::new("/"), &linker).or_else(|| Self::under(&unpacked, &linker)))
    }

    /// Fetches the toolchain into the cache.
    pub(super) fn fetch(rustup_library: &Path, say: Say) -> Result<Self> {
        let linker = find_linker(rustup_library)
            .ok_or_else(|| Error::failed(format!("no rust-lld below {}", rustup_library.display())))?;
        let unpacked = unpacked()?;
        cache::folder(&unpacked, |partial| fetch(partial, say))?;
        Self::under(&unpacked, &linker).ok_or_else(|| {
            Error::failed(format!("what was unpacked into {} does not start", unpacked.display()))
        })
    }

    /// The toolchain below `root`, if it is there, has its sources, and starts.
    fn under(root: &Path, linker: &Path) -> Option<Self> {
        let sources = root.join("usr/lib/rustlib/src/rust/library/Cargo.lock");
        let rustc = root.join("usr/bin/rustc");
        if !sources.is_file() || !rustc.is_file() {
            return None;
        }
        let libraries = (root != Path::new("/")).then(|| root.join(LIBRARIES));
        let found = Self { rustc, linker: linker.to_owned(), libraries };
        let mut version = Command::new(&found.rustc);
        found.expose_libraries(&mut version);
        capture(version.arg("--version")).is_ok().then_some(found)
    }

    /// Makes `cargo` build for `target` with this toolchain.
    pub(super) fn configure(&self, cargo: &mut Command, target: &str) {
        self.expose_libraries(cargo);
        let linker = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"));
        cargo.env("RUSTC", &self.rustc).env(linker, &self.linker);
        // build-std is a nightly feature; the sources are this compiler's own, so it is safe to claim it.
        cargo.env("RUSTC_BOOTSTRAP", "1").arg("-Zbuild-std=std,panic_abort");
        // A cache's server was started in another environment: it would run this compiler without its libraries.
        cargo.env_remove("RUSTC_WRAPPER").env_remove("RUSTC_WORKSPACE_WRAPPER");
        cargo.env("CARGO_BUILD_RUSTC_WRAPPER", "");
    }

    fn expose_libraries(&self, command: &mut Command) {
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
    }
}

/// rust-lld stands in the folder of the host's triple.
fn find_linker(rustup_library: &Path) -> Option<PathBuf> {
    let triples = fs::read_dir(rustup_library).ok()?;
    triples
        .filter_map(|entry| entry.ok())
        .map(|triple| triple.path().join("bin/rust-lld"))
        .find(|path| path.is_file())
}

fn unpacked() -> Result<PathBuf> {
    Ok(cache::root()?.join("guest-toolchain"))
}

/// Downloads the packages and what they need beyond a bare system, and unpacks them to `folder`.
fn fetch(folder: &Path, say: Say) -> Result<()> {
    let packages = missing_packages()?;
    say(&format!("fetching {} packages (about 140 MB) from Debian: {}", packages.len(), packages.join(" ")));
    let archives = folder.join("archives");
    fs::create_dir_all(&archives).map_err(Error::io("create", &archives))?;
    capture(Command::new("apt-get").arg("download").args(&packages).current_dir(&archives))
        .map_err(|e| Error::failed(format!("apt-get download failed: {e}")))?;
    for entry in fs::read_dir(&archives).map_err(Error::io("read", &archives))? {
        let archive = entry.map_err(Error::io("read", &archives))?.path();
        capture(Command::new("dpkg").arg("-x").arg(&archive).arg(folder))
            .map_err(|e| Error::failed(format!("cannot unpack {}: {e}", archive.display())))?;
    }
    fs::remove_dir_all(&archives).map_err(Error::io("remove", &archives))
}

/// The toolchain's packages, and of the libraries that they need those that the system lacks.
fn missing_packages() -> Result<Vec<String>> {
    let mut query = Command::new("apt-cache");
    query.args(["depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks"]);
    query.args(["--no-replaces", "--no-enhances"]).args(&PACKAGES[..3]);
    let closure =
        capture(&mut query).map_err(|e| Error::failed(format!("apt-cache knows no rustc-web ({e})")))?;
    let names = closure.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let mut wanted: Vec<String> = names
        .filter(|name| {
            let ours = PACKAGES.iter().any(|package| name.starts_with(package));
            // Of the rest only shared libraries matter: a C compiler is a prerequisite of its own.
            ours || (name.starts_with("lib") && !name.ends_with("-dev") && !installed(name))
        })
        .map(str::to_owned)
        .collect();
    wanted.sort();
    wanted.dedup();
    if wanted.iter().any(|name| name == "rustc-web") {
        Ok(wanted)
    } else {
        Err(Error::failed("apt-cache lists no package rustc-web (refresh its lists with `apt-get update`)"))
    }
}

fn installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat", "${db:Status-Status} ", package]);
    capture(&mut query).is_ok_and(|status| status.split_whitespace().any(|word| word == "installed"))
}
