//! Verdicts of Python programs on the real worker.

use std::path::Path;
use std::time::{Duration, Instant};

use pl_sandbox::{Ending, File, Job, PythonWorkers, Sandbox, SandboxLimits, Usage, Verdict};
use pl_wasm::{Engine, EngineConfig};

pub fn workers(limits: SandboxLimits) -> PythonWorkers {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/python.wasm.zst");
    let component = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; `cargo xtask setup` builds it", path.display()));
    let engine = Engine::new(EngineConfig::workers().cache_dir(pl_testing::compile_cache())).unwrap();
    PythonWorkers::new(&engine, &component, limits).unwrap()
}

pub fn job(source: &str) -> Job {
    Job { language: "python".to_owned(), source: source.to_owned(), ..Job::default() }
}

async fn run_with(limits: SandboxLimits, source: &str) -> Verdict {
    without_usage(workers(limits).run(job(source)).await)
}

/// Removes the measured usage, which differs from run to run.
fn without_usage(verdict: Verdict) -> Verdict {
    Verdict { usage: Usage::default(), ..verdict }
}

async fn run(source: &str) -> Verdict {
    run_with(SandboxLimits::default(), source).await
}

fn printed(stdout: &str) -> Verdict {
    Verdict { exit: Some(0), stdout: stdout.to_owned(), reproducible: true, ..Verdict::default() }
}

#[tokio::test]
async fn a_program_prints_and_sympy_solves() {
    let source =
        "from sympy import *\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x), integrate(sin(x)**2, x))";
    assert_eq!(run(source).await, printed("[2, 3] x/2 - sin(x)*cos(x)/2\n"));
}

#[tokio::test]
async fn a_byte_order_mark_is_skipped_as_in_a_file() {
    assert_eq!(run("\u{feff}print('\u{feff}' == chr(0xfeff))").await, printed("True\n"));
}

#[tokio::test]
async fn modules_outside_the_snapshot_can_be_imported() {
    let source = "import sqlite3, http.client, xml.etree.ElementTree as t, sympy.physics.units, asyncio\n\
                  print(t.fromstring('<a b=\"1\"/>').attrib, sqlite3.connect(':memory:').execute('select 2').fetchone())";
    assert_eq!(run(source).await, printed("{'b': '1'} (2,)\n"));
}

#[tokio::test]
async fn the_exit_code_is_that_of_a_process() {
    for (source, exit, stderr) in [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit('bad input')", 1, "bad input\n"),
        ("import sys; sys.exit(256 + 7)", 7, ""),
        ("import os, sys; sys.stdout.write('lost'); os._exit(5)", 5, ""),
        ("import os\ntry:\n    os._exit(0)\nfinally:\n    print('never')", 0, ""),
    ] {
        let verdict = run(source).await;
        assert_eq!(verdict.exit, Some(exit), "{source}: {verdict:?}");
        assert_eq!(verdict.ending, if exit == 0 { Ending::Ok } else { Ending::Error }, "{source}");
        assert_eq!(verdict.stderr, stderr, "{source}");
    }
}

#[tokio::test]
async fn tracebacks_do_not_show_the_worker() {
    let verdict = run("print('before')\ndef f():\n    return 1 / 0\nf()").await;
    assert_eq!((verdict.ending, verdict.exit), (Ending::Error, Some(1)));
    assert_eq!(verdict.stdout, "before\n");
    assert!(
        verdict.stderr.starts_with("Traceback (most recent call last):\n  File \"main.py\", line 4"),
        "{}",
        verdict.stderr
    );
    assert!(verdict.stderr.contains("return 1 / 0"), "{}", verdict.stderr);
    assert!(verdict.stderr.ends_with("ZeroDivisionError: division by zero\n"), "{}", verdict.stderr);
    assert!(!verdict.stderr.contains("app.py"), "{}", verdict.stderr);

    let broken = run("print('never')\nif").await;
    assert_eq!((broken.ending, broken.stdout.as_str()), (Ending::Error, ""));
    assert!(broken.stderr.contains("SyntaxError"), "{}", broken.stderr);
}

/// The system copies each page that a job writes to. They were a thousand when imports left gaps in the heap.
#[tokio::test]
async fn objects_of_a_job_lie_side_by_side() {
    let source = "objects = [bytes([65, number % 256]) for number in range(2000)]\n\
                  print(len({id(object) // 4096 for object in objects}) < 30)";
    assert_eq!(run(source).await, printed("True\n"));
}

#[tokio::test]
async fn stdin_and_files_are_the_jobs() {
    let job = Job {
        stdin: "4 5\nsecond\n".to_owned(),
        files: vec![File { path: "data/in.txt".to_owned(), bytes: b"given".to_vec() }],
        ..job("import os, sys\na, b = map(int, input().split())\n\
             print(a * b, sys.stdin.read().strip(), open('data/in.txt').read(), os.listdir('.'))\n\
             open('out', 'w').write('mine'); print(open('out').read())")
    };
    let workers = workers(SandboxLimits::default());
    assert_eq!(without_usage(workers.run(job.clone()).await), printed("20 second given ['data']\nmine\n"));
    // The next job does not see these files.
    let next = Job { files: Vec::new(), ..self::job("import os; print(os.listdir('.'))") };
    assert_eq!(without_usage(workers.run(next).await), printed("[]\n"));
    let outside = Job { files: vec![File { path: "../x".to_owned(), bytes: Vec::new() }], ..job };
    let refused = workers.run(outside).await;
    assert_eq!(refused.ending, Ending::Error);
    assert!(refused.stderr.contains("leads out of its folder"), "{}", refused.stderr);
}

#[tokio::test]
async fn an_endless_loop_times_out_at_the_same_place_each_time() {
    let limits = SandboxLimits { timeout: Duration::from_millis(200), ..SandboxLimits::default() };
    let source = "import sys\nn = 0\nwhile True:\n    n += 1\n    sys.stdout.write(str(n) + '\\n'); sys.stdout.flush()\n    n += sum(range(1000)) - 499500";
    let workers = workers(SandboxLimits { output: 10 << 20, ..limits });
    let first = without_usage(workers.run(job(source)).await);
    assert_eq!((first.ending, first.exit, first.reproducible), (Ending::Timeout, None, true));
    assert!(first.stdout.lines().count() > 10, "{first:?}");
    assert_eq!(first.stderr, "sandbox: it ran longer than 0.2 s\n");
    assert_eq!(without_usage(workers.run(job(source)).await), first);
}

#[tokio::test]
async fn a_timeout_of_the_wall_clock_is_not_reproducible() {
    let limits = SandboxLimits {
        timeout: Duration::from_millis(20),
        fuel: Some(u64::MAX / 4),
        ..SandboxLimits::default()
    };
    let verdict = run_with(limits, "while True: pass").await;
    assert_eq!((verdict.ending, verdict.reproducible), (Ending::Timeout, false));
}

#[tokio::test]
async fn sleeping_advances_only_the_clock_of_the_job() {
    let started = Instant::now();
    let limits = SandboxLimits { timeout: Duration::from_secs(10_000), ..SandboxLimits::default() };
    let source = "import time\na = time.time(); time.sleep(5000); b = time.time()\nprint(round(b - a, 1), round(a) // 10**8)";
    assert_eq!(run_with(limits, source).await, printed("5000.0 17\n"));
    let over = run("import time\ntime.sleep(30)\nprint('never')").await;
    assert_eq!((over.ending, over.stdout.as_str()), (Ending::Timeout, ""));
    // A fifth of the time that it slept.
    assert!(started.elapsed() < Duration::from_secs(1000), "{:?}", started.elapsed());
}

#[tokio::test]
async fn time_and_randomness_depend_on_the_job_alone() {
    let source = "import random, time, os, uuid\nprint(random.random(), time.time(), time.perf_counter(), os.urandom(4), uuid.uuid4(), hash('x'), id(random) % 97)";
    let (first, second) = (run(source).await, run(source).await);
    assert_eq!(first.ending, Ending::Ok, "{first:?}");
    assert_eq!(first, second);
    let other = run(&format!("{source} # another program")).await;
    assert_ne!(first.stdout.split(' ').next(), other.stdout.split(' ').next());
}

#[tokio::test]
async fn memory_has_a_limit_that_a_program_may_handle() {
    let verdict = run("x = []\nwhile True: x.append(bytearray(10**6))").await;
    assert_eq!((verdict.ending, verdict.reproducible), (Ending::Memory, true), "{verdict:?}");
    assert!(verdict.stderr.contains("MemoryError"), "{}", verdict.stderr);
    let at_once = run("x = 'a' * 10**10").await;
    assert!(matches!(at_once.ending, Ending::Memory | Ending::Error), "{at_once:?}");
    assert_eq!(
        run("try:\n    x = bytearray(10**9)\nexcept MemoryError:\n    print('handled')").await,
        printed("handled\n")
    );
}

#[tokio::test]
async fn output_has_a_limit_and_its_beginning_is_kept() {
    let limits = SandboxLimits { output: 1000, ..SandboxLimits::default() };
    let verdict = run_with(limits, "while True: print('x' * 99)").await;
    assert_eq!(verdict.ending, Ending::OutputLimit);
    assert!(verdict.stdout.ends_with("xxx\n[cut after 1000 bytes]\n"), "{verdict:?}");
    assert_eq!(verdict.stderr, "sandbox: it printed more than the 1000 bytes that are kept\n");
}

#[tokio::test]
async fn deep_recursion_is_an_error_of_the_program() {
    let verdict = run("def f(n): return f(n + 1)\nf(0)").await;
    assert_eq!((verdict.ending, verdict.exit), (Ending::Error, Some(1)));
    assert!(verdict.stderr.contains("RecursionError"), "{}", verdict.stderr);
    let forced = run("import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return [f(n + 1)]\nf(0)").await;
    assert_ne!(forced.ending, Ending::Ok);
    assert_ne!(forced.ending, Ending::LostWorker, "{forced:?}");
    // Recursion through C frames, which use the interpreter's own stack.
    let nested = run("import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    def __repr__(self): return repr([self])\nrepr(A())").await;
    assert_ne!(nested.ending, Ending::Ok);
    assert_ne!(nested.ending, Ending::LostWorker, "{nested:?}");
}

#[tokio::test]
async fn there_is_no_way_out() {
    for source in [
        "import socket; socket.create_connection(('127.0.0.1', 22))",
        "import subprocess; subprocess.run(['ls'])",
        "import os; os.fork()",
        "open('/etc/passwd')",
        "import ctypes",
    ] {
        let verdict = run(source).await;
        assert_eq!((verdict.ending, verdict.exit), (Ending::Error, Some(1)), "{source}: {verdict:?}");
    }
    let verdict = run("import os; print(dict(os.environ), os.listdir('/'))").await;
    assert_eq!(verdict, printed("{} []\n"));
}

#[tokio::test]
async fn jobs_share_nothing_and_verdicts_keep_their_order() {
    let workers = workers(SandboxLimits { workers: 2, ..SandboxLimits::default() });
    let jobs = (0..12)
        .map(|n| {
            job(&format!("import builtins\nprint(getattr(builtins, 'mark', None), {n})\nbuiltins.mark = 1"))
        })
        .collect();
    let verdicts: Vec<Verdict> = workers.execute(jobs).await.into_iter().map(without_usage).collect();
    let expected: Vec<Verdict> = (0..12).map(|n| printed(&format!("None {n}\n"))).collect();
    assert_eq!(verdicts, expected);
}

#[tokio::test]
async fn another_language_is_refused() {
    let verdict =
        workers(SandboxLimits::default()).run(Job { language: "perl".to_owned(), ..Job::default() }).await;
    assert_eq!(verdict.ending, Ending::LostWorker);
    assert!(verdict.stderr.contains("runs Python, not \"perl\"; the docker backend does"), "{verdict:?}");
    let compiled = Job { compile: vec!["cc".to_owned()], ..job("") };
    let verdict = workers(SandboxLimits::default()).run(compiled).await;
    assert!(verdict.stderr.contains("takes no command lines"), "{verdict:?}");
}

#[tokio::test]
async fn each_case_has_its_verdict() {
    let cases = ["1", "0", "2"].map(str::to_owned).to_vec();
    let job = Job { cases, ..job("print(1 // int(input()))") };
    let verdict = workers(SandboxLimits::default()).run(job).await;
    let endings: Vec<Ending> = verdict.cases.iter().map(|case| case.ending).collect();
    assert_eq!(endings, [Ending::Ok, Ending::Error, Ending::Ok]);
    assert_eq!(verdict.cases[2].stdout, "0\n");
    assert_eq!((verdict.ending, verdict.exit), (Ending::Error, Some(1)));
    assert!(verdict.usage.memory.is_some_and(|memory| memory > 50 << 20), "{:?}", verdict.usage);
}

#[test]
fn other_components_are_refused_with_advice() {
    let engine = Engine::new(EngineConfig::workers()).unwrap();
    let start = |component: &[u8]| {
        let compressed = zstd::encode_all(component, 0).unwrap();
        PythonWorkers::new(&engine, &compressed, SandboxLimits::default())
    };
    let Err(error) = start(b"(component)") else { panic!() };
    assert!(error.to_string().contains("text form"), "{error}");
    let Err(error) = start(b"\0asm\x0d\0\x01\0") else { panic!() };
    assert!(error.to_string().contains("cargo xtask setup"), "{error}");
}
