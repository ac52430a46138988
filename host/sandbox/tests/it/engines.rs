//! Engines that have containers of others, or that answer nonsense. None of these tests needs Docker.

use std::fs;
use std::time::{Duration, Instant};

use pl_sandbox::{DockerSettings, DockerWorkers, ImageSource};
use pl_testing::{Requirement, skip_or_fail};

use crate::scripted_engine::ScriptedEngine;

/// An engine's description of the image.
const PYTHON: &str = r#"{"Id":"sha256:aa","RepoTags":["python:3.12"],"RepoDigests":[],"Size":1}"#;

/// Returns a process's machine, boot and PID namespace, in the form of the owner's label.
fn place() -> [String; 3] {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().replace(' ', "_");
    let machine = format!("{}/{}", read("/proc/sys/kernel/hostname"), read("/etc/machine-id"));
    let pids = fs::read_link("/proc/self/ns/pid").unwrap().display().to_string();
    [machine, read("/proc/sys/kernel/random/boot_id"), pids]
}

#[tokio::test]
async fn a_start_removes_containers_of_certainly_dead_owners_alone() {
    let [machine, boot, pids] = place();
    // No process has this number.
    let gone = u32::MAX;
    let (dead, foreign, unknown) = ("a".repeat(64), "b".repeat(64), "c".repeat(64));
    let container =
        |id: &str, owner: String| format!(r#"{{"Id":"{id}","Labels":{{"pl-host.owner":"{owner}"}}}}"#);
    let containers = [
        // The control: an owner that is dead here loses its container.
        container(&dead, format!("{machine} {boot} {pids} {gone} 1")),
        // Its number is that of a process in another PID namespace, which may be alive.
        container(&foreign, format!("{machine} {boot} pid:[1] {gone} 1")),
        container(&unknown, format!("elsewhere/5f {boot} {pids} {gone} 1")),
    ];
    let containers = format!("[{}]", containers.join(","));
    let engine = ScriptedEngine::start(&[
        ("/containers/json", containers.as_str()),
        ("/containers/a", ""),
        ("/containers/b", ""),
        ("/containers/c", ""),
    ]);
    assert!(DockerWorkers::start(engine.settings(), |_| ()).await.is_err(), "it has no image");
    // Without an id, this machine can't be told from others of its name.
    let expected = if machine.ends_with('/') { Vec::new() } else { vec![dead] };
    assert_eq!(engine.removed(), expected);
}

#[tokio::test]
async fn an_engine_that_answers_nonsense_or_stops_is_an_error() {
    for answer in [
        "",
        "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"ApiVersion\":\"1.",
        "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{\"ApiVersion\":\"1.44\"",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"Api",
        "\0\0\0\0",
    ] {
        let engine = ScriptedEngine::broken(answer);
        let started = Instant::now();
        let message = DockerWorkers::check(&engine.settings()).await.unwrap_err().to_string();
        assert!(message.contains("no Docker engine answers at"), "{answer:?}: {message}");
        assert!(DockerWorkers::start(engine.settings(), |_| ()).await.is_err(), "{answer:?}");
        assert!(started.elapsed() < Duration::from_secs(20), "{answer:?}: {:?}", started.elapsed());
    }
    // The control: one that answers is asked for its image.
    let engine = ScriptedEngine::start(&[]);
    let message = DockerWorkers::check(&engine.settings()).await.unwrap_err().to_string();
    assert!(!message.contains("no Docker engine answers at"), "{message}");
}

#[tokio::test]
async fn a_restart_of_the_engine_within_a_pull_is_an_error() {
    let steps = "{\"status\":\"Pulling\"}\n{\"status\":\"Pull complete\"}\n";
    let answers = [("/images/python", PYTHON), ("/images/create", steps), ("/tag", "")];
    let engine = ScriptedEngine::restarting(&answers, "/images/create");
    let pull = async || {
        let source = ImageSource::Registry("a.org/python:3.12".to_owned());
        DockerWorkers::make_image(&engine.settings(), source, &|_| ()).await
    };
    let message = pull().await.unwrap_err().to_string();
    assert!(message.contains("can't make the image"), "{message}");
    // The control: nothing else is wrong.
    pull().await.unwrap();
}

#[tokio::test]
async fn a_pull_that_ends_without_an_image_is_an_error() {
    let pull = async |engine: &ScriptedEngine| {
        let source = ImageSource::Registry("python:3.12".to_owned());
        DockerWorkers::make_image(&engine.settings(), source, &|_| ()).await
    };
    let steps = ("/images/create", "{\"status\":\"Pulling\"}\n");
    let message = pull(&ScriptedEngine::start(&[steps])).await.unwrap_err().to_string();
    assert!(message.contains("ended before it had made the image \"python:3.12\""), "{message}");
    // The control: nothing else is wrong.
    pull(&ScriptedEngine::start(&[("/images/python", PYTHON), steps])).await.unwrap();
}

#[tokio::test]
async fn a_restart_of_the_engine_within_a_commit_leaves_no_container() {
    let container = "a".repeat(64);
    let created = format!(r#"{{"Id":"{container}","Warnings":[]}}"#);
    let answers = [
        ("/images/python", PYTHON),
        ("/containers/create", created.as_str()),
        ("/containers/a", ""),
        ("/commit", r#"{"Id":"sha256:bb"}"#),
    ];
    let engine = ScriptedEngine::restarting(&answers, "/commit");
    let message = DockerWorkers::start(engine.settings(), |_| ()).await.map(|_| ()).unwrap_err().to_string();
    if message.contains("was built without the supervisor") {
        return skip_or_fail(Requirement::Docker, &message);
    }
    assert!(message.contains("can't add the supervisor to the image"), "{message}");
    assert_eq!(engine.removed(), [container]);
}

#[tokio::test]
async fn the_ids_of_an_image_are_those_of_the_engines_that_have_it() {
    let image = |id: &str| format!(r#"{{"Id":"{id}","RepoTags":["python:3.12"],"RepoDigests":[],"Size":1}}"#);
    let [one, same, other] = ["sha256:aa", "sha256:aa", "sha256:bb"]
        .map(|id| ScriptedEngine::start(&[("/images/python", image(id).as_str())]));
    let (without, broken) = (ScriptedEngine::start(&[]), ScriptedEngine::broken(""));
    let ids = async |engines: &[&ScriptedEngine]| {
        let endpoints = engines.iter().map(|engine| engine.endpoint()).collect();
        let settings = DockerSettings { endpoints, ..one.settings() };
        DockerWorkers::image_ids(&settings).await.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(ids(&[&one, &same]).await, ["sha256:aa"]);
    assert_eq!(ids(&[&one, &other]).await, ["sha256:aa", "sha256:bb"]);
    assert_eq!(ids(&[&broken, &other, &without]).await, ["sha256:bb"]);
    assert!(ids(&[&without, &broken]).await.is_empty());
}
