//! Worker processes: the same verdicts as those of instances in this process, behind walls that hold if the
//! WebAssembly engine doesn't.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pl_sandbox::{
    Ending, File, Job, ProcessSettings, ProcessWorkers, SandboxLimits, Usage, Verdict, WorkerProgram,
};

use crate::python::{job, workers as instances};

/// A program of this package that tests start: an example, which cargo puts next to the tests' folder.
fn program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().with_file_name("examples").join(name)
}

fn limits() -> SandboxLimits {
    SandboxLimits { workers: 1, timeout: Duration::from_secs(2), output: 4096, ..SandboxLimits::default() }
}

fn settings(limits: SandboxLimits, jobs_per_worker: u32) -> ProcessSettings {
    let component =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/python.wasm.zst");
    let arguments = vec![component.display().to_string()];
    ProcessSettings {
        program: WorkerProgram { path: program("sandbox-worker"), arguments },
        cache_dir: pl_testing::compile_cache(),
        limits,
        jobs_per_worker,
    }
}

pub async fn processes(limits: SandboxLimits) -> ProcessWorkers {
    start(settings(limits, 1000)).await
}

async fn start(settings: ProcessSettings) -> ProcessWorkers {
    // Compiles the component if it is not in the cache: a process may take too long for that.
    instances(limits());
    ProcessWorkers::start(settings).await.unwrap()
}

fn without_usage(mut verdict: Verdict) -> Verdict {
    verdict.usage = Usage::default();
    for case in &mut verdict.cases {
        case.usage = Usage::default();
    }
    verdict
}

/// Ids of the processes that this one has started and that are still there.
pub fn children() -> Vec<u32> {
    children_of("self")
}

/// Ids of the processes that a process has started and that are still there.
fn children_of(process: &str) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let lists = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap());
    lists
        .flat_map(|list| list.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<u32>>())
        .collect()
}

/// Returns false also for a zombie, a process that has ended and still has its entry.
fn is_running(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The state follows the name, which is in brackets.
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
}

fn kill(process: u32) {
    assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
}

#[tokio::test]
async fn verdicts_are_those_of_instances() {
    let (processes, instances) = (processes(limits()).await, instances(limits()));
    let files = vec![File { path: "a/b.txt".to_owned(), bytes: b"content".to_vec() }];
    let cases = vec!["1\n".to_owned(), "x\n".to_owned(), "3\n".to_owned()];
    let jobs = [
        job("import random\nprint(random.random(), 'é')"),
        job("raise ValueError('no')"),
        job("import sys; sys.exit(3)"),
        job("while True: pass"),
        job("x = [bytearray(1 << 20) for _ in range(1000)]"),
        job("print('x' * 5000)"),
        job("import sys\nsys.stdout.buffer.write(b'\\xff' * 4000)"),
        job("print(input())"),
        Job { files, ..job("print(open('a/b.txt').read())") },
        Job { cases, ..job("print(int(input()) * 2)") },
        Job { language: "shell".to_owned(), ..job("true") },
    ];
    for job in jobs {
        let expected = without_usage(instances.run(job.clone()).await);
        assert_eq!(without_usage(processes.run(job).await), expected);
    }
}

#[tokio::test]
async fn a_process_is_confined_and_ends_with_its_owner() {
    let workers = processes(limits()).await;
    let [process] = children()[..] else { panic!("{:?}", children()) };
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!((field("Seccomp:"), field("NoNewPrivs:")), ("2".to_owned(), "1".to_owned()));
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    for limit in ["Max file size", "Max open files", "Max core file size"] {
        let line = limits.lines().find_map(|line| line.strip_prefix(limit)).unwrap();
        assert_eq!(line.split_whitespace().take(2).collect::<Vec<_>>(), ["0", "0"], "{limit}");
    }
    let oom_score = std::fs::read_to_string(format!("/proc/{process}/oom_score_adj")).unwrap();
    assert_eq!(oom_score, "1000\n");
    drop(workers);
    assert_eq!(children(), Vec::<u32>::new());
}

#[tokio::test]
async fn a_killed_owner_leaves_no_process() {
    // Compiles the component if it is not in the cache: a process may take too long for that.
    instances(limits());
    let ProcessSettings { program: worker, cache_dir, .. } = settings(limits(), 1000);
    // Without a job, and in the middle of one.
    for source in [None, Some("while True: pass")] {
        let mut owner = Command::new(program("sandbox-owner"))
            .arg(&worker.path)
            .args(&worker.arguments)
            .arg(&cache_dir)
            .args(source)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(owner.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "started\n");
        std::thread::sleep(Duration::from_millis(100));
        let [process] = children_of(&owner.id().to_string())[..] else { panic!("{source:?}: no process") };
        assert!(is_running(process), "{source:?}");
        // By SIGKILL.
        owner.kill().unwrap();
        owner.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while is_running(process) {
            assert!(Instant::now() < deadline, "{source:?}: it goes on without its owner");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[tokio::test]
async fn a_lost_process_costs_no_job() {
    let workers = processes(limits()).await;
    kill(children()[0]);
    assert_eq!(workers.run(job("print(1)")).await.stdout, "1\n");
    // In the middle of a job.
    let working = job("for i in range(3_000_000): pass\nprint('done')");
    let (verdict, ()) = tokio::join!(workers.run(working), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        kill(children()[0]);
    });
    assert_eq!((verdict.ending, verdict.stdout.as_str()), (Ending::Ok, "done\n"));
}

#[tokio::test]
async fn a_process_is_replaced_after_its_jobs() {
    let workers = start(settings(limits(), 2)).await;
    let first = children();
    workers.run(job("pass")).await;
    assert_eq!(children(), first);
    workers.run(job("pass")).await;
    assert_eq!(children(), Vec::<u32>::new());
    assert_eq!(workers.run(job("print(1)")).await.stdout, "1\n");
}

#[tokio::test]
async fn a_process_that_computes_without_a_job_is_ended() {
    // The control: one that waits stays, whatever its job has taken.
    let workers = processes(limits()).await;
    let first = children();
    assert_eq!(workers.run(job("for i in range(3_000_000): pass")).await.ending, Ending::Ok);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(children(), first);
    drop(workers);

    let mut computing = settings(limits(), 1000);
    computing.program.arguments.push("compute".to_owned());
    let workers = start(computing).await;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !children().is_empty() {
        assert!(Instant::now() < deadline, "it still computes");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(workers.run(job("print(1)")).await.stdout, "1\n");
}

#[tokio::test]
async fn a_program_that_is_no_worker_is_explained() {
    let cases = [
        ("/nonexistent", "cannot start it: No such file or directory (os error 2)"),
        ("/bin/true", "it ended by itself (exit status: 0)"),
    ];
    for (path, expected) in cases {
        let program = WorkerProgram { path: path.into(), arguments: Vec::new() };
        let Err(error) = ProcessWorkers::start(ProcessSettings { program, ..settings(limits(), 1) }).await
        else {
            panic!()
        };
        assert_eq!(error.to_string(), format!("the worker process {path}: {expected}"));
    }
}

/// Each call succeeds outside, and ends a confined process by the filter, or fails by a limit.
#[test]
fn a_confined_process_can_do_nothing_else() {
    let attacks = [
        "read",
        "write",
        "connect",
        "run",
        "thread",
        "signal",
        "trace",
        "map_code",
        "make_code",
        "memory",
        "shared_memory",
        "stack_memory",
    ];
    let run = |attack: &str, confined: &[&str]| {
        Command::new(program("sandbox-escape")).arg(attack).args(confined).status().unwrap()
    };
    // The control of the attacks on memory: what is within the limit.
    assert!(run("some_memory", &["confined"]).success());
    for attack in attacks {
        assert!(run(attack, &[]).success(), "{attack} doesn't work without the walls either");
        let status = run(attack, &["confined"]);
        match attack {
            "memory" => assert_eq!(status.code(), Some(1), "{attack}: {status}"),
            _ => assert_eq!(status.signal(), Some(libc::SIGSYS), "{attack}: {status}"),
        }
    }
}
