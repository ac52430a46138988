//! Many jobs at once while containers are killed and the engine is restarted: each job gets exactly one
//! verdict.
//!
//! `PL_HOST_LOAD=5000` runs as many jobs as in docs/results.md. The default is short.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use pl_sandbox::{DockerSettings, DockerWorkers, Ending, SandboxLimits};

use crate::engine::{TestEngine, python};

const IN_FLIGHT: usize = 64;

/// Returns the program of a job and its expected ending. Every fifth program misbehaves.
fn program(number: usize) -> (String, Ending) {
    let (source, ending) = match number % 25 {
        4 => ("raise ValueError(NUMBER)", Ending::Error),
        9 => ("import os; os._exit(3)", Ending::Error),
        14 => ("while True: print('x' * 1000)", Ending::OutputLimit),
        19 => (
            "import os, signal\nfor _ in range(40):\n    if os.fork() == 0: signal.pause()",
            Ending::ProcessLimit,
        ),
        // Rare, because it runs until its timeout.
        24 if number % 100 == 24 => ("while True: pass", Ending::Timeout),
        24 => ("x = bytearray(200 << 20)", Ending::Memory),
        _ => ("open('/tmp/mark', 'x').write('x'); print(NUMBER)", Ending::Ok),
    };
    (source.replace("NUMBER", &number.to_string()), ending)
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread")]
async fn every_job_gets_one_verdict() {
    let Some(mut engine) = TestEngine::start("load").await else { return };
    let count = std::env::var("PL_HOST_LOAD").ok().and_then(|count| count.parse().ok()).unwrap_or(300);
    let limits = SandboxLimits {
        workers: 4,
        // Long enough to start Python on a busy machine.
        timeout: Duration::from_secs(3),
        memory: 64 << 20,
        output: 4096,
        fuel: None,
    };
    let settings = DockerSettings { limits, pids: 16, jobs_per_worker: 100, ..engine.settings() };
    let workers = Arc::new(DockerWorkers::start(settings, |_| ()).await.unwrap());
    let done = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let job = {
        let (workers, done) = (Arc::clone(&workers), Arc::clone(&done));
        move |number| {
            let (workers, done) = (Arc::clone(&workers), Arc::clone(&done));
            async move {
                let (source, ending) = program(number);
                let verdict = workers.run(python(&source)).await;
                done.fetch_add(1, Ordering::Relaxed);
                (number, ending, verdict)
            }
        }
    };
    let jobs = futures::stream::iter(0..count).map(job).buffer_unordered(IN_FLIGHT);
    let verdicts = tokio::spawn(jobs.collect::<Vec<_>>());

    // One container is killed per hundred jobs, and the engine is restarted once.
    let (mut killed, mut restarted, mut early) = (0, false, None);
    while !verdicts.is_finished() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let so_far = done.load(Ordering::Relaxed);
        if early.is_none() && so_far > count / 5 {
            early = Some(resident());
        }
        if so_far > killed * 100 {
            killed += 1;
            let containers = tokio::task::block_in_place(|| engine.containers());
            if let Some(id) = containers.get(so_far % containers.len().max(1)) {
                tokio::task::block_in_place(|| engine.docker(&["kill", id]));
            }
        }
        if !restarted && so_far > count / 2 {
            restarted = true;
            tokio::task::block_in_place(|| engine.restart());
        }
    }
    let verdicts = verdicts.await.unwrap();
    let took = started.elapsed();
    assert_eq!(verdicts.len(), count);
    let mut lost = 0;
    for (number, ending, verdict) in &verdicts {
        if verdict.ending == Ending::LostWorker {
            lost += 1;
            continue;
        }
        assert_eq!(verdict.ending, *ending, "job {number}: {verdict:?}");
        if *ending == Ending::Ok {
            assert_eq!(verdict.stdout, format!("{number}\n"));
        }
    }
    assert!(restarted);
    // A job may lose two containers by bad luck: one that is killed, and one to the restart.
    assert!(lost <= 4, "{lost} of {count} jobs lost their container twice");
    let grown = resident().saturating_sub(early.unwrap()) >> 20;
    assert!(grown < 32, "memory grew by {grown} MiB");
    eprintln!(
        "{count} jobs in {:.1} s ({:.0} a second), {killed} containers killed, {lost} lost twice, memory grew by {grown} MiB",
        took.as_secs_f64(),
        count as f64 / took.as_secs_f64()
    );
    Arc::into_inner(workers).unwrap().shut_down().await;
    assert_eq!(engine.containers(), Vec::<String>::new());
}
