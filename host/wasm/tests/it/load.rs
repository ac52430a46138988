//! Loading: files that are not components, and the cache on disk.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use pl_wasm::{Engine, EngineConfig, Lifetime};

fn engine(cache: &Path) -> Engine {
    Engine::new(EngineConfig { instances: 2, ..EngineConfig::plugins().cache_dir(cache) }).unwrap()
}

fn refusal(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    engine(folder.path()).load("math.wasm", bytes).err().unwrap().to_string()
}

fn component() -> Vec<u8> {
    wat::parse_str(include_str!("../guests/temper.wat")).unwrap()
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
    let message = refusal(&whole[..whole.len() - 3]);
    assert!(
        message.starts_with("math.wasm does not compile: ") && message.contains("cut short"),
        "{message}"
    );
}

fn entry(folder: &Path, extension: &str) -> PathBuf {
    let mut entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.extension().is_some_and(|found| found == extension)).unwrap()
}

/// Returns true if a load takes the code from the cache. The entry's bytes tell; its time would not.
fn written_anew(folder: &Path, code: &[u8]) -> bool {
    engine(folder).load("math.wasm", &component()).unwrap();
    std::fs::read(entry(folder, "cwasm")).unwrap() == code
}

#[test]
fn a_component_that_another_process_compiles_is_awaited() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path();
    engine(cache).load("math.wasm", &component()).unwrap();
    let (code, sum) = (entry(cache, "cwasm"), entry(cache, "sum"));
    let other = File::options().append(true).open(entry(cache, "lock")).unwrap();
    other.lock().unwrap();
    // What the other process will have compiled.
    let parts = [code.clone(), sum].map(|part| (std::fs::read(&part).unwrap(), part));
    parts.iter().for_each(|(_, part)| std::fs::remove_file(part).unwrap());
    let inode = || code.metadata().unwrap().ino();
    let placed = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| engine(cache).load("math.wasm", &component()).unwrap());
        std::thread::sleep(Duration::from_millis(200));
        assert!(!waiting.is_finished() && !code.exists());
        for (bytes, part) in &parts {
            std::fs::write(part, bytes).unwrap();
        }
        other.unlock().unwrap();
        inode()
    });
    assert_eq!(inode(), placed, "it was compiled once more");
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
    for sum in ["nonsense", ""] {
        std::fs::write(entry(folder.path(), "sum"), sum).unwrap();
        assert!(written_anew(folder.path(), &code));
    }
}

#[test]
fn another_engines_entry_is_compiled_anew() {
    let folder = tempfile::tempdir().unwrap();
    engine(folder.path()).load("math.wasm", &component()).unwrap();
    let code = std::fs::read(entry(folder.path(), "cwasm")).unwrap();
    let foreign = wasmtime::Engine::default();
    // Code of an engine without fuel, with a sum that fits, where ours would be.
    let foreign =
        wasmtime::component::Component::from_binary(&foreign, &component()).unwrap().serialize().unwrap();
    std::fs::write(entry(folder.path(), "cwasm"), &foreign).unwrap();
    std::fs::write(entry(folder.path(), "sum"), blake3::hash(&foreign).to_hex().as_str()).unwrap();
    assert!(written_anew(folder.path(), &code));
}

/// The component's answer to 2 + 3, from an engine of its own with the cache in `folder`.
fn sum_of(folder: &Path) -> u32 {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let engine = engine(folder);
    let component = engine.load("math.wasm", &component()).unwrap();
    runtime.block_on(async {
        let ready = engine.linker::<()>().unwrap().instantiate_pre(component.inner()).unwrap();
        let mut store = engine.store((), &pl_wasm::Limits::default());
        pl_wasm::call(&mut store, async |store| {
            let instance = ready.instantiate_async(&mut *store).await?;
            let add = instance.get_typed_func::<(u32, u32), (u32,)>(&mut *store, "add")?;
            Ok(add.call_async(store, (2, 3)).await?.0)
        })
        .await
        .unwrap()
    })
}

#[test]
fn what_is_mapped_outlives_its_entry() {
    let folder = tempfile::tempdir().unwrap();
    sum_of(folder.path());
    let engine = engine(folder.path());
    let mapped = engine.find(&component()).unwrap();
    // Replaced as another process would, by renaming.
    let code = entry(folder.path(), "cwasm");
    std::fs::write(folder.path().join("aside"), b"something else").unwrap();
    std::fs::rename(folder.path().join("aside"), &code).unwrap();
    assert!(engine.linker::<()>().unwrap().instantiate_pre(mapped.inner()).is_ok());
    assert!(engine.find(&component()).is_none());
    assert_eq!(sum_of(folder.path()), 5);
    std::fs::remove_file(&code).unwrap();
    assert_eq!(sum_of(folder.path()), 5);
}

/// Runs one of the tests below in a process of its own, in a shell that has first done `setting`.
fn spawn(test: &str, folder: &Path, setting: &str) -> Child {
    let me = std::env::current_exe().unwrap();
    Command::new("sh")
        .args(["-c", &format!("{setting} exec \"$0\" --exact load::{test} --ignored --nocapture")])
        .arg(me)
        .env("PL_TEST_CACHE", folder)
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "one of the processes that other tests start"]
fn a_process_that_fills_the_cache() {
    let folder = std::env::var("PL_TEST_CACHE").unwrap();
    assert_eq!(sum_of(Path::new(&folder)), 5);
}

/// Number of files in a cache besides the locks, which are empty.
fn files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_none_or(|extension| extension != "lock")).count()
}

#[test]
fn processes_may_fill_the_cache_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let running: Vec<Child> =
        (0..4).map(|_| spawn("a_process_that_fills_the_cache", folder.path(), "")).collect();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
    assert!(engine(folder.path()).find(&component()).is_some(), "no whole entry was left");
    assert_eq!(files(folder.path()), 2, "something else was left");
}

#[test]
fn a_full_disk_costs_the_entry_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    // A process that may write 4 KiB per file and is told so by an error.
    let setting = "trap '' XFSZ; ulimit -f 8;";
    let mut child = spawn("a_process_that_fills_the_cache", folder.path(), setting);
    assert!(child.wait().unwrap().success());
    assert_eq!(files(folder.path()), 0, "a part of the entry was left");
}

#[test]
fn a_folder_that_can_not_be_written_costs_the_entry_and_nothing_else() {
    // Nobody can write there, the superuser included.
    assert_eq!(sum_of(Path::new("/proc/self/task")), 5);
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
    let (first, _second) = (engine.permit(Lifetime::Episode).await, engine.permit(Lifetime::Episode).await);
    assert_eq!(engine.free_permits(Lifetime::Episode), 0);
    // Calls have permits of their own.
    let _call = engine.permit(Lifetime::Call).await;
    let mut third = tokio::spawn({
        let engine = engine.clone();
        async move { engine.permit(Lifetime::Episode).await }
    });
    let waiting = tokio::time::timeout(std::time::Duration::from_millis(50), &mut third).await;
    assert!(waiting.is_err());
    drop(first);
    third.await.unwrap();
}

#[test]
fn a_component_takes_the_entry_of_one_with_the_same_code() {
    let folder = tempfile::tempdir().unwrap();
    let plain = component();
    let mut named = plain.clone();
    // A custom section without data, whose name is `x`.
    named.extend([0, 2, 1, b'x']);
    let engine = engine(folder.path());
    engine.load("math.wasm", &plain).unwrap();
    let code = std::fs::read(entry(folder.path(), "cwasm")).unwrap();
    engine.reassign(&plain, &named);
    assert!(engine.is_cached(&named) && !engine.is_cached(&plain));
    let made = entry(folder.path(), "cwasm").metadata().unwrap().modified().unwrap();
    engine.load("math.wasm", &named).unwrap();
    let kept = entry(folder.path(), "cwasm");
    assert_eq!(kept.metadata().unwrap().modified().unwrap(), made, "compiled twice");
    assert_eq!(std::fs::read(kept).unwrap(), code);
}

/// Number of files in a folder with an extension, and their size together.
fn count(folder: &Path, extension: &str) -> (usize, u64) {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|found| found == extension));
    files.fold((0, 0), |(count, bytes), path| (count + 1, bytes + path.metadata().unwrap().len()))
}

/// About one function in twenty is compiled again although it is the same: the compiler gives it another key.
#[test]
fn functions_of_an_earlier_build_are_not_compiled_again() {
    let folder = tempfile::tempdir().unwrap();
    let functions = |range: std::ops::Range<u32>| {
        let function = |n| {
            format!(
                "(func (export \"f{n}\") (param i32) (result i32) (i32.rotl (local.get 0) (i32.const {n})))"
            )
        };
        range.map(function).collect::<String>()
    };
    let build = |functions: &str, data: &str| {
        let module =
            format!("(component (core module (memory 1) (data (i32.const 0) \"{data}\") {functions}))");
        let component = wat::parse_str(module).unwrap();
        let config = EngineConfig { instances: 2, reuse_functions: true, ..EngineConfig::plugins() };
        Engine::new(config.cache_dir(folder.path())).unwrap().load("math.wasm", &component).unwrap();
        component
    };
    let written = || count(folder.path(), "functions").1;
    let first = build(&functions(0..400), "one");
    let all = written();
    let second = build(&functions(0..400), "two");
    assert_eq!(count(folder.path(), "cwasm").0, 2);
    let again = written() - all;
    assert!(again < all / 2, "{again} of {all} bytes");
    build(&functions(400..800), "two");
    let others = written() - all - again;
    assert!(others > all / 2, "{others} of {all} bytes");

    // A run finds what a build compiled, and the code is that of a compilation from scratch.
    let run = engine(folder.path());
    assert!(run.is_cached(&first) && run.is_cached(&second));
    let scratch = tempfile::tempdir().unwrap();
    engine(scratch.path()).load("math.wasm", &second).unwrap();
    let whole = entry(scratch.path(), "cwasm");
    let pieced = folder.path().join(whole.file_name().unwrap());
    assert!(std::fs::read(whole).unwrap() == std::fs::read(pieced).unwrap());
}
