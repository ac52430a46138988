//! Debian's web toolchain, which can build for the guests' target if rustup's servers can't be reached.
//!
//! Debian 12 has a recent rustc (`rustc-web`) with the sources of the standard library (`rust-web-src`, with
//! vendored dependencies) for building browsers. cargo's `-Zbuild-std` compiles the library for the guests'
//! target from them. The linker is the rust-lld of rustup's toolchain. If the packages are not installed,
//! they can be downloaded and unpacked into the cache, which needs apt's lists but no root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache;
use crate::error::{Error, Result};
use crate::process::{ProgressFn, capture, capture_on_path};

/// The compiler, its library, the host's standard library (for procedural macros) and the sources.
const PACKAGES: [&str; 4] = ["rustc-web", "libstd-rust-web-dev", "rust-web-src", "libstd-rust-web"];

/// Folder of shared libraries, relative to the root of an unpacked package.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A Debian compiler with the sources of its standard library.
#[derive(Debug)]
pub struct WebToolchain {
    rustc: PathBuf,
    linker: PathBuf,
    /// Folder of its shared libraries if the packages are unpacked rather than installed.
    libraries: Option<PathBuf>,
}

impl WebToolchain {
    /// Looks the toolchain up on the system and in the cache.
    ///
    /// `rustup_library` is `lib/rustlib` of the active rustup toolchain.
    pub(super) fn find(rustup_library: &Path) -> Result<Option<Self>> {
        let Some(linker) = find_linker(rustup_library) else { return Ok(None) };
        let unpacked = cache_folder()?;
        Ok(Self::below(Path::new("/"), &linker).or_else(|| Self::below(&unpacked, &linker)))
    }

    /// Installs the toolchain into the cache.
    pub(super) fn fetch(rustup_library: &Path, progress: ProgressFn) -> Result<Self> {
        let linker = find_linker(rustup_library)
            .ok_or_else(|| Error::failed(format!("no rust-lld below {}", rustup_library.display())))?;
        let unpacked = cache_folder()?;
        cache::folder(&unpacked, |partial| download(partial, progress))?;
        Self::below(&unpacked, &linker).ok_or_else(|| {
            Error::failed(format!("the rustc that was unpacked into {} does not start", unpacked.display()))
        })
    }

    /// Returns the toolchain below `root`. Returns `None` if it or its sources are missing, or if it does not
    /// start.
    fn below(root: &Path, linker: &Path) -> Option<Self> {
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

    /// Configures `cargo` to build for `target` with this toolchain.
    pub(super) fn configure(&self, cargo: &mut Command, target: &str) {
        self.expose_libraries(cargo);
        let linker = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"));
        cargo.env("RUSTC", &self.rustc).env(linker, &self.linker);
        // build-std is a nightly feature. It is safe here, because the sources have the compiler's version.
        cargo.env("RUSTC_BOOTSTRAP", "1").arg("-Zbuild-std=std,panic_abort");
        // The server of a compiler cache has another environment: it would run this compiler without its
        // libraries.
        cargo.env_remove("RUSTC_WRAPPER").env_remove("RUSTC_WORKSPACE_WRAPPER");
        cargo.env("CARGO_BUILD_RUSTC_WRAPPER", "");
    }

    fn expose_libraries(&self, command: &mut Command) {
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
    }
}

/// Returns rust-lld, which is in the folder of the host's triple.
fn find_linker(rustup_library: &Path) -> Option<PathBuf> {
    let triples = fs::read_dir(rustup_library).ok()?;
    triples
        .filter_map(|entry| entry.ok())
        .map(|triple| triple.path().join("bin/rust-lld"))
        .find(|path| path.is_file())
}

fn cache_folder() -> Result<PathBuf> {
    Ok(cache::root()?.join("guest-toolchain"))
}

/// Downloads the packages and their missing dependencies, and unpacks them into `folder`.
fn download(folder: &Path, progress: ProgressFn) -> Result<()> {
    let packages = missing_packages()?;
    progress(&format!(
        "fetching {} packages (about 140 MB) from Debian: {}",
        packages.len(),
        packages.join(" ")
    ));
    let archives = folder.join("archives");
    fs::create_dir_all(&archives).map_err(Error::io("create", &archives))?;
    capture_on_path("apt-get", |apt| apt.arg("download").args(&packages).current_dir(&archives))
        .map_err(|e| Error::failed(format!("apt-get download failed: {e}")))?;
    for entry in fs::read_dir(&archives).map_err(Error::io("read", &archives))? {
        let archive = entry.map_err(Error::io("read", &archives))?.path();
        capture_on_path("dpkg", |dpkg| dpkg.arg("-x").arg(&archive).arg(folder))
            .map_err(|e| Error::failed(format!("cannot unpack {}: {e}", archive.display())))?;
    }
    fs::remove_dir_all(&archives).map_err(Error::io("remove", &archives))
}

/// Returns the toolchain's packages and those of its shared libraries that the system lacks.
fn missing_packages() -> Result<Vec<String>> {
    let closure = capture_on_path("apt-cache", |query| {
        let hard = ["--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks"];
        query.args(["depends", "--recurse"]).args(hard).args(["--no-replaces", "--no-enhances"]);
        query.args(&PACKAGES[..3])
    })
    .map_err(|e| Error::failed(format!("apt-cache does not know rustc-web ({e})")))?;
    let names = closure.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let mut wanted: Vec<String> = names
        .filter(|name| {
            let own = PACKAGES.iter().any(|package| name.starts_with(package));
            // Of the dependencies only shared libraries matter: a C compiler is a prerequisite anyway.
            own || (name.starts_with("lib") && !name.ends_with("-dev") && !is_installed(name))
        })
        .map(str::to_owned)
        .collect();
    wanted.sort();
    wanted.dedup();
    if wanted.iter().any(|name| name == "rustc-web") {
        Ok(wanted)
    } else {
        Err(Error::failed("apt-cache does not list rustc-web (refresh its lists with `apt-get update`)"))
    }
}

fn is_installed(package: &str) -> bool {
    let arguments = ["--show", "--showformat", "${db:Status-Status} ", package];
    let shown = capture_on_path("dpkg-query", |query| query.args(arguments));
    shown.is_ok_and(|status| status.split_whitespace().any(|word| word == "installed"))
}
