//! `cargo xtask gpu-kit`: everything that a bare machine with a GPU needs to test and measure the program, in parts that are
//! small enough to be carried there one by one.
//!
//! ```text
//! target/gpu-kit/part-000 …     of a tar.gz, at most 60 MiB each: cat part-* | tar -xz && python3 gpu-kit/kit.py
//!   gpu-kit/kit.py, …           bench/gpu: the stages and their report
//!   gpu-kit/pl_host/bin/…       the program, stripped, and its plugins
//!   gpu-kit/tests.tar.zst       tests of the crates that compute on the device, for gpu-kit/bin/cargo-nextest
//!   gpu-kit/source/…            what these tests read
//!   gpu-kit/benches/…           benchmarks
//!   gpu-kit/sanitizer/…         compute-sanitizer
//!   gpu-kit/cache/models/…      SmolLM2
//!   gpu-kit/examples, peers, tiny
//! ```
//!
//! `--dry-run` unpacks the parts and runs the kit on the CPU of this machine.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use pl_toolchain::{cache, command_on_path};
use serde_json::{Value, json};

use crate::cargo::cargo;
use crate::cuda;
use crate::dist::{self, Member, VERSION};
use crate::setup;

/// Largest size of a part.
const PART: usize = 60 << 20;

/// Crates with tests that compute on the device, and nextest's filters for their binaries. The kit runs all tests of the kernels,
/// and those of the attention.
const TESTED: [(&str, &str); 3] = [
    ("pl-kernels", "package(pl-kernels)"),
    ("pl-model", "(package(pl-model) & kind(lib))"),
    ("pl-inference", "(package(pl-inference) & kind(lib))"),
];

/// Benchmarks.
const BENCHES: [&str; 3] = ["cuda", "decode", "update"];

/// Command line of `gpu-kit`.
struct Options {
    dry_run: bool,
    /// Arguments of the kit's script in a dry run.
    script: Vec<String>,
}

/// Sets up, then writes the kit to `target/gpu-kit`, and tries it out if that is asked for.
pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let options = match arguments.split_first() {
        None => Options { dry_run: false, script: Vec::new() },
        Some((flag, script)) if flag == "--dry-run" => Options { dry_run: true, script: script.to_vec() },
        Some((other, _)) => bail!("unknown option {other}; there is --dry-run [OPTIONS OF kit.py]"),
    };
    let program = setup::all(root)?;
    let into = root.join("target/gpu-kit");
    let mut more = benches(root)?;
    more.extend(sanitizer()?);
    let parts = write(&members(root, &program, more)?, &into)?;
    for part in &parts {
        println!("{} ({:.1} MB)", part.display(), part.metadata()?.len() as f64 / 1e6);
    }
    println!("on the other machine: cat part-* | tar -xz && python3 gpu-kit/kit.py --seconds 540");
    if options.dry_run {
        let folder = tempfile::tempdir()?;
        dry_run(root, &parts, folder.path(), &into.join("report"), &options.script)?;
    }
    Ok(())
}

/// Returns the files of the kit, with `more` that it can do without.
fn members(root: &Path, program: &Path, more: Vec<Member>) -> Result<Vec<Member>> {
    let made = tempfile::tempdir().context("cannot make a temporary folder")?;
    let mut members = dist::package(root, program)?;
    members.extend(scripts(root)?);
    members.push(tests(root, made.path())?);
    members.push(Member { executable: true, ..Member::read("bin/cargo-nextest", &nextest(root)?)? });
    members.extend(more);
    members.push(model()?);
    let manifest =
        json!({ "version": VERSION, "commit": commit(root), "built_for": "libtorch 2.11, x86-64 Linux" });
    members.push(Member::new("manifest.json", format!("{manifest:#}\n")));
    members.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(members)
}

/// Writes the parts of the kit into a folder, in place of those of an earlier one, and returns their paths.
fn write(members: &[Member], into: &Path) -> Result<Vec<PathBuf>> {
    if into.is_dir() {
        fs::remove_dir_all(into).with_context(|| format!("cannot empty {}", into.display()))?;
    }
    fs::create_dir_all(into).with_context(|| format!("cannot write {}", into.display()))?;
    let mut archive = tar::Builder::new(GzEncoder::new(Parts::new(into), Compression::fast()));
    dist::append(&mut archive, "gpu-kit", members).context("cannot write the kit")?;
    let parts = archive.into_inner().and_then(GzEncoder::finish).context("cannot write the kit")?;
    Ok(parts.paths)
}

/// Returns the kit's scripts, the peers', the examples, and the tiny model, of the tests and for the tokenizers of random ones.
fn scripts(root: &Path) -> Result<Vec<Member>> {
    let folders = [
        ("bench/gpu", ""),
        ("bench/peers", "peers/"),
        ("tests/data/tiny", "tiny/"),
        ("tests/data/tiny", "source/tests/data/tiny/"),
        ("examples", "examples/"),
    ];
    let mut members = Vec::new();
    for (folder, place) in folders {
        for path in files_of(&root.join(folder))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            members.push(Member::read(format!("{place}{name}"), &path)?);
        }
    }
    // nextest looks for the workspace's manifest, and starts tests in the folders of their crates.
    members.push(Member::read("source/Cargo.toml", &root.join("Cargo.toml"))?);
    for (name, _) in TESTED {
        let folder = format!("host/{}", name.trim_start_matches("pl-"));
        members.push(Member::read(
            format!("source/{folder}/Cargo.toml"),
            &root.join(folder).join("Cargo.toml"),
        )?);
    }
    Ok(members)
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

/// Packs the tests as an archive of nextest. Those of the whole workspace are built, with the features that they have elsewhere.
fn tests(root: &Path, folder: &Path) -> Result<Member> {
    let archive = folder.join("tests.tar.zst");
    let filter = TESTED.map(|(_, filter)| filter).join(" + ");
    let status = cargo(root)
        .args(["nextest", "archive", "--release", "--workspace", "--filterset", &filter, "--archive-file"])
        .arg(&archive)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the tests could not be packed: see above; nextest is needed (`cargo install cargo-nextest`)");
    }
    Member::read("tests.tar.zst", &archive)
}

/// Finds the program of nextest, as cargo does.
fn nextest(root: &Path) -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let folders = home.into_iter().map(|home| home.join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        folders.chain(std::env::split_paths(&path)).map(|folder| root.join(folder).join("cargo-nextest"));
    found
        .into_iter()
        .find(|path| path.is_file())
        .context("cargo-nextest is on no PATH: cargo install cargo-nextest")
}

/// Builds the benchmarks.
fn benches(root: &Path) -> Result<Vec<Member>> {
    let names = BENCHES.iter().flat_map(|name| ["--bench", name]);
    let output = cargo(root)
        .args(["bench", "--workspace", "--no-run", "--message-format", "json"])
        .args(names)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> = messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let executable = |name: &str| {
        let is_bench =
            |message: &&Value| message["target"]["name"] == name && message["target"]["kind"][0] == "bench";
        messages.iter().find(is_bench)?["executable"].as_str()
    };
    let member = |name: &&str| {
        let path = executable(name).with_context(|| format!("bench {name} could not be built: see above"))?;
        Ok(Member { executable: true, ..Member::read(format!("benches/{name}"), Path::new(path))? })
    };
    BENCHES.iter().map(member).collect()
}

/// Returns the files of compute-sanitizer.
fn sanitizer() -> Result<Vec<Member>> {
    let member = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let member = Member::read(format!("sanitizer/{name}"), &path)?;
        Ok(Member { executable: path.extension().is_none(), ..member })
    };
    files_of(&cuda::sanitizer(&cache::root()?)?)?.into_iter().map(member).collect()
}

fn model() -> Result<Member> {
    let path = cache::root()?.join("models/smollm2-135m/model.gguf");
    Member::read("cache/models/smollm2-135m/model.gguf", &path)
}

/// Returns the commit of the checkout, if git knows it.
fn commit(root: &Path) -> Option<String> {
    let output = command_on_path("git").ok()?.args(["rev-parse", "HEAD"]).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Unpacks the parts and runs the kit on this machine's CPU, with the checkout's libtorch.
fn dry_run(root: &Path, parts: &[PathBuf], folder: &Path, out: &Path, script: &[String]) -> Result<()> {
    let mut whole = Vec::new();
    for part in parts {
        whole.extend(fs::read(part).with_context(|| format!("cannot read {}", part.display()))?);
    }
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(whole.as_slice()));
    archive.unpack(folder).context("cannot unpack the kit")?;
    let status = command_on_path("python3")?
        .arg(folder.join("gpu-kit/kit.py"))
        .args(["--device", "cpu", "--torch"])
        .arg(root.join(".libtorch/torch"))
        .arg("--out")
        .arg(out)
        .args(script)
        .status()
        .context("cannot start python3")?;
    if !status.success() {
        bail!("the kit ended with {status}: see {}", out.join("report.md").display());
    }
    Ok(())
}

/// Writes files of a limited size, one after the other.
struct Parts {
    folder: PathBuf,
    paths: Vec<PathBuf>,
    file: Option<File>,
    written: usize,
}

impl Parts {
    fn new(folder: &Path) -> Parts {
        Parts { folder: folder.to_path_buf(), paths: Vec::new(), file: None, written: 0 }
    }
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.written == PART {
            self.file = None;
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let path = self.folder.join(format!("part-{:03}", self.paths.len()));
                self.written = 0;
                let file = File::create(&path)?;
                self.paths.push(path);
                self.file.insert(file)
            }
        };
        let count = file.write(&bytes[..bytes.len().min(PART - self.written)])?;
        self.written += count;
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.as_mut().map_or(Ok(()), File::flush)
    }
}

#[cfg(test)]
mod tests;
