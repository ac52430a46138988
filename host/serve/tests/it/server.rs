//! The server as a whole: models, keys, limits, cancelled requests, its end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;

use pl_serve::{ServerConfig, ServerLimits};
use serde_json::{Value, json};

use crate::engine::{Server, wait_until};

/// A request that never ends, as its bytes.
fn endless(server: &Server, stream: bool) -> String {
    let body = json!({ "model": "letters", "prompt": "~", "stream": stream, "max_tokens": 4 }).to_string();
    format!(
        "POST /v1/completions HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        server.address,
        body.len()
    )
}

fn connect(server: &Server, request: &str) -> TcpStream {
    let mut connection = TcpStream::connect(server.address).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    connection
}

fn hello() -> Value {
    json!({ "model": "letters", "prompt": "Hi" })
}

#[test]
fn models_are_listed_with_their_length() {
    let server = Server::start();
    let body = server.get("/v1/models").json();
    let ids: Vec<&Value> = body["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(json!(ids), json!(["letters", "broken", "calling"]));
    let card = server.get("/v1/models/letters").json();
    assert_eq!(card["max_model_len"], 100);
    assert_eq!((&card["model_hash"], &card["parent"]), (&json!("c0ffee"), &Value::Null));
    assert_eq!(server.get("/health").status, 200);
    assert!(server.get("/version").json()["version"].is_string());
}

#[test]
fn a_policy_that_is_a_hosted_model_is_no_model_and_the_error_says_why() {
    let server = Server::start();
    let answered = server.post("/v1/completions", &json!({ "model": "judge", "prompt": "Hi" }));
    assert_eq!((answered.status, &answered.json()["error"]["code"]), (404, &json!("model_not_found")));
    assert!(answered.text.contains("`judge` is a hosted model"), "{}", answered.text);
    assert_eq!(server.get("/v1/models/judge").status, 404);
    let other = server.post("/v1/completions", &json!({ "model": "gpt", "prompt": "Hi" }));
    assert!(other.status == 404 && !other.text.contains("hosted"), "{}", other.text);
}

#[test]
fn a_key_opens_what_it_should() {
    let config = ServerConfig { key: Some("secret".into()), limits: ServerLimits::default() };
    let server = Server::with(config, None);
    let json = ("content-type", "application/json");
    let body = hello().to_string();
    for wrong in ["Bearer wrong", "secret", "Basic secret", "Bearer secre", "Bearer secret2", "Bearer"] {
        let answered = server.send("/v1/completions", &body, &[json, ("authorization", wrong)]);
        assert_eq!(answered.status, 401, "{wrong}");
        assert_eq!(answered.json()["error"]["type"], "authentication_error");
    }
    // The name of a scheme has no case.
    for right in ["Bearer secret", "bearer secret"] {
        let answered = server.send("/v1/completions", &body, &[json, ("authorization", right)]);
        assert_eq!(answered.status, 200, "{right}");
    }
    assert_eq!(server.get("/v1/models").status, 401);
    assert_eq!(server.get("/metrics").status, 401);
    assert_eq!(server.get("/health").status, 200);
}

/// A page can send a body of plain text, or none, to any server without being asked.
#[test]
fn pages_of_other_sites_are_refused_without_a_key() {
    let server = Server::start();
    let json = ("content-type", "application/json");
    let body = hello().to_string();
    for path in ["/pause", "/resume", "/sleep", "/wake_up", "/v1/completions"] {
        for page in [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")]
        {
            let answered = server.send(path, &body, &[json, page]);
            assert_eq!(answered.status, 403, "{path} {page:?}");
            assert!(answered.text.contains("another site"), "{}", answered.text);
        }
    }
    // A name of another site that resolves to this machine.
    let request = "GET /v1/models HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    let mut answered = String::new();
    connect(&server, request).read_to_string(&mut answered).unwrap();
    assert!(answered.starts_with("HTTP/1.1 403"), "{answered}");
    let own = server.url("");
    assert_eq!(server.send("/v1/completions", &body, &[json, ("origin", own.as_str())]).status, 200);
    let config = ServerConfig { key: Some("secret".into()), limits: ServerLimits::default() };
    let key = ("authorization", "Bearer secret");
    let answered = Server::with(config, None).send(
        "/v1/completions",
        &body,
        &[json, key, ("origin", "http://evil.example")],
    );
    assert_eq!(answered.status, 200);
}

#[test]
fn a_full_server_refuses_and_a_cut_connection_makes_room() {
    for stream in [false, true] {
        let server = Server::with_requests(1);
        let connection = connect(&server, &endless(&server, stream));
        server.wait_for_requests(1);
        let refused = server.post("/v1/completions", &hello());
        assert_eq!(refused.status, 429);
        assert_eq!(refused.headers["retry-after"], "1");
        assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
        drop(connection);
        wait_until(|| server.engine.cancelled.load(Ordering::SeqCst) == 1);
        wait_until(|| server.post("/v1/completions", &hello()).status == 200);
    }
}

#[test]
fn a_request_that_never_has_room_is_not_told_to_try_again() {
    let server = Server::with_requests(3);
    for stream in [false, true] {
        let ask = |prompts: Vec<&str>| {
            let body = json!({ "model": "letters", "prompt": prompts, "stream": stream, "max_tokens": 2 });
            server.post("/v1/completions", &body)
        };
        let refused = ask(vec!["a", "b", "c", "d"]);
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("prompt")));
        assert_eq!(ask(vec!["a", "b", "c"]).status, 200);
    }
}

#[test]
fn a_client_that_does_not_read_holds_up_no_other() {
    let server = Server::start();
    let _unread = connect(&server, &endless(&server, true));
    server.wait_for_requests(1);
    for _ in 0..20 {
        assert_eq!(server.post("/v1/completions", &hello()).status, 200);
    }
}

#[test]
fn a_stopped_server_ends_requests_that_outlast_its_patience() {
    let limits = ServerLimits { shutdown: std::time::Duration::from_millis(200), ..ServerLimits::default() };
    let mut server = Server::with(ServerConfig { key: None, limits }, None);
    let mut connection = connect(&server, &endless(&server, false));
    server.wait_for_requests(1);
    server.stop();
    wait_until(|| TcpStream::connect(server.address).is_err());
    // The endless request is cut off: its connection ends without a response.
    drop(server);
    let mut rest = Vec::new();
    let _ = connection.read_to_end(&mut rest);
    assert!(rest.is_empty());
}

#[test]
fn metrics_count_requests_and_tokens() {
    let server = Server::start();
    server.post("/v1/completions", &json!({ "model": "letters", "prompt": [1, 2, 3], "max_tokens": 5 }));
    server.post("/v1/completions", &json!({ "model": "gpt", "prompt": "Hi" }));
    let answered = server.get("/metrics");
    assert!(answered.headers["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    for line in [
        "pl_host_requests_total{path=\"/v1/completions\",status=\"200\"} 1",
        "pl_host_requests_total{path=\"/v1/completions\",status=\"404\"} 1",
        "pl_host_prompt_tokens_total 3",
        "pl_host_generation_tokens_total 5",
        "pl_host_requests_running 0",
        "# EOF",
    ] {
        assert!(answered.text.lines().any(|found| found == line), "{line} is missing in\n{}", answered.text);
    }
}

#[test]
fn metrics_count_the_tokens_of_a_stream_that_is_cut_off() {
    let server = Server::start();
    let connection = connect(&server, &endless(&server, true));
    let has = |line: &str| server.get("/metrics").text.lines().any(|found| found == line);
    wait_until(|| has("pl_host_generation_tokens_total 4"));
    drop(connection);
    wait_until(|| server.engine.cancelled.load(Ordering::SeqCst) == 1);
    assert!(has("pl_host_generation_tokens_total 4") && has("pl_host_prompt_tokens_total 1"));
}
