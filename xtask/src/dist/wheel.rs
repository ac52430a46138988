//! The Python wheel: a zip archive with metadata (PEP 427).

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::member::{Member, VERSION};

/// Version of torch whose libtorch the program is linked to.
const TORCH: &str = "2.11.0";

/// Content of a wheel.
pub struct Package<'m> {
    pub modules: Vec<Member>,
    pub program: &'m [Member],
    /// Minor version of the glibc 2 that the program needs.
    pub glibc: u32,
}

/// A written wheel.
pub struct Wheel {
    pub path: PathBuf,
}

/// Writes the wheel into a folder.
pub fn write(into: &Path, package: &Package<'_>, shared: &[Member], licences: &[Member]) -> Result<Wheel> {
    let tag = format!("py3-none-manylinux_2_{}_x86_64", package.glibc);
    let path = into.join(format!("pl_host-{VERSION}-{tag}.whl"));
    let failed = || format!("cannot write {}", path.display());
    let mut archive =
        Archive { zip: ZipWriter::new(File::create(&path).with_context(failed)?), record: String::new() };
    let info = format!("pl_host-{VERSION}.dist-info");
    for member in package.modules.iter().chain(package.program) {
        archive.add(&member.path, &member.bytes, member.executable).with_context(failed)?;
    }
    for member in shared {
        let path = format!("pl_host-{VERSION}.data/data/{}", member.path);
        archive.add(&path, &member.bytes, false).with_context(failed)?;
    }
    for member in licences.iter().filter(|member| member.path.starts_with("LICENSE")) {
        archive
            .add(&format!("{info}/licenses/{}", member.path), &member.bytes, false)
            .with_context(failed)?;
    }
    let readme = licences.iter().find(|member| member.path == "README.md");
    let description = readme.map(|member| String::from_utf8_lossy(&member.bytes)).unwrap_or_default();
    let texts = [
        ("METADATA", metadata(&description)),
        ("WHEEL", format!("Wheel-Version: 1.0\nGenerator: pl-host\nRoot-Is-Purelib: false\nTag: {tag}\n")),
        ("entry_points.txt", "[console_scripts]\npl-host = pl_host:main\n".to_owned()),
    ];
    for (name, text) in texts {
        archive.add(&format!("{info}/{name}"), text.as_bytes(), false).with_context(failed)?;
    }
    archive.finish(&info).with_context(failed)?;
    Ok(Wheel { path })
}

fn metadata(description: &str) -> String {
    format!(
        "Metadata-Version: 2.4\nName: pl-host\nVersion: {VERSION}\n\
         Summary: Builds and trains teams of language-model agents\n\
         License-Expression: Apache-2.0 OR MIT\nLicense-File: LICENSE-APACHE\nLicense-File: LICENSE-MIT\n\
         Requires-Python: >=3.10\nRequires-Dist: torch=={TORCH}\n\
         Description-Content-Type: text/markdown\n\n{description}"
    )
}

/// A zip archive with the list of its files that a wheel must have.
struct Archive {
    zip: ZipWriter<File>,
    record: String,
}

impl Archive {
    fn add(&mut self, path: &str, bytes: &[u8], executable: bool) -> Result<()> {
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(bytes));
        self.record.push_str(&format!("{path},sha256={hash},{}\n", bytes.len()));
        self.store(path, bytes, executable)
    }

    fn store(&mut self, path: &str, bytes: &[u8], executable: bool) -> Result<()> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(9))
            .unix_permissions(if executable { 0o755 } else { 0o644 });
        self.zip.start_file(path, options)?;
        Ok(self.zip.write_all(bytes)?)
    }

    fn finish(mut self, info: &str) -> Result<()> {
        let path = format!("{info}/RECORD");
        // The list names itself without a hash.
        let record = format!("{}{path},,\n", self.record);
        self.store(&path, record.as_bytes(), false)?;
        self.zip.finish()?;
        Ok(())
    }
}
