//! HumanEval's and MBPP's own solutions under their tests on both backends, and a broken variant of each that must
//! fail; and the problems of CodeContests and Codeforces, each with its tests as one job of many cases.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use pl_sandbox::{
    DockerSettings, DockerWorkers, Ending, File, Job, PythonWorkers, Sandbox, SandboxLimits, Verdict,
};
use pl_wasm::EngineConfig;
use serde_json::Value;

use crate::engine::{Engine, python};

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

/// Some problems ask for more output than is usually kept, and a machine that is busy takes its time.
fn limits() -> SandboxLimits {
    SandboxLimits {
        workers: 2,
        timeout: Duration::from_secs(90),
        output: 1 << 20,
        ..SandboxLimits::default()
    }
}

async fn all_hold(backend: &impl Sandbox) {
    for (programs, count) in [(human_eval(), 164), (mbpp(), 974)] {
        let Some(programs) = programs else { continue };
        assert_eq!(programs.len(), count);
        assert_eq!(wrong(backend, &programs).await, (Vec::new(), Vec::new()));
    }
    contests_hold(backend).await;
}

/// A problem's inputs and outputs.
type Tests = Vec<(String, String)>;

/// The problems of a set, in its order.
fn contest(set: &str) -> Option<Vec<Tests>> {
    let text = std::fs::read(data(&format!("code_contests/{set}_test.json"))?).unwrap();
    let problems: Vec<Value> = serde_json::from_slice(&text).unwrap();
    let part = |value: &Value| value.as_str().unwrap().to_owned();
    let tests = problems.iter().map(|problem| match &problem["tests"] {
        Value::Array(list) => list.iter().map(|test| (part(&test["input"]), part(&test["output"]))).collect(),
        lists => {
            let list = |key: &str| lists[key].as_array().unwrap().iter().map(part).collect::<Vec<_>>();
            list("inputs").into_iter().zip(list("outputs")).collect()
        }
    });
    Some(tests.collect())
}

/// Answers with what stands in a file of the job: what a solution would print, whatever the problem.
const ANSWER: &str = "import json, sys\nprint(json.load(open('answers.json'))[sys.stdin.read()])";
/// Leaves out the last word.
const SPOILT: &str =
    "import json, sys\nprint(*json.load(open('answers.json'))[sys.stdin.read()].split()[:-1])";

fn by_the_book(source: &str, tests: &Tests) -> Job {
    let answers: Value = tests.iter().cloned().map(|(input, output)| (input, Value::from(output))).collect();
    let file = File { path: "answers.json".to_owned(), bytes: answers.to_string().into_bytes() };
    Job { files: vec![file], ..with_cases(source, tests) }
}

fn with_cases(source: &str, tests: &Tests) -> Job {
    Job { cases: tests.iter().map(|(input, _)| input.clone()).collect(), ..python(source) }
}

/// How many cases printed the right words.
fn right(verdict: &Verdict, tests: &Tests) -> usize {
    assert_eq!(verdict.cases.len(), tests.len(), "{verdict:?}");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let right =
        |case: &Verdict, output: &str| case.ending == Ending::Ok && words(&case.stdout) == words(output);
    verdict.cases.iter().zip(tests).filter(|(case, (_, output))| right(case, output)).count()
}

async fn contests_hold(backend: &impl Sandbox) {
    for (set, problems, cases) in [("code_contests", 165, 1837), ("codeforces", 408, 468)] {
        let Some(contest) = contest(set) else { continue };
        let count: usize = contest.iter().map(Vec::len).sum();
        assert_eq!((contest.len(), count), (problems, cases));
        // The sets hold no solutions: these go through every problem's tests with a book of answers.
        let mut sums = Vec::new();
        for source in [ANSWER, SPOILT] {
            let jobs = contest.iter().map(|tests| by_the_book(source, tests)).collect();
            let verdicts = backend.execute(jobs).await;
            sums.push(
                verdicts.iter().zip(&contest).map(|(verdict, tests)| right(verdict, tests)).sum::<usize>(),
            );
        }
        assert_eq!(sums, [cases, 0], "{set}");
        for (name, source) in solutions(set) {
            let tests = &contest[name];
            let jobs = vec![
                with_cases(&source, tests),
                with_cases(&source.replace("print(", "print(0, "), tests),
                // Right, but it reads on after the end.
                with_cases(&format!("{source}\ninput()"), tests),
            ];
            let verdicts = backend.execute(jobs).await;
            assert_eq!(right(&verdicts[0], tests), tests.len(), "{set} {name}: {:?}", verdicts[0]);
            assert_eq!(right(&verdicts[1], tests), 0, "{set} {name}");
            assert!(verdicts[2].cases.iter().all(|case| case.ending == Ending::Error), "{set} {name}");
        }
    }
}

/// Solutions in Python, by the number of their problem.
fn solutions(set: &str) -> Vec<(usize, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/problems");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of_set = files.filter_map(|path| {
        let (of, number) = path.file_stem()?.to_str()?.split_once('-')?;
        (of == set).then(|| (number.parse().unwrap(), std::fs::read_to_string(&path).unwrap()))
    });
    of_set.collect()
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
