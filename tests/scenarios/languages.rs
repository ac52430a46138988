//! One plugin in four languages: equal requests, actions, outcomes, scores and snapshots; snapshots that continue in
//! another language and another process; a workflow that mixes all four.
//!
//! The plugin is `plugins/sdk/examples`; beside it, `queens` tests a planning game. Languages without tools on this machine
//! are skipped, or fail with `PL_HOST_NEEDS_TOOLCHAINS=1`.

mod episode;
mod guests;
mod queens;

use std::path::{Path, PathBuf};
use std::process::Command;

use pl_plugin::{Completion, RandomStream, Snapshot, ToolCall, Turn};
use pl_toolchain::Language;
use pl_types::Finish;
use serde_json::{Value, json};

use self::episode::{EpisodeLog, SEEDS, Step};
use self::guests::Loaded;
use crate::support::{repository, scenario, stdout, succeed};

/// Returns the completions for the reasoners: those of a file, and generated long ones.
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
async fn one_plugin_behaves_equally_in_four_languages() {
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
    let call =
        |name: &str, arguments: Value| ToolCall { name: name.to_owned(), arguments: arguments.to_string() };
    let calls = [call("add", json!({"terms": [3, 39]})), call("½", json!({}))];
    let view = json!({"question": "?", "round": 0, "tool": null, "answers": []}).to_string();
    // The reasoner of the maths domain has no tools.
    assert_eq!(reference.reasoner.call_tools(&view, &calls).await.unwrap(), None);
    for guest in others {
        let results = guest.reasoner.call_tools(&view, &calls).await.unwrap();
        let expected = vec!["42".to_owned(), "there is no tool ½".to_owned()];
        assert_eq!(results, Some(expected), "{}", guest.language);
    }
    for seed in SEEDS {
        let expected = EpisodeLog::play(reference, seed).await;
        for guest in others {
            let found = EpisodeLog::play(guest, seed).await;
            expected.assert_equal(&found, &format!("{} with seed {seed}", guest.language));
        }
    }
}

/// Returns everything that does not depend on an episode: declared facts, generated tasks, errors, actions.
async fn facts(guest: &Loaded) -> Vec<Value> {
    let mut message = vec![json!(guest.sums.facts())];
    for (split, level) in [("train", 1), ("validation", 2), ("test", 9)] {
        message.push(json!(guest.sums.tasks(split, 5, 4, level).await.unwrap()));
    }
    for (split, level) in [("dev", 1), ("train", 0)] {
        message.push(json!(guest.refusal(guest.sums.tasks(split, 0, 1, level).await.unwrap_err())));
    }
    for settings in [json!({"tris": 1}), json!({"tries": "three"}), json!({"terms": null})] {
        message.push(json!(guest.kind_of_refusal(&settings).await));
    }
    for data in ["{}", "7", r#"{"number": 1, "largest": 0}"#, r#"{"number": "1", "largest": 5}"#] {
        message.push(json!(guest.kind_of_task_refusal(data).await));
    }
    let view = json!({"question": "Wie groß? \u{1}\u{1f600}\"\\", "round": 3, "tool": {"code": "", "output": "", "error": null, "answer": "½\n"},
        "answers": [{"agent": "a", "answer": "x"}, {"agent": "b", "answer": "\u{0}\u{1b}y"}]});
    let view = view.to_string();
    let turn = Turn { agent: "a".to_owned(), visit: 1 };
    message.push(json!(guest.reasoner.prompt(&view, &turn).await.unwrap()));
    for text in completions() {
        let shown: String = text.chars().take(60).collect();
        for finish in [Finish::Stop, Finish::Length] {
            let completion = Completion::new(text.clone(), finish);
            let action = guest.reasoner.parse(&view, &completion).await.unwrap();
            message.push(json!([shown, serde_json::from_str::<Value>(&action).unwrap()]));
        }
    }
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_continues_in_any_language() {
    let guests = guests::all().await;
    let Some(reference) = guests.first() else { return };
    let seed = SEEDS[0];
    let expected = EpisodeLog::play(reference, seed).await;
    for from in &guests {
        for to in &guests {
            for (at, step) in EpisodeLog::play(from, seed).await.steps.iter().enumerate() {
                let later = EpisodeLog::resume(to, &step.snapshot, at + 1).await;
                expected
                    .after(at)
                    .assert_equal(&later, &format!("{} after step {at} of {}", to.language, from.language));
            }
        }
    }
}

/// Names the file with which the tests call another process of themselves.
const EXCHANGE_FILE: &str = "PL_HOST_TEST_SNAPSHOT";

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_continues_in_another_process() {
    let guests = guests::all().await;
    let folder = tempfile::tempdir().unwrap();
    for (at, from) in guests.iter().enumerate() {
        let to = &guests[(at + 1) % guests.len()];
        let expected = EpisodeLog::play(from, SEEDS[0]).await;
        let file = folder.path().join(from.language.name());
        let exchange = json!({"language": to.language.name(), "snapshot": expected.steps[0].snapshot});
        std::fs::write(&file, exchange.to_string()).unwrap();
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["--exact", "languages::continue_from_a_file", "--ignored"]).env(EXCHANGE_FILE, &file);
        succeed(&mut other);
        let steps: Vec<Step> = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        expected.after(0).assert_equal(&EpisodeLog { steps }, &format!("{} in another process", to.language));
    }
}

/// The other process.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by a_snapshot_continues_in_another_process"]
async fn continue_from_a_file() {
    let file = std::env::var_os(EXCHANGE_FILE).unwrap();
    let mut exchange: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let snapshot: Snapshot = serde_json::from_value(exchange["snapshot"].take()).unwrap();
    let language =
        Language::ALL.into_iter().find(|language| exchange["language"] == language.name()).unwrap();
    let guest = guests::load(language).await.unwrap();
    let later = EpisodeLog::resume(&guest, &snapshot, 1).await;
    std::fs::write(file, serde_json::to_vec(&later.steps).unwrap()).unwrap();
}

#[test]
fn a_workflow_mixes_all_four() {
    let Some(components) = guests::components() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (language, component) in components {
        let copy = folder.path().join(format!("{language}.wasm"));
        std::fs::copy(component, &copy).unwrap();
        // A check waits 10 s for a description, which is too short to compile an interpreter. `plugin build` would have
        // written it into the component.
        succeed(crate::support::pl_host().args(["plugin", "describe"]).arg(&copy));
    }
    let mixed = std::fs::read_to_string(scenario("languages/mixed.mas")).unwrap();
    let model = repository().join("tests/data/tiny");
    let file = folder.path().join("mixed.mas");
    std::fs::write(&file, mixed.replace("../../data/tiny", model.to_str().unwrap())).unwrap();
    std::fs::copy(scenario("languages/tasks.jsonl"), folder.path().join("tasks.jsonl")).unwrap();
    succeed(crate::support::pl_host().arg("check").arg(&file));
    let played =
        succeed(crate::support::pl_host().arg("play").arg(&file).args(["--device", "cpu", "--seed", "3"]));
    let message = stdout(&played);
    for agent in ["first", "second", "third", "fourth"] {
        assert!(message.contains(agent), "{agent} did not act:\n{message}");
    }
}

/// The plugins on the SDKs' pages pass the tests on these pages.
#[test]
fn the_plugins_on_the_sdk_pages_work() {
    let sdk = repository().join("plugins/sdk");
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write_blocks(&sdk, "python", &[root.join("guess.py"), root.join("tests/test_guess.py")]);
    let path = format!("{}:{}", sdk.join("python").display(), root.display());
    let python = ["python3", "-B", "-m", "unittest", "discover", "-s", "tests"];
    run_if_present(Command::new(python[0]).args(&python[1..]).current_dir(root).env("PYTHONPATH", path));
    write_blocks(&sdk, "js", &[root.join("guess.js"), root.join("test/guess.test.js")]);
    std::fs::write(root.join("package.json"), r#"{"type": "module"}"#).unwrap();
    std::fs::create_dir(root.join("node_modules")).unwrap();
    std::os::unix::fs::symlink(sdk.join("js"), root.join("node_modules/pl-sdk")).unwrap();
    run_if_present(Command::new("node").arg("--test").current_dir(root));
    // yyjson comes with the tools that build the component.
    let Some(yyjson) = guests::yyjson() else { return };
    write_blocks(&sdk, "c", &[root.join("guess.c"), root.join("guess_test.c")]);
    let program = root.join("guess");
    if run_if_present(native(&sdk, &yyjson, &program).args(["guess.c", "guess_test.c"]).current_dir(root)) {
        succeed(&mut Command::new(program));
    }
}

/// The SDKs' own tests and those of the example plugins pass without a host, in each language's own runner.
#[test]
fn own_tests_pass() {
    let sdk = repository().join("plugins/sdk");
    let examples = sdk.join("examples/python");
    for folder in [sdk.join("python"), examples.join("queens"), examples] {
        let mut python = Command::new("python3");
        python.args(["-B", "-m", "unittest", "discover", "-s", "tests"]).current_dir(&folder);
        let path = format!("{}:{}", sdk.join("python").display(), folder.display());
        run_if_present(python.env("PYTHONPATH", path));
    }
    run_if_present(Command::new("node").arg("--test").current_dir(sdk.join("js")));
    let scratch = tempfile::tempdir().unwrap();
    let copy = guests::fresh_copy(&sdk.join("examples/js"), &scratch.path().join("js"));
    std::fs::create_dir(copy.join("node_modules")).unwrap();
    std::os::unix::fs::symlink(sdk.join("js"), copy.join("node_modules/pl-sdk")).unwrap();
    run_if_present(Command::new("node").arg("--test").current_dir(copy));
    let Some(yyjson) = guests::yyjson() else { return };
    let program = scratch.path().join("sdk");
    if run_if_present(native(&sdk, &yyjson, &program).arg(sdk.join("c/test/sdk_test.c"))) {
        succeed(&mut Command::new(program));
    }
    let program = scratch.path().join("sums");
    let own = ["sums.c", "extract.c", "test/sums_test.c"].map(|file| sdk.join("examples/c").join(file));
    if run_if_present(native(&sdk, &yyjson, &program).arg("-I").arg(sdk.join("examples/c")).args(own)) {
        succeed(&mut Command::new(program));
    }
}

/// Returns a C compiler command with the SDK, its stand-in for the host, and yyjson.
fn native(sdk: &Path, yyjson: &Path, program: &Path) -> Command {
    let sdk = sdk.join("c");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-DYYJSON_DISABLE_NON_STANDARD=1", "-o"]).arg(program);
    cc.arg("-I").arg(&sdk).arg("-I").arg(yyjson).arg(yyjson.join("yyjson.c"));
    cc.args(["pl_memory.c", "pl_json.c", "pl_registry.c", "pl_testing.c"].map(|file| sdk.join(file)));
    cc
}

/// Writes the first code blocks of an SDK's page into files.
fn write_blocks(sdk: &Path, language: &str, files: &[PathBuf]) {
    let text = std::fs::read_to_string(sdk.join(language).join("README.md")).unwrap();
    let fence = format!("```{language}\n");
    let blocks = text.split(&fence).skip(1).map(|block| block.split_once("\n```\n").unwrap().0);
    for (file, block) in files.iter().zip(blocks) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, format!("{block}\n")).unwrap();
    }
}

/// Runs a program that must succeed. Returns false, and skips the test, if the machine lacks it.
fn run_if_present(command: &mut Command) -> bool {
    let missing = matches!(command.output(), Err(error) if error.kind() == std::io::ErrorKind::NotFound);
    if missing {
        let program = command.get_program().display();
        pl_testing::skip_or_fail(pl_testing::Requirement::Toolchains, &format!("{program} is missing"));
    } else {
        succeed(command);
    }
    !missing
}

/// Returns the random stream of a seed.
fn stream(seed: u64) -> RandomStream {
    RandomStream::from_parts(&[b"languages", &seed.to_le_bytes()])
}
