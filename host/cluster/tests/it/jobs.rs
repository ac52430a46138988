//! The queue of jobs: each has one verdict, whichever machine dies and whatever is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::stream::Stream;
use pl_cluster::{
    Connection, Coordinator, Error, JobClient, JobRunner, MissingProcess, NextJob, Role, SandboxStatus,
    ServerAddress, ServerConfig, TakenJob, sandboxes,
};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::{LEASE, Server, as_it_is, test};

impl Server {
    async fn job_coordinator(&self) -> Coordinator {
        self.coordinator_with(Some(json!({ "timeout": 20 }))).await
    }

    async fn jobs(&self) -> Arc<JobClient> {
        Arc::new(self.worker("w").await.jobs().await.unwrap().unwrap())
    }

    async fn machine(&self, name: &str) -> JobRunner {
        JobRunner::join(&self.connect(Role::Sandbox).await, "run-1", name).await.unwrap()
    }

    /// Returns the stream of jobs, to do to it what a server might.
    async fn job_stream(&self) -> Stream {
        let context = async_nats::jetstream::new(self.stranger(Role::Coordinator).await);
        context.get_stream("pl-run-1-jobs").await.unwrap()
    }
}

/// Runs all jobs: the verdict is the job, `times` times. Returns the number of jobs.
fn run(machine: JobRunner, times: usize) -> JoinHandle<u32> {
    tokio::spawn(async move {
        let mut done = 0;
        loop {
            match machine.next().await.unwrap() {
                NextJob::Run(task) => {
                    let verdict = task.job.repeat(times);
                    task.finish(&verdict).await.unwrap();
                    done += 1;
                }
                NextJob::Idle => {}
                NextJob::Ended => return done,
            }
        }
    })
}

fn send(jobs: &Arc<JobClient>, job: &[u8]) -> JoinHandle<Result<Vec<u8>, Error>> {
    let (jobs, job) = (Arc::clone(jobs), job.to_vec());
    tokio::spawn(async move { jobs.run(job, as_it_is).await })
}

async fn take(machine: &JobRunner) -> TakenJob {
    loop {
        match machine.next().await.unwrap() {
            NextJob::Run(task) => return *task,
            NextJob::Idle => {}
            NextJob::Ended => panic!("the run has ended"),
        }
    }
}

#[test]
fn each_job_is_run_by_one_of_several_machines() {
    test(async |server| {
        let coordinator = server.job_coordinator().await;
        let (first, second) = (server.jobs().await, server.jobs().await);
        let running = [run(server.machine("a").await, 2), run(server.machine("b").await, 2)];
        // Equal jobs have verdicts of their own.
        let sent: Vec<_> =
            (0..40_u8).map(|n| (n / 2, send([&first, &second][usize::from(n % 3 / 2)], &[n / 2]))).collect();
        for (number, verdict) in sent {
            assert_eq!(verdict.await.unwrap().unwrap(), [number; 2]);
        }
        coordinator.end().await;
        let mut done = 0;
        for machine in running {
            done += machine.await.unwrap();
        }
        assert_eq!(done, 40, "no job twice");
    });
}

#[test]
fn jobs_wait_for_a_machine_and_are_counted() {
    test(async |server| {
        let coordinator = server.job_coordinator().await;
        let jobs = server.jobs().await;
        assert_eq!(coordinator.missing_processes().await, [], "no job waits");
        let verdict = send(&jobs, b"early");
        tokio::time::sleep(LEASE * 3).await;
        assert!(!verdict.is_finished());
        assert_eq!(coordinator.missing_processes().await, [(MissingProcess::SandboxMachine, Some(1))]);
        let machine = server.machine("a").await;
        let status =
            || SandboxStatus { sandbox: "a".into(), program: "0".into(), slots: 1, running: 0, done: 7 };
        let answering = {
            let machine = machine.clone();
            tokio::spawn(async move { machine.answer_status(status).await })
        };
        let running = run(machine, 1);
        assert_eq!(verdict.await.unwrap().unwrap(), b"early");
        assert_eq!(coordinator.missing_processes().await, []);
        let found = sandboxes(&server.connect(Role::Coordinator).await, "run-1").await.unwrap();
        assert_eq!(found, [status()]);
        answering.abort();
        running.abort();
    });
}

#[test]
fn a_job_of_a_machine_that_dies_is_run_by_another() {
    test(async |server| {
        let _coordinator = server.job_coordinator().await;
        let jobs = server.jobs().await;
        let verdict = send(&jobs, b"job");
        let task = take(&server.machine("dead").await).await;
        assert_eq!(task.job, b"job");
        let running = run(server.machine("second").await, 1);
        // What is run is kept for longer than the lease.
        tokio::time::sleep(LEASE * 2).await;
        assert!(!verdict.is_finished());
        drop(task);
        assert_eq!(verdict.await.unwrap().unwrap(), b"job");
        running.abort();
    });
}

#[test]
fn a_second_verdict_is_dropped() {
    test(async |server| {
        let _coordinator = server.job_coordinator().await;
        let jobs = server.jobs().await;
        let verdict = send(&jobs, b"job");
        let machine = server.machine("slow").await;
        let slow = take(&machine).await;
        // To the requester, a job that has left the queue is lost.
        server.job_stream().await.purge().await.unwrap();
        take(&server.machine("second").await).await.finish(b"first").await.unwrap();
        assert_eq!(verdict.await.unwrap().unwrap(), b"first");
        slow.finish(b"late").await.unwrap();
        let next = send(&jobs, b"next");
        take(&machine).await.finish(b"next").await.unwrap();
        assert_eq!(next.await.unwrap().unwrap(), b"next");
    });
}

#[test]
fn a_job_that_no_machine_survives_has_no_verdict() {
    test(async |server| {
        let _coordinator = server.job_coordinator().await;
        let jobs = server.jobs().await;
        let verdict = send(&jobs, b"job");
        let machine = server.machine("a").await;
        let mut taken = 0;
        while !verdict.is_finished() {
            if let Ok(Ok(NextJob::Run(task))) = tokio::time::timeout(LEASE, machine.next()).await {
                taken += 1;
                task.give_back(Duration::from_millis(1)).await;
            }
        }
        let error = verdict.await.unwrap().unwrap_err();
        assert!(matches!(&error, Error::Job { reason } if reason.contains("delivered 5 times")), "{error}");
        assert_eq!(taken, 5);
    });
}

#[test]
fn jobs_and_verdicts_above_the_size_of_a_message_come_in_parts() {
    test(async |server| {
        let _coordinator = server.job_coordinator().await;
        let jobs = server.jobs().await;
        let running = run(server.machine("a").await, 2);
        let job: Vec<u8> = (0..9 << 20).map(|n: u32| n.to_le_bytes()[1]).collect();
        assert!(jobs.run(job.clone(), as_it_is).await.unwrap() == job.repeat(2));
        let error = jobs.run(vec![0; 65 << 20], as_it_is).await.unwrap_err();
        assert!(matches!(error, Error::Job { .. }), "{error}");
        running.abort();
    });
}

#[test]
fn a_large_job_whose_parts_are_lost_is_sent_again() {
    test(async |server| {
        let _coordinator = server.job_coordinator().await;
        let jobs = server.jobs().await;
        let job = vec![7; 9 << 20];
        let verdict = send(&jobs, &job);
        let stream = server.job_stream().await;
        while stream.get_info().await.unwrap().state.messages == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let context = async_nats::jetstream::new(server.stranger(Role::Coordinator).await);
        context.get_stream("pl-run-1-inputs").await.unwrap().purge().await.unwrap();
        let running = run(server.machine("a").await, 1);
        assert!(verdict.await.unwrap().unwrap() == job);
        running.abort();
    });
}

/// A server that is started again has none of the streams in its memory.
#[test]
fn jobs_that_the_server_has_lost_are_sent_again() {
    test(async |server| {
        let _coordinator = server.job_coordinator().await;
        let jobs = server.jobs().await;
        let verdict = send(&jobs, b"one message");
        let stream = server.job_stream().await;
        while stream.get_info().await.unwrap().state.messages == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stream.purge().await.unwrap();
        let machine = server.machine("a").await;
        let running = run(machine.clone(), 1);
        assert_eq!(verdict.await.unwrap().unwrap(), b"one message");
        running.abort();
        let verdict = send(&jobs, b"the stream");
        let context = async_nats::jetstream::new(server.stranger(Role::Coordinator).await);
        context.delete_stream("pl-run-1-jobs").await.unwrap();
        context.delete_stream("pl-run-1-inputs").await.unwrap();
        let running = run(machine, 1);
        assert_eq!(verdict.await.unwrap().unwrap(), b"the stream");
        running.abort();
    });
}

/// Each message of the job leaves the queue, and no verdict comes.
#[test]
fn a_job_that_the_server_loses_each_time_is_given_up() {
    test(async |server| {
        let _coordinator = server.job_coordinator().await;
        let jobs = server.jobs().await;
        let verdict = send(&jobs, b"job");
        let stream = server.job_stream().await;
        while !verdict.is_finished() {
            stream.purge().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let error = verdict.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::NoVerdict { times: 10 }), "{error}");
    });
}

/// As of a program of another version. Machines that can read it may follow, until the last delivery.
#[test]
fn a_job_that_no_machine_can_read_is_answered_in_the_end() {
    test(async |server| {
        let _coordinator = server.job_coordinator().await;
        let listening = server.stranger(Role::Worker).await;
        let mut verdicts = listening.subscribe("pl.run-1.verdict.me").await.unwrap();
        listening.flush().await.unwrap();
        let machine = server.machine("a").await;
        // Lengths and texts of its key and its requester, and an input of a kind that there is not.
        let job = b"\x08some-key\x02me\x63";
        let stored = server.stranger(Role::Worker).await.request("pl.run-1.job", job.as_slice().into()).await;
        assert!(!stored.unwrap().payload.is_empty(), "it was stored");
        let mut next = Box::pin(futures::StreamExt::next(&mut verdicts));
        let payload = loop {
            tokio::select! {
                verdict = &mut next => break verdict.unwrap().payload,
                own = machine.next() => assert!(matches!(own.unwrap(), NextJob::Idle)),
            }
        };
        let text = String::from_utf8_lossy(&payload);
        assert!(text.starts_with("\x08some-key"), "{text:?}");
        assert!(text.contains("sandbox machine a: ") && text.contains("a job"), "{text:?}");
    });
}

#[test]
fn messages_that_are_none_are_dropped() {
    test(async |server| {
        let _coordinator = server.job_coordinator().await;
        let jobs = server.jobs().await;
        let stranger = server.stranger(Role::Worker).await;
        let answer = stranger.request("pl.run-1.job", "not a job".into()).await.unwrap();
        assert!(!answer.payload.is_empty(), "it was stored");
        let listening = server.stranger(Role::Worker).await;
        let mut verdicts = listening.subscribe("pl.run-1.verdict.*").await.unwrap();
        listening.flush().await.unwrap();
        // The verdict of a first job is the template of wrong ones for the second.
        let machine = server.machine("a").await;
        let running = run(machine, 1);
        assert_eq!(jobs.run(b"first".to_vec(), as_it_is).await.unwrap(), b"first");
        running.abort();
        let seen = futures::StreamExt::next(&mut verdicts).await.unwrap();
        let liar = server.stranger(Role::Sandbox).await;
        let second = send(&jobs, b"second");
        let stream = server.job_stream().await;
        let queued = loop {
            let last = stream.get_info().await.unwrap().state.last_sequence;
            match stream.get_raw_message(last).await {
                Ok(message) => break message.payload,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        // Both begin with the key. The last byte of a verdict is the job's, which differs from its hash then.
        let key = 1..1 + usize::from(queued[0]);
        let mut damaged = seen.payload.to_vec();
        damaged[key.clone()].copy_from_slice(&queued[key]);
        *damaged.last_mut().unwrap() ^= 1;
        for payload in [b"not a verdict".to_vec(), Vec::new(), seen.payload.to_vec(), damaged] {
            liar.publish(seen.subject.clone(), payload.into()).await.unwrap();
        }
        liar.flush().await.unwrap();
        tokio::time::sleep(LEASE / 2).await;
        assert!(!second.is_finished());
        let running = run(server.machine("b").await, 1);
        assert_eq!(second.await.unwrap().unwrap(), b"second");
        running.abort();
    });
}

#[test]
fn a_verdict_that_is_not_usable_is_dropped_and_the_job_is_sent_again() {
    test(async |server| {
        let _coordinator = server.job_coordinator().await;
        let jobs = server.jobs().await;
        let machine = server.machine("a").await;
        let check = |bytes: &[u8]| match bytes {
            b"a lie" => Err(std::io::Error::other("it is a lie")),
            bytes => Ok(bytes.to_vec()),
        };
        let sent = {
            let jobs = Arc::clone(&jobs);
            tokio::spawn(async move { jobs.run(b"job".to_vec(), check).await })
        };
        take(&machine).await.finish(b"a lie").await.unwrap();
        take(&machine).await.finish(b"true").await.unwrap();
        assert_eq!(sent.await.unwrap().unwrap(), b"true");
        let sent = tokio::spawn(async move { jobs.run(b"job".to_vec(), check).await });
        for _ in 0..4 {
            take(&machine).await.finish(b"a lie").await.unwrap();
        }
        let message = sent.await.unwrap().unwrap_err().to_string();
        assert!(message.contains("4 verdicts") && message.contains("it is a lie"), "{message}");
    });
}

#[test]
fn requests_end_with_the_run() {
    test(async |server| {
        let coordinator = server.job_coordinator().await;
        let jobs = server.jobs().await;
        let verdict = send(&jobs, b"job");
        tokio::time::sleep(LEASE / 4).await;
        coordinator.end().await;
        drop(coordinator);
        assert!(matches!(verdict.await.unwrap(), Err(Error::Ended { .. })));
    });
}

#[test]
fn a_run_without_jobs_takes_no_machines() {
    test(async |server| {
        let _coordinator = server.coordinator().await;
        let joined = JobRunner::join(&server.connect(Role::Sandbox).await, "run-1", "a").await;
        assert!(matches!(joined.err(), Some(Error::NoJobs { .. })));
        assert!(server.worker("w").await.jobs().await.unwrap().is_none());
    });
}

/// The configuration of a version before sandbox machines.
#[test]
fn an_older_configuration_is_named() {
    // Skips without a server.
    test(async |_| {
        let folder = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let (listen, store) = (format!("127.0.0.1:{port}"), folder.path().join("store"));
        let config = folder.path().join("config");
        let path = ServerConfig { listen: listen.clone(), store, tls: None }.write(&config).unwrap();
        let text = std::fs::read_to_string(&path).unwrap().replace(", \"pl.*.verdict.*\"", "");
        let lines = text.lines().filter(|line| !line.contains("SANDBOXES, subject: \"pl.*.verdict"));
        std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
        let mut process = std::process::Command::new("nats-server");
        let mut process = process.arg("-c").arg(&path).spawn().unwrap();
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < Duration::from_secs(20));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let address = |role: Role| ServerAddress {
            url: format!("nats://{listen}"),
            credentials: Some(config.join(role.credentials_file())),
            ..ServerAddress::default()
        };
        let options = pl_cluster::CoordinatorOptions {
            run: "run-1".into(),
            lease: LEASE,
            learners: Vec::new(),
            jobs: Some(json!({})),
        };
        let connection =
            Connection::open(&address(Role::Coordinator), "test", Role::Coordinator).await.unwrap();
        let coordinator = Coordinator::start(&connection, &options).await.unwrap();
        coordinator.open_to_workers("0", b"", Vec::new()).await.unwrap();
        let connection = Connection::open(&address(Role::Worker), "test", Role::Worker).await.unwrap();
        let queue = pl_cluster::LeaseQueue::Workers;
        let worker = pl_cluster::Worker::join(&connection, "run-1", queue, "w").await.unwrap();
        let error = worker.jobs().await.err().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(matches!(error, Error::NoSandboxAccount { .. }), "{error}");
        assert!(error.to_string().contains("pl-host cluster config"), "{error}");
    });
}
