//! HumanEval's and MBPP's own solutions under their tests on both backends, and a broken variant of each that must
//! fail; and a problem with stdin and stdout as one job of many cases.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod engine;

use std::io::Read;
use std::path::{Path, PathBuf};

use engine::{Engine, python};
use flate2::read::GzDecoder;
use pl_sandbox::{
    DockerSettings, DockerWorkers, Ending, Job, PythonWorkers, Sandbox, SandboxLimits, Verdict,
};
use pl_wasm::EngineConfig;
use serde_json::Value;

/// A solution with its tests.
struct Program {
    name: String,
    right: String,
    /// Each function gives back what equals nothing.
    broken: String,
}

/// What stands between a solution and its tests in a broken variant.
const BREAK: &str = "\nfor name, value in list(globals().items()):\n    if type(value) is type(lambda: 0):\n        \
                     globals()[name] = lambda *a, **k: object()\n";

fn data(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PL_HOST_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let path = root.join(name);
    if !path.exists() {
        eprintln!("skipped: no {} (set PL_HOST_DATA)", path.display());
        return None;
    }
    Some(path)
}

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn program(name: String, solution: &str, tests: &str) -> Program {
    Program { name, right: format!("{solution}\n{tests}"), broken: format!("{solution}{BREAK}{tests}") }
}

fn human_eval() -> Option<Vec<Program>> {
    let mut text = String::new();
    let file = std::fs::File::open(data("humaneval/HumanEval.jsonl.gz")?).unwrap();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let programs = lines(&text).map(|record| {
        let part = |key: &str| record[key].as_str().unwrap().to_owned();
        let solution = part("prompt") + &part("canonical_solution");
        let tests = format!("{}\ncheck({})\n", part("test"), part("entry_point"));
        program(part("task_id"), &solution, &tests)
    });
    Some(programs.collect())
}

fn mbpp() -> Option<Vec<Program>> {
    let text = std::fs::read_to_string(data("mbpp/mbpp.jsonl")?).unwrap();
    let programs = lines(&text).map(|record| {
        let setup = record["test_setup_code"].as_str().unwrap();
        let tests: Vec<&str> =
            record["test_list"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        // What is set up may be made of what the solution defines.
        let solution = format!("{}\n{setup}\n", record["code"].as_str().unwrap());
        program(format!("MBPP/{}", record["task_id"]), &solution, &tests.join("\n"))
    });
    Some(programs.collect())
}

/// The names of the programs whose right variant fails, and of those whose broken one passes.
async fn wrong(backend: &impl Sandbox, programs: &[Program]) -> (Vec<String>, Vec<String>) {
    let jobs = |pick: fn(&Program) -> &str| programs.iter().map(|one| python(pick(one))).collect();
    let right: Vec<Verdict> = backend.execute(jobs(|one| &one.right)).await;
    let broken: Vec<Verdict> = backend.execute(jobs(|one| &one.broken)).await;
    let named = |verdicts: Vec<Verdict>, ok: bool| {
        let such = programs.iter().zip(verdicts).filter(|(_, verdict)| (verdict.ending == Ending::Ok) == ok);
        such.map(|(one, verdict)| format!("{} {} {}", one.name, verdict.ending.as_str(), last(&verdict)))
            .collect()
    };
    (named(right, false), named(broken, true))
}

fn last(verdict: &Verdict) -> &str {
    verdict.stderr.lines().last().unwrap_or_default()
}

/// A machine that is busy takes its time; the programs themselves are quick.
fn limits() -> SandboxLimits {
    SandboxLimits { workers: 2, ..SandboxLimits::default() }
}

async fn all_hold(backend: &impl Sandbox) {
    for (programs, count) in [(human_eval(), 164), (mbpp(), 974)] {
        let Some(programs) = programs else { continue };
        assert_eq!(programs.len(), count);
        assert_eq!(wrong(backend, &programs).await, (Vec::new(), Vec::new()));
    }
    let Some(path) = data("code_contests/codeforces_test.json") else { return };
    let problems: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    // The first one: the smaller and the larger of two numbers.
    let tests = problems[0]["tests"].as_array().cloned();
    let tests =
        tests.unwrap_or_else(|| serde_json::from_str(problems[0]["tests"].as_str().unwrap()).unwrap());
    let cases = tests.iter().map(|test| test["input"].as_str().unwrap().to_owned()).collect();
    let source = "for _ in range(int(input())):\n    print(*sorted(map(int, input().split())))";
    let verdict = backend.execute(vec![Job { cases, ..python(source) }]).await.remove(0);
    assert_eq!(verdict.ending, Ending::Ok, "{verdict:?}");
    for (test, case) in tests.iter().zip(&verdict.cases) {
        assert_eq!(case.stdout.trim(), test["output"].as_str().unwrap().trim());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_runs_real_programs() {
    let Some(engine) = Engine::start("programs").await else { return };
    let settings = DockerSettings { limits: limits(), ..engine.settings() };
    let workers = DockerWorkers::start(settings, |_| ()).await.unwrap();
    all_hold(&workers).await;
    workers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wasm_runs_real_programs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/python.wasm");
    let component = std::fs::read(path).unwrap_or_else(|e| panic!("{e}; `cargo xtask setup` builds it"));
    let engine =
        pl_wasm::Engine::new(EngineConfig::workers().cache_dir(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    all_hold(&PythonWorkers::new(&engine, &component, limits()).unwrap()).await;
}
