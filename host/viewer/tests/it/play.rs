//! Episodes that are played through the API.

use serde_json::{Value, json};

use crate::recorded::example;
use crate::server::Server;

fn server() -> (tempfile::TempDir, Server) {
    let runs = tempfile::tempdir().unwrap();
    example(runs.path(), "math", 0);
    let server = Server::start(runs.path());
    (runs, server)
}

fn request() -> Value {
    json!({ "run": "math", "start": { "task": "Two and four?" } })
}

/// Asks for events until one is there or the episode is over.
fn progress(server: &Server, id: &Value, after: u64) -> Value {
    loop {
        let progress = server.get(&format!("/api/play?id={id}&after={after}")).json();
        if progress["over"] == true || progress["next"] != after {
            return progress;
        }
    }
}

#[test]
fn an_episode_has_its_events_and_then_the_whole_of_it() {
    let (_runs, server) = server();
    let turn = json!({ "episode": "1.0.0", "node_visit": 2, "prompts": { "tool": "other" }, "draw": 3 });
    let id =
        server.post("/api/play", &json!({ "run": "math", "start": { "turn": turn } })).json()["id"].clone();
    let (mut after, mut kinds) = (0, Vec::new());
    while kinds.len() < 3 {
        let progress = progress(&server, &id, after);
        after = progress["next"].as_u64().unwrap();
        kinds.extend(progress["events"].as_array().unwrap().iter().map(|event| event["kind"].clone()));
    }
    assert_eq!(kinds, ["loading", "prompted", "text"]);
    server.player.go_on();
    let end = loop {
        let progress = progress(&server, &id, after);
        after = progress["next"].as_u64().unwrap();
        if progress["over"] == true {
            break progress;
        }
    };
    let visit = &end["episode"]["visits"][0];
    assert_eq!(visit["branches"][0]["turns"][0]["text"], "half of twelve");
    assert!(visit["prompts"][0]["text"].as_str().unwrap().contains("Two and four?"));
    let asked = server.player.requests.lock().unwrap();
    assert_eq!(format!("{:?}", asked[0].start).matches("other").count(), 1);
    drop(asked);
    // The next one is another episode.
    assert_eq!(server.post("/api/play", &request()).json()["id"], 2);
    assert_eq!(server.get(&format!("/api/play?id={id}")).status, 404);
}

#[test]
fn one_episode_is_played_at_a_time_and_can_be_cancelled() {
    let (_runs, server) = server();
    let id = server.post("/api/play", &request()).json()["id"].clone();
    let second = server.post("/api/play", &request());
    assert!(second.status == 409 && second.body.contains("math is being played"), "{second:?}");
    assert_eq!(server.post("/api/play/cancel", &json!({})).status, 200);
    let end = loop {
        let progress = progress(&server, &id, 3);
        if progress["over"] == true {
            break progress;
        }
    };
    assert_eq!((&end["failure"], &end["episode"]), (&json!("cancelled"), &json!(null)));
    assert_eq!(server.post("/api/play", &request()).status, 200);
}

#[test]
fn only_the_servers_own_page_can_play() {
    let (_runs, server) = server();
    let (own, bearer) = (format!("http://{}", server.address), format!("Bearer {}", server.token));
    let token = ("Authorization", bearer.as_str());
    let body = request().to_string();
    let send = |headers: &[(&str, &str)]| server.request("POST", "/api/play", headers, &body).status;
    let kind = ("Content-Type", "application/json");
    assert_eq!(send(&[token, kind]), 403, "no origin");
    assert_eq!(send(&[token, kind, ("Origin", "http://evil.example")]), 403);
    assert_eq!(send(&[token, kind, ("Origin", "null")]), 403);
    assert_eq!(send(&[token, ("Content-Type", "text/plain"), ("Origin", &own)]), 403, "as a form sends it");
    assert_eq!(send(&[kind, ("Origin", &own)]), 401, "no token");
    assert!(server.player.requests.lock().unwrap().is_empty());
    assert_eq!(server.post("/api/play", &json!({ "run": "math" })).status, 400);
    assert_eq!(server.post("/api/play", &json!({ "run": "../math", "start": { "task": null } })).status, 404);
    let refused = server.post("/api/runs", &json!({}));
    assert_eq!((refused.status, refused.json()["error"].as_str()), (405, Some("Method Not Allowed")));
    assert!(refused.head.contains("allow: get"), "everything else only reads: {}", refused.head);
    assert_eq!(send(&[token, kind, ("Origin", &own)]), 200);
}

#[test]
fn a_viewer_without_a_player_plays_nothing() {
    let runs = tempfile::tempdir().unwrap();
    example(runs.path(), "math", 0);
    let server = Server::without_player(runs.path());
    assert_eq!(server.get("/api/workflow?run=math").json()["checkpoints"], json!(null));
    let refused = server.post("/api/play", &request());
    assert!(refused.status == 403 && refused.body.contains("--play"), "{refused:?}");
}
