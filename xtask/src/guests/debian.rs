//! The way to the guests' target where rustup's servers cannot be reached: Debian's web toolchain.
//!
//! Debian 12 keeps a recent rustc (`rustc-web`) with the standard library's sources (`rust-web-src`, its
//! dependencies vendored) for building browsers. cargo's `-Zbuild-std` compiles the library for the guests'
//! target from them; the linker is the rust-lld that rustup's own toolchain carries. Where the packages are not
//! installed they are fetched and unpacked into the cache, which needs apt's lists but no root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{capture, failed};

/// The compiler, its library, the host's standard library (for procedural macros) and the sources.
const PACKAGES: [&str; 4] = ["rustc-web", "libstd-rust-web-dev", "rust-web-src", "libstd-rust-web"];

/// Where a Debian system keeps shared libraries, below the root of an unpacked package.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A Debian compiler with the sources of its standard library.
pub struct WebToolchain {
    rustc: PathBuf,
    linker: PathBuf,
    /// Set where the packages are unpacked rather than installed.
    libraries: Option<PathBuf>,
}

impl WebToolchain {
    /// Finds the toolchain on the system or in the cache, or fetches it into the cache.
    ///
    /// `rustup_library` is `lib/rustlib` of the active rustup toolchain.
    pub fn find(rustup_library: &Path) -> Result<Self, String> {
        let linker = find_linker(rustup_library)?;
        if let Some(found) = Self::under(Path::new("/"), &linker) {
            return Ok(found);
        }
        let unpacked = cache_folder()?.join("guest-toolchain");
        if let Some(found) = Self::under(&unpacked, &linker) {
            return Ok(found);
        }
        fetch(&unpacked)?;
        Self::under(&unpacked, &linker)
            .ok_or_else(|| format!("what was unpacked into {} does not start", unpacked.display()))
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
    pub fn configure(&self, cargo: &mut Command, target: &str) {
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
fn find_linker(rustup_library: &Path) -> Result<PathBuf, String> {
    let triples = fs::read_dir(rustup_library).map_err(|e| failed("read", rustup_library, &e))?;
    triples
        .filter_map(Result::ok)
        .map(|triple| triple.path().join("bin/rust-lld"))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("no rust-lld below {}", rustup_library.display()))
}

/// `PL_HOST_CACHE`, else the user's cache folder.
fn cache_folder() -> Result<PathBuf, String> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    var("PL_HOST_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|cache| cache.join("pl-host")))
        .or_else(|| var("HOME").map(|home| home.join(".cache/pl-host")))
        .ok_or_else(|| "neither PL_HOST_CACHE nor HOME is set, so there is no cache folder".to_owned())
}

/// Downloads the packages and what they need beyond a bare system, and unpacks them to `folder`.
fn fetch(folder: &Path) -> Result<(), String> {
    let packages = missing_packages()?;
    eprintln!(
        "guests: fetching {} packages (about 140 MB) from Debian: {}",
        packages.len(),
        packages.join(" ")
    );
    // Unpacked aside and renamed, so that a broken-off download is never taken for a toolchain.
    let aside = folder.with_extension("part");
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(|e| failed("remove", &aside, &e))?;
    }
    let archives = aside.join("archives");
    fs::create_dir_all(&archives).map_err(|e| failed("create", &archives, &e))?;
    capture(Command::new("apt-get").arg("download").args(&packages).current_dir(&archives))
        .map_err(|e| format!("apt-get download failed: {e}"))?;
    eprintln!("guests: unpacking to {}", folder.display());
    for entry in fs::read_dir(&archives).map_err(|e| failed("read", &archives, &e))? {
        let archive = entry.map_err(|e| failed("read", &archives, &e))?.path();
        capture(Command::new("dpkg").arg("-x").arg(&archive).arg(&aside))
            .map_err(|e| format!("cannot unpack {}: {e}", archive.display()))?;
    }
    fs::remove_dir_all(&archives).map_err(|e| failed("remove", &archives, &e))?;
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|e| failed("remove", folder, &e))?;
    }
    fs::rename(&aside, folder).map_err(|e| failed("write", folder, &e))
}

/// The toolchain's packages, and of the libraries that they need those that the system lacks.
fn missing_packages() -> Result<Vec<String>, String> {
    let mut query = Command::new("apt-cache");
    query.args(["depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks"]);
    query.args(["--no-replaces", "--no-enhances"]).args(&PACKAGES[..3]);
    let closure = capture(&mut query).map_err(|e| format!("apt-cache knows no rustc-web ({e})"))?;
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
        Err("apt-cache lists no package rustc-web (refresh its lists with `apt-get update`)".to_owned())
    }
}

fn installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat", "${db:Status-Status} ", package]);
    capture(&mut query).is_ok_and(|status| status.split_whitespace().any(|word| word == "installed"))
}
