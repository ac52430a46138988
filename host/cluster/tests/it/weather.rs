//! Fault injection: links that are slow, silent or cut, leases that the server has lost, a full store, other versions.

use std::sync::Arc;
use std::time::Duration;

use pl_cluster::{
    Connection, Coordinator, CoordinatorOptions, Error, LeaseQueue, Next, Role, ServerAddress, Worker, runs,
};
use serde_json::Value;

use crate::link::{Link, State};
use crate::{LEASE, Server, as_it_is, lease, play, test};

/// Connects through a link.
async fn connect(server: &Server, link: &Link, role: Role) -> Connection {
    let address = ServerAddress { url: link.url.clone(), ..server.server.address(role) };
    Connection::open(&address, "test", role).await.unwrap()
}

/// Plays tasks of a step, and checks their results.
async fn play_step(coordinator: &Arc<Coordinator>, step: u64, tasks: u32) {
    let all = (0..tasks).map(|number| {
        let coordinator = Arc::clone(coordinator);
        tokio::spawn(async move { (number, coordinator.play(lease(step, number), as_it_is).await.unwrap()) })
    });
    for one in all.collect::<Vec<_>>() {
        let (number, result) = one.await.unwrap();
        assert_eq!(result, lease(step, number).body);
    }
}

#[test]
fn a_slow_link_delays_and_loses_nothing() {
    test(async |server| {
        let link = Link::to(&server.server.address(Role::Worker).url).await;
        link.set(State::Delayed(Duration::from_millis(40)));
        let coordinator = Arc::new(server.coordinator().await);
        let worker =
            Worker::join(&connect(&server, &link, Role::Worker).await, "run-1", LeaseQueue::Workers, "far")
                .await
                .unwrap();
        let far = play(worker, 1);
        play_step(&coordinator, 1, 4).await;
        coordinator.end().await;
        assert_eq!(far.await.unwrap(), 4, "no task twice");
    });
}

#[test]
fn a_worker_behind_a_silent_link_loses_its_lease_and_its_late_result() {
    test(async |server| {
        let link = Link::to(&server.server.address(Role::Worker).url).await;
        let coordinator = Arc::new(server.coordinator().await);
        let worker =
            Worker::join(&connect(&server, &link, Role::Worker).await, "run-1", LeaseQueue::Workers, "far")
                .await
                .unwrap();
        let playing = {
            let coordinator = Arc::clone(&coordinator);
            tokio::spawn(async move { coordinator.play(lease(1, 0), as_it_is).await.unwrap() })
        };
        let Next::Play(task) = worker.next().await.unwrap() else { panic!("no lease") };
        link.set(State::Silent);
        let late = tokio::spawn(async move { task.finish(b"late".to_vec()).await });
        let near = play(server.worker("near").await, 1);
        assert_eq!(playing.await.unwrap(), lease(1, 0).body, "the other worker's");
        link.set(State::Delayed(Duration::ZERO));
        late.await.unwrap().unwrap();
        play_step(&coordinator, 2, 3).await;
        near.abort();
    });
}

/// Requests are given up after 5 seconds, and a worker that took the run for ended would leave it.
#[test]
fn a_run_that_can_not_be_looked_for_has_not_ended() {
    test(async |server| {
        let link = Link::to(&server.server.address(Role::Worker).url).await;
        let coordinator = server.coordinator().await;
        let connection = connect(&server, &link, Role::Worker).await;
        let worker = Worker::join(&connection, "run-1", LeaseQueue::Workers, "far").await.unwrap();
        link.set(State::Silent);
        let asked = Duration::from_secs(7);
        assert!(tokio::time::timeout(asked, worker.has_ended()).await.is_err(), "it asks again");
        link.set(State::Delayed(Duration::ZERO));
        assert!(!worker.has_ended().await.unwrap());
        coordinator.end().await;
        assert!(worker.has_ended().await.unwrap());
    });
}

#[test]
fn a_coordinator_and_workers_whose_links_are_cut_go_on() {
    test(async |server| {
        let [ours, theirs] = [
            Link::to(&server.server.address(Role::Worker).url).await,
            Link::to(&server.server.address(Role::Worker).url).await,
        ];
        let connection = connect(&server, &ours, Role::Coordinator).await;
        let options =
            CoordinatorOptions { run: "run-1".into(), lease: LEASE, learners: Vec::new(), jobs: None };
        let coordinator = Arc::new(Coordinator::start(&connection, &options).await.unwrap());
        coordinator.open_to_workers("0", b"manifest", Vec::new()).await.unwrap();
        let worker =
            Worker::join(&connect(&server, &theirs, Role::Worker).await, "run-1", LeaseQueue::Workers, "a")
                .await
                .unwrap();
        let worker = play(worker, 1);
        for step in 1..=2 {
            let link = if step % 2 == 0 { &ours } else { &theirs };
            let cutting = async {
                tokio::time::sleep(Duration::from_millis(5)).await;
                link.set(State::Cut);
                tokio::time::sleep(Duration::from_millis(100)).await;
                link.set(State::Delayed(Duration::ZERO));
            };
            tokio::join!(play_step(&coordinator, step, 20), cutting);
        }
        worker.abort();
    });
}

#[test]
fn a_lease_that_the_server_has_lost_is_published_again() {
    test(async |server| {
        let coordinator = Arc::new(server.coordinator().await);
        let playing = {
            let coordinator = Arc::clone(&coordinator);
            tokio::spawn(async move { coordinator.play(lease(1, 0), as_it_is).await.unwrap() })
        };
        let context = async_nats::jetstream::new(server.stranger(Role::Coordinator).await);
        let mut tasks = context.get_stream("pl-run-1-tasks").await.unwrap();
        while tasks.info().await.unwrap().state.messages == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tasks.purge().await.unwrap();
        let worker = play(server.worker("a").await, 1);
        assert_eq!(playing.await.unwrap(), lease(1, 0).body);
        worker.abort();
    });
}

#[test]
fn a_full_store_is_named_and_waited_for() {
    test(async |server| {
        let coordinator = Arc::new(server.coordinator().await);
        let worker = play(server.worker("a").await, 1);
        play_step(&coordinator, 1, 2).await;
        // The log is full: a result of this step has no room before the results of the first are removed.
        let context = async_nats::jetstream::new(server.stranger(Role::Coordinator).await);
        let mut log = context.get_stream("pl-run-1-results").await.unwrap();
        let config = |most: i64, info: &async_nats::jetstream::stream::Info| {
            async_nats::jetstream::stream::Config { max_bytes: most, ..info.config.clone() }
        };
        let info = log.info().await.unwrap().clone();
        context.update_stream(config(info.state.bytes as i64, &info)).await.unwrap();
        let waiting = {
            let coordinator = Arc::clone(&coordinator);
            tokio::spawn(async move { coordinator.play(lease(2, 0), as_it_is).await.unwrap() })
        };
        tokio::time::sleep(LEASE).await;
        assert!(!waiting.is_finished());
        coordinator.forget(1..=1).await;
        assert_eq!(waiting.await.unwrap(), lease(2, 0).body);
        worker.abort();
        // Of a store that stays full, the error tells.
        let mut tasks = context.get_stream("pl-run-1-tasks").await.unwrap();
        let info = tasks.info().await.unwrap().clone();
        context.update_stream(config(64, &info)).await.unwrap();
        let connection = server.connect(Role::Coordinator).await.with_patience(LEASE);
        let options =
            CoordinatorOptions { run: "run-1".into(), lease: LEASE, learners: Vec::new(), jobs: None };
        let second = Coordinator::start(&connection, &options).await.unwrap();
        let message = second.play(lease(3, 0), as_it_is).await.unwrap_err().to_string();
        assert!(
            message.contains("did not publish a task") && message.contains("maximum bytes exceeded"),
            "{message}"
        );
    });
}

#[test]
fn a_run_of_another_version_is_not_joined() {
    test(async |server| {
        let _coordinator = server.coordinator().await;
        let context = async_nats::jetstream::new(server.stranger(Role::Coordinator).await);
        let registry = context.get_key_value("pl-runs").await.unwrap();
        let mut entry: Value =
            serde_json::from_slice(&registry.get("run-1").await.unwrap().unwrap()).unwrap();
        entry["protocol"] = 1.into();
        entry["program"] = "0.0.9".into();
        registry.put("run-1", entry.to_string().into()).await.unwrap();
        let refused = Worker::join(&server.connect(Role::Worker).await, "run-1", LeaseQueue::Workers, "a")
            .await
            .err()
            .unwrap();
        assert!(matches!(refused, Error::Protocol { protocol: 1, .. }), "{refused}");
        assert!(refused.to_string().contains("pl-host 0.0.9 with protocol 1"), "{refused}");
    });
}

#[test]
fn the_newest_run_is_the_one_that_was_listed_last_whatever_the_clocks_say() {
    test(async |server| {
        let connection = server.connect(Role::Coordinator).await;
        for run in ["first", "second"] {
            let options =
                CoordinatorOptions { run: run.into(), lease: LEASE, learners: Vec::new(), jobs: None };
            let coordinator = Coordinator::start(&connection, &options).await.unwrap();
            coordinator.open_to_workers("0", b"manifest", Vec::new()).await.unwrap();
        }
        // The clock of the first is an hour ahead.
        let context = async_nats::jetstream::new(server.stranger(Role::Coordinator).await);
        let registry = context.get_key_value("pl-runs").await.unwrap();
        let second = registry.get("second").await.unwrap().unwrap();
        let mut entry: Value = serde_json::from_slice(&second).unwrap();
        entry["started"] = (entry["started"].as_u64().unwrap() - 3600).into();
        registry.put("second", entry.to_string().into()).await.unwrap();
        let listed = runs(&connection).await.unwrap();
        assert_eq!(listed.iter().map(|entry| entry.run.as_str()).collect::<Vec<_>>(), ["second", "first"]);
    });
}
