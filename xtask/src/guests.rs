//! Builds the guests: the plugins that are written in Rust, from source to WebAssembly components.
//!
//! Each guest crate is compiled to a core module for `wasm32-unknown-unknown` and wrapped into a component by
//! wit-component, which also validates it. No WASI is involved. The only thing that a machine may lack is the
//! target's standard library, so three ways to it are tried: it is installed, rustup can add it, or Debian's
//! web toolchain builds it from source. Nothing is done at all while a hash over the sources is unchanged.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use wit_component::ComponentEncoder;

mod debian;

/// The target of every guest: no operating system, nothing imported but the contract.
const TARGET: &str = "wasm32-unknown-unknown";

/// rustup answers within seconds where it can answer at all; behind a wall that drops packets it would hang.
const RUSTUP_TIMEOUT: Duration = Duration::from_secs(180);

/// A guest crate and the component made of it.
struct Guest {
    package: &'static str,
    /// File that cargo writes.
    module: &'static str,
    /// File that a workflow names.
    component: &'static str,
}

const GUESTS: [Guest; 4] = [
    Guest { package: "maths", module: "maths.wasm", component: "math.wasm" },
    Guest { package: "code", module: "code.wasm", component: "code.wasm" },
    Guest { package: "std-chat", module: "std_chat.wasm", component: "std_chat.wasm" },
    Guest { package: "letters", module: "letters.wasm", component: "letters.wasm" },
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
    let toolchain = Toolchain::find()?;
    fs::create_dir_all(out_dir).map_err(|e| failed("create", out_dir, &e))?;
    let target_dir = workspace_root.join("target/guests");
    for guest in &GUESTS {
        eprintln!("guests: compiling {} ({})", guest.package, toolchain.describe());
        compile(workspace_root, &target_dir, &toolchain, guest)?;
        let module = target_dir.join(TARGET).join("guest").join(guest.module);
        let component = out_dir.join(guest.component);
        let size = componentise(&module, &component)?;
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
    for plugin in ["plugins/sdk/rust", "plugins/math", "plugins/code", "plugins/chat", "tests/guests/letters"]
    {
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

/// Where the target's standard library comes from.
enum Toolchain {
    /// It stands in rustup's sysroot.
    Installed,
    /// Debian's compiler builds it from Debian's sources.
    FromSource(debian::WebToolchain),
}

impl Toolchain {
    fn find() -> Result<Self, String> {
        let sysroot = capture(Command::new(sibling("rustc")).args(["--print", "sysroot"]))
            .map_err(|e| format!("rustc does not start ({e}): install Rust from https://rustup.rs"))?;
        let library = Path::new(sysroot.trim()).join("lib/rustlib");
        if has_target(&library) {
            return Ok(Self::Installed);
        }
        eprintln!("guests: asking rustup for {TARGET}");
        let refusal = match run_for(Command::new("rustup").args(["target", "add", TARGET]), RUSTUP_TIMEOUT) {
            Ok(()) if has_target(&library) => return Ok(Self::Installed),
            Ok(()) => format!("it has nothing in {} afterwards", library.display()),
            Err(e) => e,
        };
        eprintln!("guests: rustup could not add {TARGET} ({refusal}); looking for Debian's web toolchain");
        match debian::WebToolchain::find(&library) {
            Ok(found) => Ok(Self::FromSource(found)),
            Err(e) => Err(format!(
                "the plugins need Rust's {TARGET} target, and no way to it worked.\n  rustup target add {TARGET}: \
                 {refusal}\n  Debian's web toolchain: {e}\nhint: where rustup's servers can be reached, run `rustup \
                 target add {TARGET}`; on Debian 12, `apt-get install rustc-web rust-web-src`; then start again"
            )),
        }
    }

    fn describe(&self) -> &'static str {
        match self {
            Self::Installed => "rustup's target",
            Self::FromSource(_) => "with Debian's web toolchain, standard library included",
        }
    }
}

fn has_target(library: &Path) -> bool {
    library.join(TARGET).join("lib").is_dir()
}

fn compile(root: &Path, target_dir: &Path, toolchain: &Toolchain, guest: &Guest) -> Result<(), String> {
    let mut cargo = Command::new(sibling("cargo"));
    cargo.current_dir(root);
    // Flags for the host's programs are not for the guests.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS"] {
        cargo.env_remove(name);
    }
    // One crate type: link-time optimisation is refused to a crate that is an rlib too.
    cargo.args(["rustc", "--quiet", "--lib", "--crate-type", "cdylib", "--profile", "guest"]);
    cargo.args(["--package", guest.package, "--target", TARGET, "--target-dir"]).arg(target_dir);
    if let Toolchain::FromSource(web) = toolchain {
        web.configure(&mut cargo, TARGET);
    }
    let status = cargo.stdin(Stdio::null()).status().map_err(|e| format!("cargo does not start: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!(
            "compiling the plugin {} failed ({status}); the compiler's messages are above",
            guest.package
        ))
    }
}

/// Wraps the core module into a component. Gives back its size in bytes.
fn componentise(module: &Path, component: &Path) -> Result<usize, String> {
    let bytes = fs::read(module).map_err(|e| failed("read", module, &e))?;
    let encoded = ComponentEncoder::default()
        .validate(true)
        .module(&bytes)
        .and_then(|encoder| encoder.encode())
        .map_err(|e| format!("{} does not make a component: {e:#}", module.display()))?;
    // Written aside and renamed: whoever starts meanwhile never reads half a component.
    let aside = component.with_extension("wasm.part");
    fs::write(&aside, &encoded).map_err(|e| failed("write", &aside, &e))?;
    fs::rename(&aside, component).map_err(|e| failed("write", component, &e))?;
    Ok(encoded.len())
}

/// The program beside the cargo that runs this task, so that both belong to one toolchain.
fn sibling(name: &str) -> PathBuf {
    std::env::var_os("CARGO")
        .map(|cargo| PathBuf::from(cargo).with_file_name(name))
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(name))
}

/// Runs a command and gives back what it prints.
fn capture(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(last_line(&output.stderr).unwrap_or_else(|| output.status.to_string()))
    }
}

/// Runs a command, its output hidden, and ends it when it takes too long.
fn run_for(command: &mut Command, limit: Duration) -> Result<(), String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    let start = Instant::now();
    loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(status.to_string()),
            None if start.elapsed() > limit => {
                child.kill().and_then(|()| child.wait()).map_err(|e| e.to_string())?;
                return Err(format!("no answer within {} s", limit.as_secs()));
            }
            None => thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn last_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
}

fn failed(verb: &str, path: &Path, error: &dyn Display) -> String {
    let path = path.display();
    format!("cannot {verb} {path}: {error}")
}
