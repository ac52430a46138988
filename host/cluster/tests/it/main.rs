//! Coordinators and workers against a real server, with tasks that are played at once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test crate: a panic is how a test fails"
)]

mod jobs;
mod link;
mod roles;
mod tls;
mod weather;

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::message::PublishMessage;
use pl_cluster::{
    Connection, Coordinator, CoordinatorOptions, Error, Lease, LeaseQueue, LocalServer, MissingProcess, Next,
    Role, SharedFile, WeightsRef, Worker, runs,
};
use pl_testing::{Requirement, skip_or_fail};
use tempfile::TempDir;
use tokio::task::JoinHandle;

const LEASE: Duration = Duration::from_millis(600);

/// A server with its folder.
struct Server {
    server: LocalServer,
    _folder: TempDir,
}

impl Server {
    fn start() -> Option<Server> {
        let folder = tempfile::tempdir().unwrap();
        match LocalServer::start(Path::new("nats-server"), folder.path(), |command| command) {
            Ok(server) => Some(Server { server, _folder: folder }),
            Err(error) => {
                skip_or_fail(Requirement::Nats, &error.to_string());
                None
            }
        }
    }

    async fn connect(&self, role: Role) -> Connection {
        Connection::open(&self.server.address(role), "test", role).await.unwrap()
    }

    /// Connects as a program of its own would, with the key of a role.
    async fn stranger(&self, role: Role) -> async_nats::Client {
        let address = self.server.address(role);
        let seed = std::fs::read_to_string(address.credentials.unwrap()).unwrap();
        let options = async_nats::ConnectOptions::with_nkey(seed.trim().to_owned());
        let inbox = match role {
            Role::Coordinator | Role::Worker => "_INBOX_pl_worker",
            Role::Learner => "_INBOX_pl_learner",
            Role::Sandbox => "_INBOX_pl_sandbox",
        };
        let options = options.custom_inbox_prefix(inbox).request_timeout(Some(LEASE));
        options.connect(&address.url).await.unwrap()
    }

    async fn coordinator(&self) -> Coordinator {
        self.coordinator_with(None).await
    }

    /// Starts a coordinator. With `jobs`, workers send jobs to sandbox machines.
    async fn coordinator_with(&self, jobs: Option<serde_json::Value>) -> Coordinator {
        let options = CoordinatorOptions { run: "run-1".into(), lease: LEASE, learners: Vec::new(), jobs };
        let coordinator = Coordinator::start(&self.connect(Role::Coordinator).await, &options).await.unwrap();
        coordinator.open_to_workers("0", b"manifest", Vec::new()).await.unwrap();
        coordinator
    }

    async fn worker(&self, name: &str) -> Worker {
        Worker::join(&self.connect(Role::Worker).await, "run-1", LeaseQueue::Workers, name).await.unwrap()
    }
}

fn lease(step: u64, number: u32) -> Lease {
    let body = format!("task {step}.{number}").into_bytes();
    let weights = vec![WeightsRef { learner: 0, update: 0, hash: "0".into() }];
    Lease { queue: LeaseQueue::Workers, task: format!("{step}.{number}"), step, weights, body }
}

/// Takes any result.
fn as_it_is(bytes: &[u8]) -> Result<Vec<u8>, Infallible> {
    Ok(bytes.to_vec())
}

/// Plays every lease: its result is its body, `times` times.
fn play(worker: Worker, times: usize) -> JoinHandle<u32> {
    tokio::spawn(async move {
        let mut played = 0;
        loop {
            match worker.next().await.unwrap() {
                Next::Play(task) => {
                    let result = task.lease.body.repeat(times);
                    task.finish(result).await.unwrap();
                    played += 1;
                }
                Next::Idle => {}
                Next::Ended => return played,
            }
        }
    })
}

fn test(body: impl AsyncFnOnce(Server)) {
    let Some(server) = Server::start() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(body(server));
}

#[test]
fn each_task_is_played_by_one_of_several_workers() {
    test(async |server| {
        let coordinator = Arc::new(server.coordinator().await);
        let workers: Vec<_> =
            [play(server.worker("a").await, 1), play(server.worker("b").await, 1)].into_iter().collect();
        let all = (0..40).map(|number| {
            let coordinator = Arc::clone(&coordinator);
            tokio::spawn(async move { (number, coordinator.play(lease(1, number), as_it_is).await.unwrap()) })
        });
        for one in all.collect::<Vec<_>>() {
            let (number, result) = one.await.unwrap();
            assert_eq!(result, lease(1, number).body);
        }
        coordinator.end().await;
        let mut played = 0;
        for worker in workers {
            played += worker.await.unwrap();
        }
        assert_eq!(played, 40, "no task twice");
        assert!(runs(&server.connect(Role::Worker).await).await.unwrap().is_empty());
    });
}

#[test]
fn tasks_wait_for_a_worker_and_are_counted() {
    test(async |server| {
        let coordinator = Arc::new(server.coordinator().await);
        assert_eq!(coordinator.missing_processes().await, [], "no task waits");
        let playing: Vec<_> = (0..3)
            .map(|number| {
                let coordinator = Arc::clone(&coordinator);
                tokio::spawn(async move { coordinator.play(lease(1, number), as_it_is).await })
            })
            .collect();
        tokio::time::sleep(LEASE).await;
        assert_eq!(coordinator.missing_processes().await, [(MissingProcess::Worker, Some(3))]);
        let worker = play(server.worker("a").await, 1);
        for one in playing {
            assert!(one.await.unwrap().is_ok());
        }
        assert_eq!(coordinator.missing_processes().await, []);
        worker.abort();
    });
}

#[test]
fn a_lease_that_is_dropped_is_played_by_another_worker() {
    test(async |server| {
        let coordinator = Arc::new(server.coordinator().await);
        let playing = {
            let coordinator = Arc::clone(&coordinator);
            tokio::spawn(async move { coordinator.play(lease(1, 0), as_it_is).await })
        };
        let dead = server.worker("dead").await;
        let Next::Play(task) = dead.next().await.unwrap() else { panic!("no lease") };
        // What is played is kept for longer than the lease.
        tokio::time::sleep(LEASE * 2).await;
        let second = play(server.worker("second").await, 1);
        assert!(!playing.is_finished());
        drop(task);
        assert_eq!(playing.await.unwrap().unwrap(), lease(1, 0).body);
        second.abort();
    });
}

#[test]
fn results_above_the_size_of_a_message_come_in_parts() {
    test(async |server| {
        let coordinator = server.coordinator().await;
        let times = (5 << 20) / lease(1, 0).body.len();
        let worker = play(server.worker("a").await, times);
        assert_eq!(
            coordinator.play(lease(1, 0), as_it_is).await.unwrap().len(),
            times * lease(1, 0).body.len()
        );
        coordinator.forget(1..=1).await;
        worker.abort();
    });
}

#[test]
fn a_later_coordinator_takes_the_results_that_are_there_and_fences_the_earlier_one() {
    test(async |server| {
        let first = server.coordinator().await;
        let worker = play(server.worker("a").await, 1);
        assert!(first.play(lease(1, 0), as_it_is).await.is_ok());
        worker.abort();
        let weights = WeightsRef { learner: 0, update: 1, hash: "1".into() };
        first.announce(&weights).await.unwrap();
        let second = server.coordinator().await;
        // No worker is left.
        let played = tokio::time::timeout(Duration::from_secs(20), second.play(lease(1, 0), as_it_is)).await;
        assert_eq!(played.unwrap().unwrap(), lease(1, 0).body);
        second.announce(&weights).await.unwrap();
        let refused = first.announce(&weights).await;
        assert!(matches!(refused, Err(Error::Fenced { own: 1, newer: 2, .. })), "{refused:?}");
    });
}

#[test]
fn a_task_that_no_worker_survives_is_an_error() {
    test(async |server| {
        let coordinator = Arc::new(server.coordinator().await);
        let playing = {
            let coordinator = Arc::clone(&coordinator);
            tokio::spawn(async move { coordinator.play(lease(3, 1), as_it_is).await })
        };
        let worker = server.worker("a").await;
        for _ in 0..40 {
            match worker.next().await.unwrap() {
                Next::Play(task) => task.give_back(Duration::from_millis(1)).await,
                Next::Idle if playing.is_finished() => break,
                Next::Idle | Next::Ended => {}
            }
        }
        let error = playing.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("task 3.1") && error.contains("delivered 5 times"), "{error}");
    });
}

#[test]
fn a_worker_that_lies_is_excluded() {
    test(async |server| {
        let coordinator = Arc::new(server.coordinator().await);
        let playing = {
            let coordinator = Arc::clone(&coordinator);
            let check = |bytes: &[u8]| match bytes == lease(1, 0).body {
                true => Ok(bytes.to_vec()),
                false => Err(io::Error::other("too long")),
            };
            tokio::spawn(async move { coordinator.play(lease(1, 0), check).await })
        };
        let liar = server.worker("liar").await;
        let Next::Play(task) = liar.next().await.unwrap() else { panic!("no lease") };
        task.finish(b"a lie".to_vec()).await.unwrap();
        let honest = play(server.worker("honest").await, 1);
        assert_eq!(playing.await.unwrap().unwrap(), lease(1, 0).body);
        let refused = liar.next().await.err().unwrap();
        assert!(
            matches!(&refused, Error::Excluded { reason, .. } if reason.contains("too long")),
            "{refused}"
        );
        let again = server.worker("liar").await;
        assert!(matches!(again.next().await, Err(Error::Excluded { .. })));
        honest.abort();
    });
}

/// A worker of another version answers in a form that the coordinator can't read, and acknowledges the lease.
#[test]
fn a_worker_whose_result_can_not_be_read_is_excluded() {
    test(async |server| {
        let coordinator = Arc::new(server.coordinator().await);
        let playing = {
            let coordinator = Arc::clone(&coordinator);
            tokio::spawn(async move { coordinator.play(lease(1, 0), as_it_is).await })
        };
        let old = server.worker("old-rack").await;
        let Next::Play(task) = old.next().await.unwrap() else { panic!("no lease") };
        let stranger = async_nats::jetstream::new(server.stranger(Role::Worker).await);
        let id = format!("{}-1-old-rack", task.lease.key());
        let message = PublishMessage::build().payload("another form".into()).message_id(&id);
        stranger.send_publish("pl.run-1.result.1", message).await.unwrap().await.unwrap();
        let refused = tokio::time::timeout(Duration::from_secs(20), async {
            loop {
                if let Err(error) = old.next().await {
                    return error;
                }
            }
        });
        let honest = play(server.worker("honest").await, 1);
        assert_eq!(playing.await.unwrap().unwrap(), lease(1, 0).body);
        let refused = refused.await.unwrap();
        assert!(
            matches!(&refused, Error::Excluded { reason, .. } if reason.contains("another version of pl-host")),
            "{refused}"
        );
        honest.abort();
        drop(task);
    });
}

#[test]
fn a_worker_that_can_not_read_a_task_leaves_it_to_others() {
    test(async |server| {
        let _coordinator = server.coordinator().await;
        let (old, other) = (server.worker("old").await, server.worker("other").await);
        let stranger = async_nats::jetstream::new(server.stranger(Role::Coordinator).await);
        let message = PublishMessage::build().payload("another form".into()).message_id("key-1-0");
        stranger.send_publish("pl.run-1.task", message).await.unwrap().await.unwrap();
        for worker in [old, other] {
            let error = worker.next().await.err().unwrap();
            assert!(matches!(error, Error::Unreadable { .. }), "{error}");
            assert!(error.to_string().contains("another version of pl-host (0)"), "{error}");
        }
    });
}

#[test]
fn messages_of_strangers_are_left_out() {
    test(async |server| {
        let coordinator = server.coordinator().await;
        let stranger = server.stranger(Role::Coordinator).await;
        for subject in ["pl.run-1.task", "pl.run-1.result.1", "pl.run-1.status"] {
            stranger.publish(subject, "not a message".into()).await.unwrap();
        }
        stranger.flush().await.unwrap();
        let worker = play(server.worker("a").await, 1);
        assert_eq!(coordinator.play(lease(1, 0), as_it_is).await.unwrap(), lease(1, 0).body);
        worker.abort();
    });
}

#[test]
fn paths_that_leave_the_folder_of_a_run_are_known() {
    let is_inside = |path: &str| SharedFile { path: path.into(), hash: String::new() }.is_inside();
    assert!(is_inside("plugins/math.wasm") && is_inside("starts/a/b.json"));
    for path in ["", "/etc/passwd", "../x", "a/../../x", "a/.."] {
        assert!(!is_inside(path), "{path}");
    }
}
