//! One plugin in four languages, and the SDKs behind them: the same requests, actions, outcomes, scores and snapshots,
//! whatever the language; snapshots that go on in another language and another process; a workflow that mixes them.
//!
//! The plugin is `plugins/sdk/examples`. A language whose tools the machine lacks is left out, unless
//! `PL_HOST_NEEDS_TOOLCHAINS=1` says that none may be.

mod guests;
mod trace;

use std::path::{Path, PathBuf};
use std::process::Command;

use pl_plugin::{Completion, Finish, Snapshot, Stream, Turn};
use pl_toolchain::Language;
use serde_json::{Value, json};

use self::guests::Loaded;
use self::trace::{SEEDS, Step, Trace};
use crate::support::{repository, scenario, stdout, succeed};

/// Every completion that a test throws at the reasoners; some are too long to stand in a file.
fn completions() -> Vec<String> {
    let text = std::fs::read_to_string(scenario("languages/completions.json")).unwrap();
    let mut all: Vec<String> = serde_json::from_str(&text).unwrap();
    all.push(format!("{} the answer is 12", "so many words, and 3 numbers ".repeat(20_000)));
    all.push(format!("\\boxed{{{}}}", "9".repeat(4001)));
    all.push("{".repeat(100_000));
    all.push(format!("{}7{}", "\\boxed{".repeat(2000), "}".repeat(2000)));
    all.push("ü".repeat(40_000));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn one_plugin_is_the_same_in_four_languages() {
    let guests = guests::all().await;
    let Some((reference, others)) = guests.split_first() else { return };
    assert_eq!(reference.language, Language::Rust);
    let expected = facts(reference).await;
    for guest in others {
        let found = facts(guest).await;
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!(expected, found, "{} differs from {}", guest.language, reference.language);
        }
        assert_eq!(expected.len(), found.len());
    }
    for seed in SEEDS {
        let expected = Trace::of(reference, seed).await;
        for guest in others {
            let found = Trace::of(guest, seed).await;
            expected.assert_equal(&found, &format!("{} with seed {seed}", guest.language));
        }
    }
}

/// What does not depend on an episode: declared facts, generated tasks, refusals, actions on all completions.
async fn facts(guest: &Loaded) -> Vec<Value> {
    let mut said = vec![json!(guest.sums.facts())];
    for (split, level) in [("train", 1), ("validation", 2), ("test", 9)] {
        said.push(json!(guest.sums.tasks(split, 5, 4, level).await.unwrap()));
    }
    for (split, level) in [("dev", 1), ("train", 0)] {
        said.push(json!(guest.refusal(guest.sums.tasks(split, 0, 1, level).await.unwrap_err())));
    }
    for settings in [json!({"tris": 1}), json!({"tries": "three"}), json!({"terms": null})] {
        said.push(json!(guest.kind_of_refusal(&settings).await));
    }
    for data in ["{}", "7", r#"{"number": 1, "largest": 0}"#, r#"{"number": "1", "largest": 5}"#] {
        said.push(json!(guest.kind_of_task_refusal(data).await));
    }
    let view = json!({"question": "Wie groß? \u{1}\u{1f600}\"\\", "round": 3, "tool": {"code": "", "output": "", "error": null, "answer": "½\n"},
        "answers": [{"agent": "a", "answer": "x"}, {"agent": "b", "answer": "\u{0}\u{1b}y"}]});
    let view = view.to_string();
    let turn = Turn { agent: "a".to_owned(), visit: 1 };
    said.push(json!(guest.reasoner.prompt(&view, &turn).await.unwrap()));
    for text in completions() {
        let shown: String = text.chars().take(60).collect();
        for finish in [Finish::Stop, Finish::Length] {
            let completion = Completion::new(text.clone(), finish);
            let action = guest.reasoner.parse(&view, &completion).await.unwrap();
            said.push(json!([shown, serde_json::from_str::<Value>(&action).unwrap()]));
        }
    }
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_goes_on_in_any_language() {
    let guests = guests::all().await;
    let Some(reference) = guests.first() else { return };
    let seed = SEEDS[0];
    let expected = Trace::of(reference, seed).await;
    for from in &guests {
        for to in &guests {
            for (at, step) in Trace::of(from, seed).await.steps.iter().enumerate() {
                let rest = Trace::from(to, &step.snapshot, at + 1).await;
                expected
                    .behind(at)
                    .assert_equal(&rest, &format!("{} after step {at} of {}", to.language, from.language));
            }
        }
    }
}

/// What another process is told, and where it answers.
const TOLD: &str = "PL_HOST_TEST_SNAPSHOT";

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_goes_on_in_another_process() {
    let guests = guests::all().await;
    let folder = tempfile::tempdir().unwrap();
    for (at, from) in guests.iter().enumerate() {
        let to = &guests[(at + 1) % guests.len()];
        let expected = Trace::of(from, SEEDS[0]).await;
        let file = folder.path().join(from.language.name());
        let told = json!({"language": to.language.name(), "snapshot": expected.steps[0].snapshot});
        std::fs::write(&file, told.to_string()).unwrap();
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["--exact", "languages::goes_on_from_a_file", "--ignored"]).env(TOLD, &file);
        succeed(&mut other);
        let steps: Vec<Step> = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        expected.behind(0).assert_equal(&Trace { steps }, &format!("{} in another process", to.language));
    }
}

/// The other process.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by a_snapshot_goes_on_in_another_process"]
async fn goes_on_from_a_file() {
    let file = std::env::var_os(TOLD).unwrap();
    let mut told: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let snapshot: Snapshot = serde_json::from_value(told["snapshot"].take()).unwrap();
    let language = Language::ALL.into_iter().find(|language| told["language"] == language.name()).unwrap();
    let guest = guests::load(language).await.unwrap();
    let rest = Trace::from(&guest, &snapshot, 1).await;
    std::fs::write(file, serde_json::to_vec(&rest.steps).unwrap()).unwrap();
}

#[test]
fn a_workflow_mixes_all_four() {
    let Some(components) = guests::components() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (language, component) in components {
        std::fs::copy(component, folder.path().join(format!("{language}.wasm"))).unwrap();
    }
    let mixed = std::fs::read_to_string(scenario("languages/mixed.mas")).unwrap();
    let model = repository().join("tests/data/tiny");
    let file = folder.path().join("mixed.mas");
    std::fs::write(&file, mixed.replace("../../data/tiny", model.to_str().unwrap())).unwrap();
    std::fs::copy(scenario("languages/tasks.jsonl"), folder.path().join("tasks.jsonl")).unwrap();
    succeed(crate::support::pl_host().arg("check").arg(&file));
    let played =
        succeed(crate::support::pl_host().arg("play").arg(&file).args(["--device", "cpu", "--seed", "3"]));
    let said = stdout(&played);
    for agent in ["first", "second", "third", "fourth"] {
        assert!(said.contains(agent), "{agent} did not act:\n{said}");
    }
}

/// The plugins that the SDKs' pages show are plugins, and pass the tests that the pages show.
#[test]
fn the_pages_show_what_works() {
    let sdk = repository().join("plugins/sdk");
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    page(&sdk, "python", &[root.join("guess.py"), root.join("tests/test_guess.py")]);
    let path = format!("{}:{}", sdk.join("python").display(), root.display());
    let python = ["python3", "-B", "-m", "unittest", "discover", "-s", "tests"];
    tested(Command::new(python[0]).args(&python[1..]).current_dir(root).env("PYTHONPATH", path));
    page(&sdk, "js", &[root.join("guess.js"), root.join("test/guess.test.js")]);
    std::fs::write(root.join("package.json"), r#"{"type": "module"}"#).unwrap();
    std::fs::create_dir(root.join("node_modules")).unwrap();
    std::os::unix::fs::symlink(sdk.join("js"), root.join("node_modules/pl-sdk")).unwrap();
    tested(Command::new("node").arg("--test").current_dir(root));
    // yyjson comes with the tools that build the component.
    let Some(yyjson) = guests::yyjson() else { return };
    page(&sdk, "c", &[root.join("guess.c"), root.join("guess_test.c")]);
    let program = root.join("guess");
    if tested(native(&sdk, &yyjson, &program).args(["guess.c", "guess_test.c"]).current_dir(root)) {
        succeed(&mut Command::new(program));
    }
}

/// The SDKs' own tests and those of the plugin, without a host, by each language's own runner.
#[test]
fn own_tests_pass() {
    let sdk = repository().join("plugins/sdk");
    for folder in [sdk.join("python"), sdk.join("examples/python")] {
        let mut python = Command::new("python3");
        python.args(["-B", "-m", "unittest", "discover", "-s", "tests"]).current_dir(&folder);
        let path = format!("{}:{}", sdk.join("python").display(), folder.display());
        tested(python.env("PYTHONPATH", path));
    }
    tested(Command::new("node").arg("--test").current_dir(sdk.join("js")));
    let scratch = tempfile::tempdir().unwrap();
    let copy = guests::fresh_copy(&sdk.join("examples/js"), &scratch.path().join("js"));
    std::fs::create_dir(copy.join("node_modules")).unwrap();
    std::os::unix::fs::symlink(sdk.join("js"), copy.join("node_modules/pl-sdk")).unwrap();
    tested(Command::new("node").arg("--test").current_dir(copy));
    let Some(yyjson) = guests::yyjson() else { return };
    let program = scratch.path().join("sums");
    let own = ["sums.c", "extract.c", "test/sums_test.c"].map(|file| sdk.join("examples/c").join(file));
    if tested(native(&sdk, &yyjson, &program).arg("-I").arg(sdk.join("examples/c")).args(own)) {
        succeed(&mut Command::new(program));
    }
}

/// The C compiler with the SDK, its stand-in for the host, and yyjson.
fn native(sdk: &Path, yyjson: &Path, program: &Path) -> Command {
    let sdk = sdk.join("c");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-DYYJSON_DISABLE_NON_STANDARD=1", "-o"]).arg(program);
    cc.arg("-I").arg(&sdk).arg("-I").arg(yyjson).arg(yyjson.join("yyjson.c"));
    cc.args(["pl_memory.c", "pl_json.c", "pl_registry.c", "pl_testing.c"].map(|file| sdk.join(file)));
    cc
}

/// Writes the first blocks of code of an SDK's page.
fn page(sdk: &Path, language: &str, files: &[PathBuf]) {
    let text = std::fs::read_to_string(sdk.join(language).join("README.md")).unwrap();
    let fence = format!("```{language}\n");
    let blocks = text.split(&fence).skip(1).map(|block| block.split_once("\n```\n").unwrap().0);
    for (file, block) in files.iter().zip(blocks) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, format!("{block}\n")).unwrap();
    }
}

/// Runs a program that must end well, where the machine has it.
fn tested(command: &mut Command) -> bool {
    let missing = matches!(command.output(), Err(error) if error.kind() == std::io::ErrorKind::NotFound);
    if missing {
        let program = command.get_program().display();
        assert!(!guests::all_needed(), "no {program}, and PL_HOST_NEEDS_TOOLCHAINS=1");
        eprintln!("skipped: no {program}");
    } else {
        succeed(command);
    }
    !missing
}

/// The stream of a seed, as every language's episode gets it.
fn stream(seed: u64) -> Stream {
    Stream::of(&[b"languages", &seed.to_le_bytes()])
}
