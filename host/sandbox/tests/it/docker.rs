//! Verdicts of jobs in containers on a real engine, and the life cycle of the containers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use pl_sandbox::{DockerSettings, DockerWorkers, Ending, File, Job, Sandbox, SandboxLimits, Usage, Verdict};

use crate::engine::{self, TestEngine, python};

/// Limit of a wait that would otherwise never end if a test fails.
const HANG: Duration = Duration::from_secs(120);

/// One engine for all checks: starting one takes longer than any of them.
#[tokio::test(flavor = "multi_thread")]
async fn containers() {
    let scripts = tempfile::tempdir().unwrap();
    let Some(mut engine) = TestEngine::start_with("containers", &runtimes(scripts.path())).await else {
        return;
    };
    verdicts(&engine).await;
    languages_files_and_cases(&engine).await;
    nothing_stays(&engine).await;
    limits_are_those_of_the_settings(&engine).await;
    a_runtime_without_limits_is_refused(&engine).await;
    a_kernel_of_its_own_runs_jobs(&engine).await;
    images_that_keep_files_of_jobs_are_refused(&engine).await;
    containers_are_closed(&engine).await;
    containers_are_replaced(&engine).await;
    an_engine_that_fails_is_left_out(&engine).await;
    problems_have_messages(&engine).await;
    a_killed_owner_leaves_nothing(&engine).await;
    a_restart_loses_no_job(&mut engine).await;
}

async fn start(settings: DockerSettings) -> DockerWorkers {
    DockerWorkers::start(settings, |_| ()).await.unwrap()
}

/// Runs a job and returns its verdict without the measured usage.
async fn run(workers: &DockerWorkers, job: Job) -> Verdict {
    Verdict { usage: Usage::default(), ..workers.run(job).await }
}

fn printed(stdout: &str) -> Verdict {
    Verdict { exit: Some(0), stdout: stdout.to_owned(), reproducible: true, ..Verdict::default() }
}

async fn verdicts(engine: &TestEngine) {
    let limits = SandboxLimits {
        workers: 1,
        timeout: Duration::from_millis(1500),
        memory: 64 << 20,
        output: 1000,
        fuel: None,
    };
    let workers = start(DockerSettings { limits, pids: 16, ..engine.settings() }).await;
    let end = async |source: &str| {
        let verdict = run(&workers, python(source)).await;
        (verdict.ending, verdict.exit, verdict.stdout, verdict.stderr)
    };
    assert_eq!(run(&workers, python("print(6 * 7)")).await, printed("42\n"));
    assert_eq!(end("import sys; sys.exit(3)").await, (Ending::Error, Some(3), String::new(), String::new()));
    assert_eq!(end("import os; os._exit(5)").await.1, Some(5));

    let (ending, exit, _, stderr) = end("def f():\n    return 1 / 0\nf()").await;
    assert_eq!((ending, exit), (Ending::Error, Some(1)));
    assert!(
        stderr.contains("line 2, in f") && stderr.ends_with("ZeroDivisionError: division by zero\n"),
        "{stderr}"
    );

    let (ending, exit, stdout, stderr) = end("print('before', flush=True)\nwhile True: pass").await;
    assert_eq!((ending, exit, stdout.as_str()), (Ending::Timeout, None, "before\n"));
    assert_eq!(stderr, "sandbox: it ran longer than 1.5 s\n");

    let (ending, _, _, stderr) = end("x = bytearray(200 << 20)").await;
    assert_eq!(ending, Ending::Memory);
    assert_eq!(stderr, "sandbox: it needed more memory than the 64 MiB that it may have\n");

    let (ending, exit, stdout, stderr) = end("while True: print('x' * 99)").await;
    assert_eq!((ending, exit), (Ending::OutputLimit, None));
    assert!(stdout.ends_with("xxx\n[cut after 1000 bytes]\n") && stdout.len() == 1000 + 23, "{stdout:?}");
    assert!(stderr.contains("it printed more than the 1000 bytes that are kept\n"), "{stderr}");

    let bomb = "import os, time\nfor _ in range(40):\n    if os.fork() == 0: time.sleep(60)";
    assert_eq!(end(bomb).await.0, Ending::ProcessLimit);

    let (ending, exit, _, stderr) = end("import os; os.kill(os.getpid(), 11)").await;
    assert_eq!((ending, exit, stderr.as_str()), (Ending::Error, Some(139), "sandbox: signal 11 ended it\n"));

    assert_eq!(end("import os; os.write(1, b'\\xff\\x00ok')").await.2, "\u{fffd}\0ok");
    let verdict = workers.run(python("x = bytearray(30 << 20)\nimport time; time.sleep(0.2)")).await;
    assert!(verdict.usage.time > Duration::from_millis(200), "{:?}", verdict.usage);
    assert!(
        verdict.usage.memory.is_some_and(|peak| peak > 30 << 20 && peak < 60 << 20),
        "{:?}",
        verdict.usage
    );
    workers.shut_down().await;
}

async fn languages_files_and_cases(engine: &TestEngine) {
    let workers = start(engine.settings()).await;
    let shell =
        Job { language: "shell".to_owned(), source: "read x; echo got $x".to_owned(), ..Job::default() };
    assert_eq!(run(&workers, Job { stdin: "a b\n".to_owned(), ..shell }).await, printed("got a b\n"));

    let line = ["sh", "-c", "sed s/a/b/ {file}"].map(str::to_owned).to_vec();
    let other =
        Job { language: "text".to_owned(), source: "banana\n".to_owned(), run: line, ..Job::default() };
    assert_eq!(run(&workers, other.clone()).await, printed("bbnana\n"));
    let unknown = run(&workers, Job { run: Vec::new(), ..other }).await;
    assert!(unknown.stderr.contains("no command line is known for \"text\""), "{unknown:?}");
    let missing = run(&workers, Job { run: vec!["perl6".to_owned()], ..python("") }).await;
    assert_eq!(missing.ending, Ending::Error);
    assert!(missing.stderr.contains("perl6 can't be started: No such file"), "{missing:?}");

    let given = File { path: "data/in.txt".to_owned(), bytes: b"given".to_vec() };
    let job = Job {
        files: vec![given.clone()],
        output_files: ["out.bin", "data/in.txt", "none"].map(str::to_owned).to_vec(),
        ..python("open('out.bin', 'wb').write(bytes(range(256)) * 4)\nprint(open('data/in.txt').read())")
    };
    let kept = File { path: "out.bin".to_owned(), bytes: (0..=255_u8).cycle().take(1024).collect() };
    assert_eq!(
        run(&workers, job.clone()).await,
        Verdict { output_files: vec![kept, given], ..printed("given\n") }
    );
    let outside = Job { files: vec![File { path: "../x".to_owned(), bytes: Vec::new() }], ..job };
    let refused = run(&workers, outside).await;
    assert!(refused.stderr.contains("leads out of its folder"), "{refused:?}");

    // Compiled once, run for each case from the same files.
    let cases = ["2", "x", "3"].map(str::to_owned).to_vec();
    let job = Job {
        language: "shell".to_owned(),
        source: "echo 'read n; test -e left && echo LEFT; touch left; echo $((n * n))' > program".to_owned(),
        compile: ["sh", "{file}"].map(str::to_owned).to_vec(),
        run: ["sh", "program"].map(str::to_owned).to_vec(),
        cases,
        ..Job::default()
    };
    let verdict = run(&workers, job.clone()).await;
    let outputs: Vec<&str> = verdict.cases.iter().map(|case| case.stdout.as_str()).collect();
    assert_eq!(outputs, ["4\n", "", "9\n"], "{verdict:?}");
    let broken = run(&workers, Job { source: "echo no >&2; exit 2".to_owned(), ..job }).await;
    assert_eq!((broken.ending, broken.exit, broken.cases.len()), (Ending::Error, Some(2), 3));
    assert_eq!(broken.stderr, "no\nsandbox: it was not run, as it does not compile\n");

    // The working folder has the file, which counts as the job's memory, and the supervisor has a copy.
    let limits = SandboxLimits { workers: 1, memory: 32 << 20, ..SandboxLimits::default() };
    let small = start(DockerSettings { limits, ..engine.settings() }).await;
    let job = Job {
        language: "shell".to_owned(),
        source: "head -c 25165824 /dev/zero > program".to_owned(),
        compile: ["sh", "{file}"].map(str::to_owned).to_vec(),
        run: ["sh", "-c", "wc -c < program"].map(str::to_owned).to_vec(),
        ..Job::default()
    };
    assert_eq!(run(&small, job).await, printed("25165824\n"));
    small.shut_down().await;

    let job =
        Job { cases: ["1", "0", "2"].map(str::to_owned).to_vec(), ..python("print(1 // int(input()))") };
    let verdict = run(&workers, job).await;
    let endings: Vec<Ending> = verdict.cases.iter().map(|case| case.ending).collect();
    assert_eq!(endings, [Ending::Ok, Ending::Error, Ending::Ok]);
    assert_eq!(verdict.ending, Ending::Error);
    workers.shut_down().await;
}

async fn nothing_stays(engine: &TestEngine) {
    let limits = SandboxLimits { workers: 1, ..engine.settings().limits };
    let workers = start(DockerSettings { limits, ..engine.settings() }).await;
    let before = engine.containers();
    let leave = r#"
import ctypes, mmap, os, socket, subprocess, sys
os.makedirs('/work/' + 'd/' * 100); os.chmod('/work/d', 0)
for place in ('/work', '/tmp', '/dev/shm'):
    open(place + '/left', 'w').write('x'); os.symlink('/etc/passwd', place + '/link'); os.mkfifo(place + '/pipe')
libc = ctypes.CDLL(None)
assert libc.shmget(7, 4096, 0o1666) >= 0 and libc.semget(7, 1, 0o1666) >= 0 and libc.msgget(7, 0o1666) >= 0
assert libc.mq_open(b'/left', os.O_CREAT | os.O_RDWR, 0o600, None) >= 0
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        import signal
        for number in range(1, 32):
            try: signal.signal(number, signal.SIG_IGN)
            except OSError: pass
        while True: pass
print('left')
"#;
    let look = r#"
import os
for place in ('/work', '/tmp', '/dev/shm', '/dev/mqueue'): print(place, sorted(os.listdir(place)))
for kind in ('shm', 'sem', 'msg'): print(kind, len(open('/proc/sysvipc/' + kind).readlines()))
print(sum(name.isdigit() and int(name) != os.getpid() for name in os.listdir('/proc')))
"#;
    for _ in 0..3 {
        assert_eq!(run(&workers, python(leave)).await, printed("left\n"));
        let expected = "/work ['main.py']\n/tmp []\n/dev/shm []\n/dev/mqueue []\nshm 1\nsem 1\nmsg 1\n1\n";
        assert_eq!(run(&workers, python(look)).await, printed(expected));
    }
    assert_eq!(engine.containers(), before, "a clean container is not replaced");
    workers.shut_down().await;
}

async fn limits_are_those_of_the_settings(engine: &TestEngine) {
    let workers = start(DockerSettings { pids: 20, cpus: 0.5, ..engine.settings() }).await;
    let containers = engine.containers();
    assert_eq!(containers.len(), 2);
    let format = "{{.HostConfig.PidsLimit}} {{.HostConfig.NanoCpus}} {{.HostConfig.NetworkMode}} \
                  {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} \
                  {{.HostConfig.SecurityOpt}} {{.HostConfig.Privileged}} {{.HostConfig.LogConfig.Type}}";
    assert_eq!(
        engine.docker(&["inspect", "--format", format, &containers[0]]),
        "21 500000000 none true [ALL] [no-new-privileges] false none"
    );
    let users: Vec<String> =
        containers.iter().map(|id| engine.docker(&["inspect", "--format", "{{.Config.User}}", id])).collect();
    assert!(users[0] != users[1] && !users.iter().any(|user| user.starts_with('0')), "{users:?}");
    workers.shut_down().await;
    assert_eq!(engine.containers(), Vec::<String>::new());
}

/// Writes runtimes, and returns the engine's arguments for them: `unlimited` starts containers without the limits that they
/// should have, as engines without control groups do, some of them a second later than others; `gvisor` is gVisor's.
fn runtimes(folder: &Path) -> Vec<String> {
    let scripts = [
        (
            "unlimited",
            "#!/usr/bin/env python3\n\
             import json, os, sys, time\n\
             if 'create' in sys.argv: time.sleep(os.getpid() // 8 % 2)\n\
             if '--bundle' in sys.argv:\n\
             \x20   path = sys.argv[sys.argv.index('--bundle') + 1] + '/config.json'\n\
             \x20   with open(path) as file: config = json.load(file)\n\
             \x20   resources = config.get('linux', {}).get('resources', {})\n\
             \x20   for name in ['memory', 'pids', 'cpu']: resources.pop(name, None)\n\
             \x20   with open(path, 'w') as file: json.dump(config, file)\n\
             os.execvp('runc', ['runc'] + sys.argv[1:])\n",
        ),
        ("gvisor", "#!/bin/sh\nexec runsc --platform=ptrace --network=none --ignore-cgroups \"$@\"\n"),
    ];
    let mut arguments = Vec::new();
    for (name, script) in scripts {
        let path = folder.join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        arguments.extend(["--add-runtime".to_owned(), format!("{name}={}", path.display())]);
    }
    arguments
}

async fn a_runtime_without_limits_is_refused(engine: &TestEngine) {
    let settings = DockerSettings { runtime: Some("unlimited".to_owned()), ..engine.settings() };
    // The control: containers do start with it, and nothing limits them.
    let limits = "cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2> /dev/null";
    let started = ["run", "--rm", "--network=none", "--runtime=unlimited", "--pids-limit=20", engine::IMAGE];
    assert_eq!(engine.docker(&[&started[..], &["sh", "-c", limits]].concat()), "max");
    let refused = DockerWorkers::start(settings, |_| ()).await.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("its limit of memory is"), "{refused}");
    assert_eq!(engine.containers(), Vec::<String>::new());
}

async fn a_kernel_of_its_own_runs_jobs(engine: &TestEngine) {
    let settings = DockerSettings { runtime: Some("gvisor".to_owned()), ..engine.settings() };
    let probe = ["run", "--rm", "--network=none", "--runtime=gvisor", engine::IMAGE, "echo", "runs"];
    if !engine::on_path("runsc") || engine.docker(&probe) != "runs" {
        pl_testing::skip_or_fail(pl_testing::Requirement::Runsc, "runsc runs no containers here");
        return;
    }
    let workers = start(settings).await;
    assert_eq!(run(&workers, python("print(6 * 7)")).await, printed("42\n"));
    let kernel = run(&workers, python("print(open('/proc/version').read())")).await;
    assert!(!kernel.stdout.contains(&fs::read_to_string("/proc/version").unwrap()), "{kernel:?}");
    workers.shut_down().await;
}

/// Images with a volume, in which jobs of one container would find each other's files; with a check of their own health, a
/// user, a working folder, commands and a trigger of builds, which containers of the pool don't have or run.
async fn images_that_keep_files_of_jobs_are_refused(engine: &TestEngine) {
    let make = |name: &str, changes: &[&str]| {
        let id = engine.docker(&["create", engine::IMAGE, "true"]);
        let changes = changes.iter().flat_map(|change| ["--change", change]);
        let arguments: Vec<&str> = ["commit"].into_iter().chain(changes).chain([id.as_str(), name]).collect();
        engine.docker(&arguments);
        engine.docker(&["rm", &id]);
        DockerSettings { image: name.to_owned(), ..engine.settings() }
    };
    let volume = make("with-volume:1", &["VOLUME /data"]);
    let refused = DockerWorkers::start(volume, |_| ()).await.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("declares the volume /data"), "{refused}");
    let noisy = [
        "HEALTHCHECK --interval=1s CMD touch /tmp/checked",
        "USER 0",
        "WORKDIR /var",
        "ENTRYPOINT [\"touch\", \"/work/x\"]",
        "CMD [\"/work/y\"]",
        "ONBUILD RUN touch /built",
    ];
    let settings = make("noisy:1", &noisy);
    // The control: the image has them.
    let format =
        "{{.Config.User}} {{.Config.WorkingDir}} {{.Config.Entrypoint}} {{.Config.Cmd}} {{.Config.OnBuild}}";
    assert_eq!(
        engine.docker(&["image", "inspect", "--format", format, "noisy:1"]),
        "0 /var [touch /work/x] [/work/y] [RUN touch /built]"
    );
    let workers = start(settings).await;
    let look = "import os, time; time.sleep(1.5); print(sorted(os.listdir('/tmp')), os.getuid() > 0, os.listdir('.'))";
    assert_eq!(run(&workers, python(look)).await, printed("[] True ['main.py']\n"));
    let built = "import os; print(os.getcwd(), os.path.exists('/built'))";
    assert_eq!(run(&workers, python(built)).await, printed("/work False\n"));
    workers.shut_down().await;
    assert_eq!(engine.containers(), Vec::<String>::new());
}

async fn containers_are_closed(engine: &TestEngine) {
    let workers = start(engine.settings()).await;
    let source = "print([line.split()[1] for line in open('/proc/self/status') if line.startswith(('Cap', 'NoNew', 'Seccomp:'))])";
    let zeros = "'0000000000000000', ".repeat(5);
    assert_eq!(run(&workers, python(source)).await, printed(&format!("[{zeros}'1', '2']\n")));
    workers.shut_down().await;
}

async fn containers_are_replaced(engine: &TestEngine) {
    let limits = SandboxLimits { workers: 1, ..engine.settings().limits };
    let settings = DockerSettings { limits, jobs_per_worker: 2, ..engine.settings() };
    let workers = start(settings).await;
    let first = engine.containers();
    let jobs = |count: usize| vec![python("print(1)"); count];
    assert!(workers.execute(jobs(2)).await.iter().all(|verdict| verdict.ending == Ending::Ok));
    assert!(workers.execute(jobs(1)).await.iter().all(|verdict| verdict.ending == Ending::Ok));
    assert!(!engine.containers().contains(&first[0]), "the container was not replaced after two jobs");

    // Killed while it is idle, and killed in the middle of a job, which then runs in another container.
    engine.docker(&["kill", &engine.containers()[0]]);
    assert_eq!(run(&workers, python("print(2)")).await, printed("2\n"));
    let slow = workers.run(python("import time; time.sleep(1); print(3)"));
    let kill = async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        engine.docker(&["kill", &engine.containers()[0]]);
    };
    let (verdict, ()) = tokio::join!(slow, kill);
    assert_eq!((verdict.ending, verdict.stdout.as_str()), (Ending::Ok, "3\n"), "{verdict:?}");

    // A job that loses every container gets a verdict.
    let job = workers.run(python("import time; time.sleep(100)"));
    let kill = async {
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            for id in engine.containers() {
                engine.docker(&["kill", &id]);
            }
        }
    };
    let verdict = tokio::select! { verdict = job => verdict, () = kill => panic!() };
    assert_eq!((verdict.ending, verdict.reproducible), (Ending::LostWorker, false));
    assert!(verdict.stderr.contains("it lost its container twice"), "{verdict:?}");
    workers.shut_down().await;
    assert_eq!(engine.containers(), Vec::<String>::new());
}

async fn an_engine_that_fails_is_left_out(engine: &TestEngine) {
    let unreachable = "unix:///nonexistent/docker.sock".to_owned();
    let settings = DockerSettings { endpoints: vec![unreachable, engine.endpoint()], ..engine.settings() };
    DockerWorkers::check(&settings).await.unwrap();
    let workers = start(settings).await;
    assert_eq!(engine.containers().len(), 2);
    assert_eq!(run(&workers, python("print(1)")).await, printed("1\n"));
    workers.shut_down().await;
}

async fn problems_have_messages(engine: &TestEngine) {
    let check =
        async |settings: DockerSettings| DockerWorkers::check(&settings).await.unwrap_err().to_string();
    let absent = DockerSettings { image: "nothing:1".to_owned(), ..engine.settings() };
    let message = check(absent).await;
    assert!(message.contains("has no image \"nothing:1\"; make it with `pl-host sandbox image"), "{message}");
    let unreachable =
        DockerSettings { endpoints: vec!["unix:///nonexistent".to_owned()], ..engine.settings() };
    let message = check(unreachable.clone()).await;
    assert!(message.contains("no Docker engine answers at unix:///nonexistent"), "{message}");
    assert!(DockerWorkers::start(unreachable, |_| ()).await.is_err());
    let folder = Some(std::env::temp_dir());
    let endpoints = vec!["https://127.0.0.1:1".to_owned()];
    let message = check(DockerSettings { endpoints, certificates: folder, ..engine.settings() }).await;
    assert!(message.contains("key.pem is missing"), "{message}");
}

async fn a_killed_owner_leaves_nothing(engine: &TestEngine) {
    // Like a killed pl-host: its connection breaks, and nothing removes its containers.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let settings = engine.settings();
    let workers = runtime.spawn(start(settings)).await.unwrap();
    assert_eq!(engine.containers().len(), 2);
    std::mem::forget(workers);
    runtime.shutdown_background();
    let started = Instant::now();
    while !engine.containers().is_empty() {
        assert!(started.elapsed() < HANG, "{:?}", engine.containers());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // A container that remains is found by its label at the next start. Those of other machines remain.
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let here = format!("{}/{}", hostname.trim(), id.trim());
    for machine in [here.as_str(), "elsewhere/5f"] {
        let owner = format!("{machine} boot pid:[1] 1 1");
        engine.docker(&["create", "--label", &format!("pl-host.owner={owner}"), engine::IMAGE, "true"]);
    }
    let workers = start(engine.settings()).await;
    // Without an id, this machine can't be told from others of its name.
    let kept = if id.trim().is_empty() { 2 } else { 1 };
    assert_eq!(engine.containers().len(), 2 + kept);
    workers.shut_down().await;
    let left = engine.containers();
    assert_eq!(left.len(), kept);
    left.iter().for_each(|id| drop(engine.docker(&["rm", id])));
}

async fn a_restart_loses_no_job(engine: &mut TestEngine) {
    let workers = std::sync::Arc::new(start(engine.settings()).await);
    let jobs = (0..20).map(|n| python(&format!("import time; time.sleep(0.3); print({n})"))).collect();
    let running = tokio::spawn({
        let workers = std::sync::Arc::clone(&workers);
        async move { workers.execute(jobs).await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    tokio::task::block_in_place(|| engine.restart());
    let verdicts = running.await.unwrap();
    for (n, verdict) in verdicts.iter().enumerate() {
        assert_eq!(
            (verdict.ending, verdict.stdout.as_str()),
            (Ending::Ok, format!("{n}\n").as_str()),
            "{verdict:?}"
        );
    }
}
