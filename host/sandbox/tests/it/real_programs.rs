//! The solutions of HumanEval and MBPP under their tests on both backends, and a broken variant of each that
//! must fail; and the problems of CodeContests and Codeforces, each with its tests as one job of many cases.
//! Containers, whose jobs are slow, get a sample of them.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use flate2::read::GzDecoder;
use pl_sandbox::{
    DockerSettings, DockerWorkers, Ending, File, Job, PythonWorkers, Sandbox, SandboxLimits, Verdict,
};
use pl_testing::{data, sample};
use pl_wasm::EngineConfig;
use serde_json::Value;

use crate::engine::{TestEngine, python};

/// A solution with its tests.
struct Program {
    name: String,
    correct: String,
    /// The same with functions that return objects equal to nothing.
    broken: String,
}

/// Code between a solution and its tests in a broken variant.
const BREAK: &str = "\nfor name, value in list(globals().items()):\n    if type(value) is type(lambda: 0):\n        \
                     globals()[name] = lambda *a, **k: object()\n";

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn program(name: String, solution: &str, tests: &str) -> Program {
    Program { name, correct: format!("{solution}\n{tests}"), broken: format!("{solution}{BREAK}{tests}") }
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
        // The setup code may use what the solution defines.
        let solution = format!("{}\n{setup}\n", record["code"].as_str().unwrap());
        program(format!("MBPP/{}", record["task_id"]), &solution, &tests.join("\n"))
    });
    Some(programs.collect())
}

/// Returns the programs whose correct variant fails, and those whose broken variant passes.
async fn misjudged(backend: &impl Sandbox, programs: &[Program]) -> (Vec<String>, Vec<String>) {
    let jobs = |pick: fn(&Program) -> &str| programs.iter().map(|one| python(pick(one))).collect();
    let correct: Vec<Verdict> = backend.execute(jobs(|one| &one.correct)).await;
    let broken: Vec<Verdict> = backend.execute(jobs(|one| &one.broken)).await;
    let named = |verdicts: Vec<Verdict>, ok: bool| {
        let selected =
            programs.iter().zip(verdicts).filter(|(_, verdict)| (verdict.ending == Ending::Ok) == ok);
        selected
            .map(|(one, verdict)| format!("{} {} {}", one.name, verdict.ending.as_str(), last_line(&verdict)))
            .collect()
    };
    (named(correct, false), named(broken, true))
}

fn last_line(verdict: &Verdict) -> &str {
    verdict.stderr.lines().last().unwrap_or_default()
}

/// Higher than the defaults: some problems print more, and a busy machine is slow.
fn limits() -> SandboxLimits {
    SandboxLimits {
        workers: 2,
        timeout: Duration::from_secs(90),
        output: 1 << 20,
        ..SandboxLimits::default()
    }
}

/// Checks every `step`-th program and problem.
async fn check_programs(backend: &impl Sandbox, step: usize) {
    for (programs, count) in [(human_eval(), 164), (mbpp(), 974)] {
        let Some(programs) = programs else { continue };
        assert_eq!(programs.len(), count);
        assert_eq!(misjudged(backend, &sample(programs, step)).await, (Vec::new(), Vec::new()));
    }
    check_contests(backend, step).await;
}

/// Inputs and outputs of a problem.
type Tests = Vec<(String, String)>;

/// Returns the problems of a set, in its order.
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

/// Prints the expected output, which it reads from a file of the job.
const ANSWER: &str = "import json, sys\nprint(json.load(open('answers.json'))[sys.stdin.read()])";
/// Prints the expected output without its last word.
const INCOMPLETE: &str =
    "import json, sys\nprint(*json.load(open('answers.json'))[sys.stdin.read()].split()[:-1])";

fn with_answers(source: &str, tests: &Tests) -> Job {
    let answers: Value = tests.iter().cloned().map(|(input, output)| (input, Value::from(output))).collect();
    let file = File { path: "answers.json".to_owned(), bytes: answers.to_string().into_bytes() };
    Job { files: vec![file], ..with_cases(source, tests) }
}

fn with_cases(source: &str, tests: &Tests) -> Job {
    Job { cases: tests.iter().map(|(input, _)| input.clone()).collect(), ..python(source) }
}

/// Returns the number of cases that printed the expected words.
fn count_passed(verdict: &Verdict, tests: &Tests) -> usize {
    assert_eq!(verdict.cases.len(), tests.len(), "{verdict:?}");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let passed =
        |case: &Verdict, output: &str| case.ending == Ending::Ok && words(&case.stdout) == words(output);
    verdict.cases.iter().zip(tests).filter(|(case, (_, output))| passed(case, output)).count()
}

async fn check_contests(backend: &impl Sandbox, step: usize) {
    for (set, problems, cases) in [("code_contests", 165, 1837), ("codeforces", 408, 468)] {
        let Some(contest) = contest(set) else { continue };
        let count = |contest: &[Tests]| contest.iter().map(Vec::len).sum::<usize>();
        assert_eq!((contest.len(), count(&contest)), (problems, cases));
        let sampled = sample(contest.clone(), step);
        // The sets have no solutions, so these programs look the answers up.
        let mut sums = Vec::new();
        for source in [ANSWER, INCOMPLETE] {
            let jobs = sampled.iter().map(|tests| with_answers(source, tests)).collect();
            let verdicts = backend.execute(jobs).await;
            sums.push(
                verdicts
                    .iter()
                    .zip(&sampled)
                    .map(|(verdict, tests)| count_passed(verdict, tests))
                    .sum::<usize>(),
            );
        }
        assert_eq!(sums, [count(&sampled), 0], "{set}");
        for (name, source) in solutions(set) {
            let tests = &contest[name];
            let jobs = vec![
                with_cases(&source, tests),
                with_cases(&source.replace("print(", "print(0, "), tests),
                // Prints the right output, then reads past the end of its input.
                with_cases(&format!("{source}\ninput()"), tests),
            ];
            let verdicts = backend.execute(jobs).await;
            assert_eq!(count_passed(&verdicts[0], tests), tests.len(), "{set} {name}: {:?}", verdicts[0]);
            assert_eq!(count_passed(&verdicts[1], tests), 0, "{set} {name}");
            assert!(verdicts[2].cases.iter().all(|case| case.ending == Ending::Error), "{set} {name}");
        }
    }
}

/// Returns solutions in Python, with the numbers of their problems.
fn solutions(set: &str) -> Vec<(usize, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/problems");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of_set = files.filter_map(|path| {
        let (name, number) = path.file_stem()?.to_str()?.split_once('-')?;
        (name == set).then(|| (number.parse().unwrap(), std::fs::read_to_string(&path).unwrap()))
    });
    of_set.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_runs_real_programs() {
    let Some(engine) = TestEngine::start("programs").await else { return };
    let settings = DockerSettings { limits: limits(), ..engine.settings() };
    let workers = DockerWorkers::start(settings, |_| ()).await.unwrap();
    check_programs(&workers, 8).await;
    workers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wasm_runs_real_programs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/python.wasm.zst");
    let component = std::fs::read(path).unwrap_or_else(|e| panic!("{e}; `cargo xtask setup` builds it"));
    let engine =
        pl_wasm::Engine::new(EngineConfig::workers().cache_dir(pl_testing::compile_cache())).unwrap();
    check_programs(&PythonWorkers::new(&engine, &component, limits()).unwrap(), 1).await;
}
