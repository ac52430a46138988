//! `cargo xtask dist`: a tarball and a Python wheel of the program with its plugins.
//!
//! ```text
//! pl-host-0.1.0-x86_64-linux.tar.gz
//!   pl-host-0.1.0/pl_host/bin/pl-host, pl_host/bin/plugins/*.wasm   as in the wheel
//!   pl-host-0.1.0/share/…      man page and completions
//!   pl-host-0.1.0/examples, README.md, LICENSE-…
//! pl_host-0.1.0-py3-none-manylinux_2_34_x86_64.whl
//!   pl_host/__init__.py        finds libtorch in the package torch and starts the program
//!   pl_host/bin/pl-host        stripped; the SDKs and the Python worker are inside of it
//!   pl_host/bin/plugins/*.wasm
//!   pl_host-0.1.0.data/data/share/…
//! ```
//!
//! libtorch is not packed. The program looks for it at `../../torch/lib`: in the package torch beside `pl_host`.

mod elf;
mod member;
mod wheel;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use pl_toolchain::command_on_path;

pub use self::member::{Member, VERSION};
use crate::{guests, setup};

/// Place at which a packed program looks for libtorch.
const LIBTORCH: &str = "$ORIGIN/../../torch/lib";

/// Largest size of a package. Half of it is the Python worker, which set-up has compressed.
const LARGEST: u64 = 66_000_000;

/// Sets up, then writes both packages to `target/dist`.
pub fn run(root: &Path) -> Result<()> {
    let program = setup::all(root)?;
    for package in write(root, &program, &root.join("target/dist"))? {
        let size = package.metadata().map(|file| file.len())?;
        println!("{} ({:.1} MB)", package.display(), size as f64 / 1e6);
    }
    Ok(())
}

/// Writes the tarball and the wheel of a built program into a folder, and returns their paths.
pub fn write(root: &Path, program: &Path, into: &Path) -> Result<[PathBuf; 2]> {
    fs::create_dir_all(into).with_context(|| format!("cannot write {}", into.display()))?;
    let package = package(root, program)?;
    let (shared, licences) = (shared(program)?, licences(root)?);
    let wheel = wheel::write(into, &python(root, program, &package)?, &shared, &licences)?;
    let tarball = into.join(format!("pl-host-{VERSION}-x86_64-linux.tar.gz"));
    write_tarball(&tarball, [package, shared, licences, examples(root)?].iter().flatten())?;
    for package in [&tarball, &wheel.path] {
        let size = package.metadata().map(|file| file.len())?;
        if size > LARGEST {
            bail!("{} has {size} bytes, which is more than {LARGEST}", package.display());
        }
    }
    Ok([tarball, wheel.path])
}

/// Returns the program, stripped and without this machine's path of libtorch, and its plugins.
pub fn package(root: &Path, program: &Path) -> Result<Vec<Member>> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let stripped = folder.path().join("pl-host");
    let strip =
        command_on_path("strip").and_then(|mut strip| strip.arg("-o").arg(&stripped).arg(program).status());
    if !strip.context("cannot start strip: install binutils")?.success() {
        bail!("{} could not be stripped: see above", program.display());
    }
    let mut member = Member::read("pl_host/bin/pl-host", &stripped)?;
    elf::set_runpath(&mut member.bytes, LIBTORCH)?;
    member.executable = true;
    let mut members = vec![member];
    for plugin in guests::published(&root.join("target/release/plugins")) {
        let name = plugin.file_name().unwrap_or_default().to_string_lossy().into_owned();
        members.push(Member::read(format!("pl_host/bin/plugins/{name}"), &plugin)?);
    }
    Ok(members)
}

/// Returns the man page and the completions, which the program prints.
fn shared(program: &Path) -> Result<Vec<Member>> {
    let files: [(&str, &[&str]); 4] = [
        ("share/man/man1/pl-host.1", &["man"]),
        ("share/bash-completion/completions/pl-host", &["completions", "bash"]),
        ("share/zsh/site-functions/_pl-host", &["completions", "zsh"]),
        ("share/fish/vendor_completions.d/pl-host.fish", &["completions", "fish"]),
    ];
    let file = |(path, arguments): (&str, &[&str])| {
        let output = Command::new(program).args(arguments).output();
        let output = output.with_context(|| format!("cannot start {}", program.display()))?;
        if !output.status.success() || output.stdout.is_empty() {
            bail!("`pl-host {}` failed", arguments.join(" "));
        }
        Ok(Member::new(path, output.stdout))
    };
    files.into_iter().map(file).collect()
}

fn licences(root: &Path) -> Result<Vec<Member>> {
    ["LICENSE-APACHE", "LICENSE-MIT", "README.md"]
        .into_iter()
        .map(|name| Member::read(name, &root.join(name)))
        .collect()
}

fn examples(root: &Path) -> Result<Vec<Member>> {
    let folder = root.join("examples");
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "mas") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push(Member::read(format!("examples/{name}"), &path)?);
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Returns the members of the wheel's package.
fn python<'m>(root: &Path, program: &Path, package: &'m [Member]) -> Result<wheel::Package<'m>> {
    let folder = root.join("packaging/pl_host");
    let modules = ["__init__.py", "__main__.py"]
        .into_iter()
        .map(|name| Member::read(format!("pl_host/{name}"), &folder.join(name)))
        .collect::<Result<_>>()?;
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    Ok(wheel::Package { modules, program: package, glibc: elf::newest_glibc(&bytes)? })
}

fn write_tarball<'m>(path: &Path, members: impl Iterator<Item = &'m Member>) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let file = File::create(path).with_context(failed)?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::best()));
    append(&mut archive, &format!("pl-host-{VERSION}"), members).with_context(failed)?;
    archive.into_inner().and_then(GzEncoder::finish).map(drop).with_context(failed)
}

/// Adds files to an archive, below a folder.
pub fn append<'m>(
    archive: &mut tar::Builder<impl Write>,
    folder: &str,
    members: impl IntoIterator<Item = &'m Member>,
) -> std::io::Result<()> {
    for member in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(member.bytes.len() as u64);
        header.set_mode(if member.executable { 0o755 } else { 0o644 });
        archive.append_data(&mut header, format!("{folder}/{}", member.path), member.bytes.as_slice())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
