//! Restricted WASI, grants of folders and hosts, recorded output, and stack traces.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pl_plugin::call_log::{CallLog, Channel, Event, HttpFailure, Level, ReplayAnswers};
use pl_plugin::{Agent, Cause, Environment, Error, Part, PluginSpec, RandomStream, Task, Turn};
use pl_wasm::{AllowedHost, Folders, GuestFault};
use serde_json::{Map, json};

use crate::common::{built, load, resident, services};

async fn visitor(spec: PluginSpec) -> Agent {
    let plugin = load(&built("visitor.wasm"), spec).await;
    Agent::new(&plugin, "visitor", Map::new()).unwrap()
}

fn closed() -> PluginSpec {
    PluginSpec { fuel: 50_000_000, ..PluginSpec::new("doors") }
}

/// Sends a command to the guest and returns its answer.
async fn send(agent: &Agent, command: serde_json::Value) -> Result<String, Error> {
    let turn = Turn { agent: "visitor".to_owned(), visit: 0 };
    let asked = agent.prompt(&command.to_string(), &turn).await?.unwrap();
    match &asked.messages[0].parts[0] {
        Part::Text(text) => Ok(text.clone()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn without_a_grant_all_access_is_refused() {
    let agent = visitor(closed()).await;
    let answer = async |command| send(&agent, command).await.unwrap();
    assert_eq!(answer(json!({"read": "etc/passwd"})).await, "refused: no folder");
    assert_eq!(answer(json!({"write": "x"})).await, "refused: no folder");
    let Error::Call(error) = send(&agent, json!({"ask": ["localhost:1", "/", false]})).await.unwrap_err()
    else {
        panic!()
    };
    let Cause::Fault(GuestFault::Host(reason)) = &error.cause else { panic!("{error}") };
    assert!(reason.contains("wasi:http") && reason.contains("no host is granted"), "{reason}");
    let world = answer(json!("world")).await;
    assert!(world.starts_with("environment [], arguments [], "), "{world}");
    assert!(world.contains("look-up permanent-resolver-failure, tcp access-denied"), "{world}");
}

#[tokio::test]
async fn clocks_and_randomness_are_the_same_in_every_run() {
    let (one, other) = (visitor(closed()).await, visitor(closed()).await);
    let first = send(&one, json!("time")).await.unwrap();
    assert_eq!(send(&other, json!("time")).await.unwrap(), first);
    // Earlier calls don't matter.
    send(&one, json!({"print": ["a", "b"]})).await.unwrap();
    assert_eq!(send(&one, json!("time")).await.unwrap(), first);
}

/// Returns the views of five turns, with the clocks and random numbers that the environment read.
async fn hall(stream: &str, suspends: bool) -> Vec<String> {
    let plugin = load(&built("visitor.wasm"), closed()).await;
    let hall = Environment::new(&plugin, "hall", Map::new(), services()).unwrap();
    let task = Task { id: "one".to_owned(), data: "null".to_owned() };
    let mut episode = hall.start(&task, 0, RandomStream::from_parts(&[stream.as_bytes()])).await.unwrap();
    let mut views = Vec::new();
    for _ in 0..5 {
        views.push(episode.view("a").await.unwrap());
        if suspends {
            episode.suspend().await.unwrap();
        }
        episode.apply(vec![("a".to_owned(), "null".to_owned())]).await.unwrap();
    }
    views
}

#[tokio::test]
async fn clocks_and_randomness_follow_the_turns_of_an_episode_and_its_stream() {
    let awake = hall("one", false).await;
    assert_eq!(hall("one", false).await, awake);
    // The result does not depend on the instance.
    assert_eq!(hall("one", true).await, awake, "a suspended episode reads other clocks");
    assert_ne!(hall("other", false).await, awake, "the random numbers are constant");
    let (readings, _): (Vec<String>, String) = serde_json::from_str(&awake[4]).unwrap();
    let looks: Vec<(u64, u64)> = readings
        .iter()
        .map(|look| {
            let numbers: Vec<&str> =
                look.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty()).collect();
            (numbers[0].parse().unwrap(), numbers.last().unwrap().parse().unwrap())
        })
        .collect();
    // The start belongs to the first turn.
    assert!(looks[1..].windows(2).all(|pair| pair[0].0 < pair[1].0), "time does not go on: {looks:?}");
    assert!(looks.windows(2).all(|pair| pair[0].1 != pair[1].1), "each turn draws the same: {looks:?}");
}

#[tokio::test]
async fn a_granted_folder_can_be_read_and_nothing_else() {
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR")).join("granted");
    std::fs::create_dir_all(disk.join("deep")).unwrap();
    std::fs::write(disk.join("deep/table.txt"), "7 8 9").unwrap();
    let folders = Folders::read([("tables", disk.as_path())]).unwrap();
    let agent = visitor(PluginSpec { folders: Some(folders), ..closed() }).await;
    let answer = async |command| send(&agent, command).await.unwrap();
    assert_eq!(answer(json!({"read": "tables/deep/table.txt"})).await, "7 8 9");
    assert_eq!(answer(json!({"read": "tables/other.txt"})).await, "refused: no-entry");
    assert_eq!(answer(json!({"read": "../etc/passwd"})).await, "refused: not-permitted");
    assert_eq!(answer(json!({"read": "/etc/passwd"})).await, "refused: no-entry");
    for path in ["new", "tables/new", "tables/deep/table.txt/new"] {
        assert!(answer(json!({"write": path})).await.starts_with("refused: "), "{path}");
    }
    assert!(!disk.join("new").exists());
}

/// Reads a request without a body. Returns its first line.
fn first_line(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    lines.find(String::is_empty);
    first
}

/// Responds to every request with its first line.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let body = first_line(&stream);
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    port
}

#[tokio::test]
async fn a_granted_host_can_be_asked_and_no_other() {
    let (port, other) = (server(), server());
    let hosts: Arc<[AllowedHost]> = [AllowedHost::parse(&format!("127.0.0.1:{port}")).unwrap()].into();
    let spec = |hosts| PluginSpec { hosts, fuel: 200_000_000, ..closed() };
    let agent = visitor(spec(hosts)).await;
    let ask = async |port: u16| {
        send(&agent, json!({"ask": [format!("127.0.0.1:{port}"), "/v1?x=1", false]})).await.unwrap()
    };
    assert_eq!(ask(port).await, "200 GET /v1?x=1 HTTP/1.1");
    assert_eq!(ask(other).await, "refused: ErrorCode::HttpRequestDenied");
    // The control: the other server does answer.
    let hosts: Arc<[AllowedHost]> = [AllowedHost::parse(&format!("127.0.0.1:{other}")).unwrap()].into();
    let agent = visitor(spec(hosts)).await;
    let answer = send(&agent, json!({"ask": [format!("127.0.0.1:{other}"), "/", false]})).await.unwrap();
    assert_eq!(answer, "200 GET / HTTP/1.1");
}

fn asking(host: &str) -> PluginSpec {
    PluginSpec { hosts: [AllowedHost::parse(host).unwrap()].into(), fuel: 200_000_000, ..closed() }
}

#[tokio::test]
async fn a_call_does_not_wait_for_ever() {
    // The server accepts connections and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let timeout = Duration::from_millis(50);
    let agent = visitor(PluginSpec { timeout, ..asking(&host) }).await;
    let Error::Call(error) = send(&agent, json!({"ask": [host, "/", false]})).await.unwrap_err() else {
        panic!()
    };
    assert_eq!(error.cause, Cause::Fault(GuestFault::WaitTooLong { limit: 20 * timeout }));
    // The control: a server that takes as long as `timeout`, which limits the plugin's own work.
    let host = format!("127.0.0.1:{}", pieces(10, 10));
    let agent = visitor(PluginSpec { timeout, ..asking(&host) }).await;
    assert_eq!(send(&agent, json!({"ask": [host, "/", false]})).await.unwrap(), "200 xxxxxxxxxx");
}

#[tokio::test]
async fn a_granted_name_does_not_lead_into_the_own_network() {
    let port = server();
    // A name that leads to the machine itself and needs no DNS.
    let host = format!("127.1:{port}");
    let agent = visitor(asking(&host)).await;
    let answer = send(&agent, json!({"ask": [host, "/", false]})).await.unwrap();
    assert_eq!(answer, "refused: ErrorCode::DestinationIpProhibited");
    // The control: the name does lead to the server, for those who don't look where.
    let mut stream = TcpStream::connect(("127.1", port)).unwrap();
    stream.write_all(b"GET /secret HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("GET /secret HTTP/1.1"), "{answer}");
    // The address itself is granted.
    let host = format!("127.0.0.1:{port}");
    let agent = visitor(asking(&host)).await;
    assert_eq!(send(&agent, json!({"ask": [host, "/", false]})).await.unwrap(), "200 GET / HTTP/1.1");
}

#[tokio::test]
async fn parts_of_a_request_have_a_limit() {
    let host = format!("127.0.0.1:{}", server());
    let agent = visitor(asking(&host)).await;
    for (length, expected) in [(8 << 10, "200 GET /xxx"), ((8 << 10) + 1, "refused: the request is invalid")]
    {
        let path = format!("/{}", "x".repeat(length - 1));
        let answer = send(&agent, json!({"ask": [host, path, false]})).await.unwrap();
        assert!(answer.starts_with(expected), "{length}: {answer}");
    }
}

/// Kinds of resources, which the host keeps for a guest.
const RESOURCES: [&str; 6] = ["fields", "requests", "descriptors", "listings", "streams", "pollables"];

/// Bytes that the host may hold for a guest beside its memory.
const SLACK: u64 = 96 << 20;

#[tokio::test]
async fn a_hundred_thousand_handles_of_any_kind_are_refused() {
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hoarded");
    std::fs::create_dir_all(&disk).unwrap();
    std::fs::write(disk.join("table.txt"), "7 8 9").unwrap();
    let host = format!("127.0.0.1:{}", server());
    let timeout = Duration::from_secs(60);
    for kind in RESOURCES {
        let folders = Folders::read([("tables", disk.as_path())]).unwrap();
        let spec = PluginSpec { folders: Some(folders), fuel: 1_000_000_000_000, timeout, ..asking(&host) };
        let memory = spec.memory;
        let agent = visitor(spec).await;
        // The control: a few are kept.
        assert_eq!(send(&agent, json!({"hoard": [kind, 50]})).await.unwrap(), format!("50 {kind}"));
        let before = resident();
        // Starts the measurement of the peak again.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let ended = send(&agent, json!({"hoard": [kind, 100_000]})).await;
        let grown = peak().saturating_sub(before);
        assert!(grown <= memory + SLACK, "{kind}: the host's memory grew by {} MiB", grown >> 20);
        let Err(Error::Call(error)) = ended else { panic!("{kind}: {ended:?}") };
        let refused =
            !matches!(error.cause, Cause::Fault(GuestFault::OutOfFuel { .. } | GuestFault::Timeout { .. }));
        assert!(refused, "{kind}: {error}");
    }
}

#[tokio::test]
async fn the_number_of_handles_has_a_limit_that_depends_on_the_grant_of_http() {
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR")).join("counted");
    std::fs::create_dir_all(&disk).unwrap();
    std::fs::write(disk.join("table.txt"), "7 8 9").unwrap();
    let granted: Arc<[AllowedHost]> = [AllowedHost::parse("127.0.0.1:1").unwrap()].into();
    for (hosts, limit) in [(Arc::default(), 16_384), (granted, 512)] {
        // A pollable is a second resource beside that on which it waits.
        for (kind, resources) in [("descriptors", 1), ("listings", 1), ("streams", 1), ("pollables", 2)] {
            let folders = Folders::read([("tables", disk.as_path())]).unwrap();
            let hosts = Arc::clone(&hosts);
            let timeout = Duration::from_secs(60);
            let spec =
                PluginSpec { folders: Some(folders), fuel: 1_000_000_000_000, timeout, hosts, ..closed() };
            let agent = visitor(spec).await;
            let most = limit / resources;
            let Err(Error::Call(error)) = send(&agent, json!({"hoard": [kind, most + 1]})).await else {
                panic!("{most} {kind} are too few")
            };
            assert!(matches!(error.cause, Cause::Fault(GuestFault::Rules(_))), "{kind}: {error}");
            // A fresh instance, with room for a few handles of its start and of each step.
            let kept = most - 50;
            let answer = send(&agent, json!({"hoard": [kind, kept]})).await.unwrap();
            assert_eq!(answer, format!("{kept} {kind}"));
        }
    }
}

/// Peak of this process's memory in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn responses_count_against_memory() {
    for (memory, expected) in
        [(64 << 20, "200 xxx"), (5 << 19, "refused: ErrorCode::HttpResponseBodySize(Some(4194304))")]
    {
        let host = format!("127.0.0.1:{}", pieces(3 << 19, 3 << 19));
        let agent = visitor(PluginSpec { memory, ..asking(&host) }).await;
        let answer = send(&agent, json!({"ask": [host, "/", false]})).await.unwrap();
        assert!(answer.starts_with(expected), "{memory}: {answer:.200}");
    }
}

#[tokio::test]
async fn http_answers_are_recorded_and_replayed() {
    let port = server();
    let hosts: Arc<[AllowedHost]> = [
        AllowedHost::parse(&format!("127.0.0.1:{port}")).unwrap(),
        AllowedHost::parse("127.0.0.1:1").unwrap(),
    ]
    .into();
    let agent = visitor(PluginSpec { hosts, fuel: 200_000_000, ..closed() }).await;
    let commands = [(port, "/one"), (1, "/unreachable"), (port, "/two")];
    let ask = async |agent: &Agent| {
        let mut answers = Vec::new();
        for (port, path) in commands {
            let command = json!({"ask": [format!("127.0.0.1:{port}"), path, false]});
            answers.push(send(agent, command).await.unwrap());
        }
        answers
    };
    let call_log = CallLog::default();
    let responses = ask(&agent.with_call_log(&call_log)).await;
    assert_eq!(
        responses,
        ["200 GET /one HTTP/1.1", "refused: ErrorCode::ConnectionRefused", "200 GET /two HTTP/1.1"]
    );
    let noted = call_log.take();
    let [
        Event::Http { request, hash: Some(_), answer: Some(Ok(answer)) },
        Event::Http { answer: failed, .. },
        _,
    ] = noted.as_slice()
    else {
        panic!("{noted:?}")
    };
    assert_eq!(*request, format!("GET http://127.0.0.1:{port}/one"));
    assert_eq!((answer.status, &answer.body[..]), (200, &b"GET /one HTTP/1.1"[..]));
    assert_eq!(*failed, Some(Err(HttpFailure::Unreachable)));

    let mut answers = ReplayAnswers::default();
    answers.extend(&noted);
    // Another answer than the server's: it is the recording that answers.
    let Some(Some(Ok(last))) = answers.http.back_mut() else { panic!("{answers:?}") };
    last.body = "a changed answer".into();
    let replaying = CallLog::replaying(answers);
    let again = agent.with_call_log(&replaying);
    assert_eq!(ask(&again).await, [&responses[0], &responses[1], "200 a changed answer"]);
    let noted_again = replaying.take();
    assert_eq!(noted_again[..2], noted[..2]);
    // There is no fourth.
    let command = json!({"ask": [format!("127.0.0.1:{port}"), "/", false]});
    assert_eq!(send(&again, command).await.unwrap(), "refused: ErrorCode::HttpRequestDenied");
}

/// A server that announces a length and sends that or fewer bytes in two pieces.
fn pieces(announced: usize, sent: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        first_line(&stream);
        let body = vec![b'x'; sent];
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {announced}\r\n\r\n").unwrap();
        let (first, rest) = body.split_at(sent / 2);
        // The guest closes the connection at its limit.
        let _ = stream.write_all(first).and_then(|()| stream.flush()).and_then(|()| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            stream.write_all(rest)
        });
    });
    port
}

#[tokio::test]
async fn an_incomplete_answer_is_an_error() {
    for (announced, sent, expected) in [
        (300_000, 300_000, Ok(300_000)),
        (300_000, 200_000, Err("refused: ErrorCode::HttpResponseIncomplete")),
        (5 << 20, 5 << 20, Err("refused: ErrorCode::HttpResponseBodySize(Some(4194304))")),
    ] {
        let port = pieces(announced, sent);
        let hosts: Arc<[AllowedHost]> = [AllowedHost::parse(&format!("127.0.0.1:{port}")).unwrap()].into();
        let agent = visitor(PluginSpec { hosts, fuel: 200_000_000, ..closed() }).await;
        let answer = send(&agent, json!({"ask": [format!("127.0.0.1:{port}"), "/", false]})).await.unwrap();
        match expected {
            Ok(bytes) => assert_eq!(answer, format!("200 {}", "x".repeat(bytes))),
            Err(words) => assert_eq!(answer, words),
        }
    }
}

/// A server that answers every request with `beginning`, and then with `rest` again and again, until the other side closes
/// the connection.
fn repeating(beginning: String, rest: Vec<u8>, pause: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            first_line(&stream);
            let mut sent = stream.write_all(beginning.as_bytes());
            while sent.is_ok() && !rest.is_empty() {
                std::thread::sleep(pause);
                sent = stream.write_all(&rest).and_then(|()| stream.flush());
            }
        }
    });
    port
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let place = other.local_addr().unwrap();
    let redirect =
        format!("HTTP/1.1 302 Found\r\nLocation: http://{place}/secret\r\nContent-Length: 5\r\n\r\nmoved");
    let host = format!("127.0.0.1:{}", repeating(redirect, Vec::new(), Duration::ZERO));
    let agent = visitor(asking(&host)).await;
    assert_eq!(send(&agent, json!({"ask": [host, "/", false]})).await.unwrap(), "302 moved");
    assert!(other.accept().is_err(), "somebody has followed it");
    // The control: it leads to a server that can be reached.
    let _follower = TcpStream::connect(place).unwrap();
    assert!(other.accept().is_ok());
}

#[tokio::test]
async fn an_answer_without_an_end_is_given_up() {
    let chunked = || "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    let (timeout, ample) = (Duration::from_millis(50), Duration::from_secs(2));
    let ask = async |beginning: String, rest: &[u8], pause, timeout| {
        let host = format!("127.0.0.1:{}", repeating(beginning, rest.to_vec(), pause));
        let agent = visitor(PluginSpec { timeout, ..asking(&host) }).await;
        send(&agent, json!({"ask": [host, "/", false]})).await
    };
    // The control: one that ends.
    let whole = ask(chunked() + "1\r\nx\r\n0\r\n\r\n", b"", Duration::ZERO, ample).await;
    assert_eq!(whole.unwrap(), "200 x");
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let much = ask(chunked(), chunk.as_bytes(), Duration::ZERO, ample).await;
    assert_eq!(much.unwrap(), "refused: ErrorCode::HttpResponseBodySize(Some(4194304))");
    // Little by little, so that no pause is long: in the body, and in a header.
    let pause = Duration::from_millis(5);
    for (beginning, rest) in [(chunked(), "1\r\nx\r\n"), ("HTTP/1.1 200 OK\r\nx: ".to_owned(), "x")] {
        let Error::Call(error) = ask(beginning, rest.as_bytes(), pause, timeout).await.unwrap_err() else {
            panic!()
        };
        assert_eq!(error.cause, Cause::Fault(GuestFault::WaitTooLong { limit: 20 * timeout }));
    }
}

#[tokio::test]
async fn output_is_recorded() {
    let call_log = CallLog::default();
    let agent = visitor(closed()).await.with_call_log(&call_log);
    send(&agent, json!({"print": ["to out", "to err"]})).await.unwrap();
    let printed = |stream, text: &str| Event::Output { stream, text: text.to_owned() };
    assert_eq!(call_log.take(), [printed(Channel::Stdout, "to out"), printed(Channel::Stderr, "to err")]);
    // Much is printed in vain, and costs nothing but its place.
    for _ in 0..20 {
        send(&agent, json!({"print": ["x".repeat(4000), ""]})).await.unwrap();
    }
    let kept: usize = call_log
        .take()
        .iter()
        .map(|event| match event {
            Event::Output { text, .. } => text.len(),
            _ => 0,
        })
        .sum();
    assert_eq!(kept, 64 << 10);
}

#[tokio::test]
async fn a_panic_is_reported_with_message_and_location() {
    let call_log = CallLog::default();
    let agent = visitor(closed()).await.with_call_log(&call_log);
    let Error::Call(error) = send(&agent, json!({"panic": "no way out"})).await.unwrap_err() else {
        panic!()
    };
    assert!(matches!(error.cause, Cause::Fault(GuestFault::Trap(_))), "{error}");
    assert!(error.output.contains("no way out"), "{error}");
    let top = error.stack.frames.first().unwrap();
    assert!(top.function.contains("panic_with"), "{error}");
    let (file, line) = top.location.clone().unwrap();
    assert!(file.ends_with("visitor/src/lib.rs"), "{file}");
    let source = std::fs::read_to_string("../../tests/guests/visitor/src/lib.rs").unwrap();
    assert!(source.lines().nth(line as usize - 1).unwrap().contains("panic!"), "{file}:{line}");
    assert!(error.to_string().contains("\n  at "), "{error}");
    let logged = call_log.take();
    assert!(
        matches!(&logged[..], [Event::Log { level: Level::Warn, message }] if message.contains("no way out")),
        "{logged:?}"
    );
}

#[tokio::test]
async fn an_endless_loop_is_reported_with_its_location() {
    let agent = visitor(closed()).await;
    let Error::Call(error) = send(&agent, json!("loop")).await.unwrap_err() else { panic!() };
    assert_eq!(error.cause, Cause::Fault(GuestFault::OutOfFuel { fuel: 50_000_000 }));
    assert!(error.stack.frames.iter().any(|frame| frame.function.contains("loop_forever")), "{error}");
}
