//! Requests to fleets of which servers fail.

use std::time::{Duration, Instant};

use pl_servers::{FleetEvent, ServerError};

use crate::scripted::{Fault, Script, Server, config, connect, generate_all, probe, request};

/// Fleet of three servers, of which the first fails at every other request: 300 requests of two completions each.
async fn with_a_faulty_server(fault: Fault) {
    let faulty = Server::start(Script { fault: Some(fault), every: 2, ..Script::default() }).await;
    let (second, third) = (Server::start(Script::default()).await, Server::start(Script::default()).await);
    let (fleet, _) = connect(config(&[&faulty, &second, &third]), Vec::new()).await;
    let fleet = fleet.unwrap();
    generate_all(&fleet, 0..300).await;
    let answered = faulty.answered() + second.answered() + third.answered();
    assert_eq!(answered, 600, "{fault:?}: each completion is generated once");
    assert!(second.answered() > 0 && third.answered() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_or_repeated_when_connections_break() {
    with_a_faulty_server(Fault::Drops).await;
    with_a_faulty_server(Fault::HalfAnswer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_or_repeated_when_a_server_is_busy() {
    with_a_faulty_server(Fault::Status(429, None)).await;
    with_a_faulty_server(Fault::Status(429, Some(1))).await;
    with_a_faulty_server(Fault::Status(503, None)).await;
    with_a_faulty_server(Fault::Status(503, Some(1))).await;
    with_a_faulty_server(Fault::Status(500, None)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_or_repeated_when_answers_are_wrong() {
    for fault in [
        Fault::MissingLogprob,
        Fault::MissingChoice,
        Fault::OutsideVocabulary,
        Fault::NotFinite,
        Fault::OtherModel,
    ] {
        with_a_faulty_server(fault).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_server_loses_its_requests_to_the_others() {
    let hanging = Server::start(Script { fault: Some(Fault::Hangs), every: 1, ..Script::default() }).await;
    let other = Server::start(Script::default()).await;
    let mut config = config(&[&hanging, &other]);
    config.timeout = Duration::from_millis(200);
    let (fleet, _) = connect(config, Vec::new()).await;
    generate_all(&fleet.unwrap(), 0..50).await;
    assert_eq!(other.answered(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_left_alone_for_as_long_as_it_asks() {
    let busy =
        Server::start(Script { fault: Some(Fault::Status(429, Some(1))), every: 1, ..Script::default() })
            .await;
    let other = Server::start(Script { delay: Duration::from_millis(5), ..Script::default() }).await;
    let mut config = config(&[&busy, &other]);
    config.connections = 1;
    let (fleet, _) = connect(config, Vec::new()).await;
    let started = Instant::now();
    generate_all(&fleet.unwrap(), 0..60).await;
    let asked = busy.state.completions.load(std::sync::atomic::Ordering::SeqCst);
    let seconds = started.elapsed().as_secs() as usize;
    assert!((1..=1 + seconds).contains(&asked), "asked {asked} times in {seconds} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_is_gone_pauses_and_goes_on() {
    let script = Script { delay: Duration::from_millis(10), ..Script::default() };
    let server = Server::start(script.clone()).await;
    let address = server.address.clone();
    let (fleet, events) = connect(config(&[&server]), probe()).await;
    let fleet = fleet.unwrap();
    let outage = async {
        while server.answered() < 30 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.stop().await;
        let paused = |events: &[FleetEvent]| events.iter().any(|e| matches!(e, FleetEvent::Paused { .. }));
        while !paused(&events.lock().unwrap()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        // While it starts, it is not ready.
        Server::restart(&address, Script { starting: 4, ..script }).await
    };
    let (server, ()) = tokio::join!(outage, generate_all(&fleet, 0..100));
    assert!(server.answered() > 0);
    let events = events.lock().unwrap();
    let first = events.iter().find(|event| matches!(event, FleetEvent::Paused { .. }));
    let Some(FleetEvent::Paused { fleet, reason }) = first else { panic!("{events:?}") };
    assert_eq!(fleet, "fleet");
    assert!(reason.contains(&address), "{reason}");
    assert!(events.contains(&FleetEvent::Resumed { fleet: "fleet".into() }), "{events:?}");
    assert!(events.contains(&FleetEvent::ServerBack { server: address }), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connecting_waits_for_a_server_that_starts_slowly() {
    let server = Server::start(Script { starting: 6, ..Script::default() }).await;
    let (fleet, events) = connect(config(&[&server]), probe()).await;
    generate_all(&fleet.unwrap(), 0..5).await;
    assert!(matches!(events.lock().unwrap()[0], FleetEvent::Paused { .. }));
}

#[tokio::test]
async fn a_fleet_without_any_server_is_an_error() {
    let server = Server::start(Script::default()).await;
    let config = config(&[&server]);
    server.stop().await;
    let (fleet, _) = connect(config, Vec::new()).await;
    let error = fleet.unwrap_err();
    assert!(matches!(error, ServerError::NoServer { .. }), "{error}");
    assert!(error.to_string().contains("no server of `fleet`"), "{error}");
}

#[tokio::test]
async fn wrong_answers_end_after_the_retries_with_server_and_request() {
    let script = Script { fault: Some(Fault::MissingLogprob), every: 1, ..Script::default() };
    let server = Server::start(script).await;
    let (fleet, _) = connect(config(&[&server]), Vec::new()).await;
    let mut one = request(2);
    one.seeds.truncate(1);
    let error = fleet.unwrap().generate(&one).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "server {}, request 0202020202020202: wrong answer: it has 2 log-probabilities for 3 tokens",
            server.address
        )
    );
    assert_eq!(server.state.completions.load(std::sync::atomic::Ordering::SeqCst), 4, "once and three times");
}

#[tokio::test]
async fn a_refused_request_is_not_sent_again() {
    let server = Server::start(Script::default()).await;
    let (fleet, _) = connect(config(&[&server]), Vec::new()).await;
    let (fleet, mut long) = (fleet.unwrap(), request(1));
    long.max_tokens = 4000;
    long.seeds.truncate(1);
    let error = fleet.generate(&long).await.unwrap_err();
    assert!(error.to_string().contains("refused with status 400: too long"), "{error}");
    assert_eq!(server.state.completions.load(std::sync::atomic::Ordering::SeqCst), 1);
    generate_all(&fleet, 0..3).await;
}

#[tokio::test]
async fn a_server_without_quota_ends_the_request_with_its_message() {
    let server = Server::start(Script { fault: Some(Fault::NoQuota), every: 1, ..Script::default() }).await;
    let (fleet, _) = connect(config(&[&server]), Vec::new()).await;
    let mut one = request(1);
    one.seeds.truncate(1);
    let error = fleet.unwrap().generate(&one).await.unwrap_err();
    assert!(error.to_string().contains("refused with status 429: You exceeded your quota"), "{error}");
    assert_eq!(server.state.completions.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_is_busy_for_long_pauses_with_the_reason() {
    let fault = Some(Fault::Status(429, Some(60)));
    let server = Server::start(Script { fault, every: 1, ..Script::default() }).await;
    let (fleet, events) = connect(config(&[&server]), Vec::new()).await;
    let (fleet, one) = (fleet.unwrap(), request(1));
    let reported = async {
        while events.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        completions = fleet.generate(&one) => panic!("{completions:?}"),
        () = reported => {}
    }
    let events = events.lock().unwrap();
    let [FleetEvent::Paused { reason, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(*reason, format!("server {} is busy (status 429): not now", server.address));
}

/// Resident set of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = status.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    pages * 4096
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_in_flight_lose_nothing_and_memory_stays() {
    let script = Script { delay: Duration::from_millis(20), ..Script::default() };
    let faulty = Server::start(Script { fault: Some(Fault::HalfAnswer), every: 3, ..script.clone() }).await;
    let (second, third) = (Server::start(script.clone()).await, Server::start(script).await);
    let servers = [&faulty, &second, &third];
    let mut config = config(&servers);
    config.connections = 400;
    let (fleet, _) = connect(config, Vec::new()).await;
    let fleet = fleet.unwrap();
    // Two completions each, all begun at once.
    generate_all(&fleet, 0..500).await;
    let after_first = resident();
    for round in 1..5 {
        generate_all(&fleet, 0..500).await;
        let answered: usize = servers.iter().map(|server| server.answered()).sum();
        assert_eq!(answered, 1000 * (round + 1), "each completion is generated once");
    }
    let grown = resident().saturating_sub(after_first);
    assert!(grown < 64 << 20, "{grown} more bytes after four more rounds");
    let stats = fleet.take_stats();
    assert_eq!(stats.iter().map(|one| one.requests).sum::<u64>(), 5000, "{stats:?}");
    assert!(stats[0].failures > 0 && stats[1].failures == 0, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_takes_long_goes_to_a_second_server() {
    let slow = Server::start(Script { delay: Duration::from_secs(3600), ..Script::default() }).await;
    let fast = Server::start(Script::default()).await;
    let mut config = config(&[&slow, &fast]);
    config.hedge_after = Some(Duration::from_millis(50));
    config.connections = 200;
    let (fleet, _) = connect(config, Vec::new()).await;
    let fleet = fleet.unwrap();
    generate_all(&fleet, 0..50).await;
    assert_eq!((slow.answered(), fast.answered()), (0, 100));
    let stats = fleet.take_stats();
    assert!(stats[0].cancelled > 0 && stats[0].failures == 0, "{stats:?}");
    assert_eq!((stats[1].requests, stats[1].cancelled), (100, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_request_that_fails_costs_nothing() {
    let slow = Server::start(Script { delay: Duration::from_millis(300), ..Script::default() }).await;
    let faulty =
        Server::start(Script { fault: Some(Fault::MissingLogprob), every: 1, ..Script::default() }).await;
    let mut config = config(&[&slow, &faulty]);
    config.hedge_after = Some(Duration::from_millis(20));
    let (fleet, _) = connect(config, Vec::new()).await;
    generate_all(&fleet.unwrap(), 0..20).await;
    assert_eq!((slow.answered(), faulty.answered()), (40, 0));
}
