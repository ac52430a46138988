//! Loading: what is no component, and the cache on disk.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use pl_wasm::{Engine, EngineConfig, Stay};

fn engine(cache: &Path) -> Engine {
    Engine::new(EngineConfig { instances: 2, ..EngineConfig::plugins().cache_dir(cache) }).unwrap()
}

fn refusal(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    engine(folder.path()).load("math.wasm", bytes).err().unwrap().to_string()
}

fn component() -> Vec<u8> {
    wat::parse_str(include_str!("guests/temper.wat")).unwrap()
}

#[test]
fn what_is_no_component_is_told_apart() {
    let core = wat::parse_str("(module)").unwrap();
    for (bytes, words) in [
        (&b""[..], "the file is empty; build it again"),
        (b"(component)", "it is the text form of WebAssembly; give the binary"),
        (b"hello there", "it is a text file"),
        (&[0xff, 0xd8, 0xff][..], "it is some other kind of file"),
        (b"\0asm\x0d", "it is cut short"),
        (b"\0asm\x0e\0\x01\0", "its version is unknown"),
        (&core, "it is a core module; turn it into a component"),
    ] {
        let message = refusal(bytes);
        assert!(message.starts_with("math.wasm is not a WebAssembly component: "), "{message}");
        assert!(message.contains(words), "{message}");
    }
    let whole = component();
    let message = refusal(&whole[..whole.len() / 2]);
    assert!(
        message.starts_with("math.wasm does not compile: ") && message.contains("cut short"),
        "{message}"
    );
}

fn entry(folder: &Path, extension: &str) -> PathBuf {
    let mut entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.extension().is_some_and(|found| found == extension)).unwrap()
}

/// Whether a load takes the code from the cache: a marked note of the entry's time would not tell, its bytes do.
fn written_anew(folder: &Path, code: &[u8]) -> bool {
    engine(folder).load("math.wasm", &component()).unwrap();
    std::fs::read(entry(folder, "cwasm")).unwrap() == code
}

#[test]
fn an_entry_is_used_and_a_damaged_one_is_compiled_anew() {
    let folder = tempfile::tempdir().unwrap();
    assert!(!engine(folder.path()).is_cached(&component()));
    engine(folder.path()).load("math.wasm", &component()).unwrap();
    assert!(engine(folder.path()).is_cached(&component()));
    let code = std::fs::read(entry(folder.path(), "cwasm")).unwrap();
    let made = entry(folder.path(), "cwasm").metadata().unwrap().modified().unwrap();
    engine(folder.path()).load("math.wasm", &component()).unwrap();
    assert_eq!(entry(folder.path(), "cwasm").metadata().unwrap().modified().unwrap(), made, "compiled twice");

    // One bit, far from any header: machine code that would run.
    let mut flipped = code.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for damaged in [&flipped[..], &code[..middle], b""] {
        std::fs::write(entry(folder.path(), "cwasm"), damaged).unwrap();
        assert!(written_anew(folder.path(), &code));
    }
    std::fs::write(entry(folder.path(), "sum"), "nonsense").unwrap();
    assert!(written_anew(folder.path(), &code));
}

#[test]
fn a_folder_that_can_not_be_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().join("cache");
    let error = Engine::new(EngineConfig::plugins().cache_dir(&path)).err().unwrap().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
}

#[tokio::test]
async fn a_full_pool_makes_the_next_wait() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    let (first, _second) = (engine.seat(Stay::Long).await, engine.seat(Stay::Long).await);
    assert_eq!(engine.free_seats(Stay::Long), 0);
    // Calls have seats of their own.
    let _call = engine.seat(Stay::Call).await;
    let mut third = tokio::spawn({
        let engine = engine.clone();
        async move { engine.seat(Stay::Long).await }
    });
    let waiting = tokio::time::timeout(std::time::Duration::from_millis(50), &mut third).await;
    assert!(waiting.is_err());
    drop(first);
    third.await.unwrap();
}
