//! Requests that the server refuses, and files that it does not open.

use crate::recorded::{HOSTILE, example};
use crate::server::Server;

fn server() -> (tempfile::TempDir, Server) {
    let runs = tempfile::tempdir().unwrap();
    example(runs.path(), "math", 0);
    let server = Server::start(runs.path());
    (runs, server)
}

#[test]
fn without_the_token_nothing_is_sent() {
    let (_runs, server) = server();
    for path in
        ["/", "/assets/main.js", "/api/runs", "/api/log?run=math&log=metrics", "/nothing", "/?token=guess"]
    {
        let response = server.send(path, &[]);
        assert_eq!(response.status, 401, "{path}");
        assert!(!response.body.contains("math"), "{}", response.body);
        assert_eq!(server.send(path, &[("Authorization", "Bearer guess")]).status, 401, "{path}");
    }
}

#[test]
fn the_token_of_the_address_becomes_a_strict_cookie() {
    let (_runs, server) = server();
    let response = server.send(&format!("/?token={}", server.token), &[]);
    assert_eq!(response.status, 303);
    assert!(response.head.contains("\nlocation: /\r"), "{}", response.head);
    let cookie = format!("pl-host-view-{}={}", server.address.port(), server.token);
    assert!(response.head.contains(&format!("set-cookie: {cookie}; path=/; httponly; samesite=strict")));
    assert_eq!(server.send("/api/runs", &[("Cookie", &format!("other=1; {cookie}"))]).status, 200);
    assert_eq!(server.send("/api/runs", &[("Cookie", "pl-host-view-1=x")]).status, 401);
}

#[test]
fn other_sites_and_other_names_are_refused_even_with_the_token() {
    let (_runs, server) = server();
    let bearer = format!("Bearer {}", server.token);
    let send = |name: &str, value: &str| {
        server.send("/api/runs", &[("Authorization", bearer.as_str()), (name, value)]).status
    };
    assert_eq!(send("Host", "rebound.example:7575"), 403);
    assert_eq!(send("Host", &format!("localhost:{}", server.address.port())), 200);
    assert_eq!(send("Origin", "http://evil.example"), 403);
    assert_eq!(send("Origin", "null"), 403);
    assert_eq!(send("Origin", &format!("http://{}", server.address)), 200);
    assert_eq!(send("Sec-Fetch-Site", "cross-site"), 403);
    assert_eq!(send("Sec-Fetch-Site", "same-site"), 403);
    assert_eq!(send("Sec-Fetch-Site", "same-origin"), 200);
}

#[test]
fn names_do_not_lead_out_of_the_run_folders() {
    let (runs, server) = server();
    std::fs::write(runs.path().join("secret"), "hidden").unwrap();
    let paths = [
        "/api/log?run=..&log=metrics",
        "/api/log?run=math/..&log=metrics",
        "/api/log?run=math&log=../secret",
        "/api/workflow?run=/etc",
        "/api/episode?run=math&episode=../../secret@1.0.0",
        "/api/tokens?run=math&episode=../secret@1.0.0&agent=tool&visit=0&branch=0",
        "/assets/..%2f..%2fCargo.toml",
        "/api/../../secret",
    ];
    for path in paths {
        let response = server.get(path);
        assert!((400..500).contains(&response.status), "{path}: {response:?}");
        assert!(!response.body.contains("hidden"), "{path}");
    }
}

#[test]
fn links_in_a_run_folder_are_not_followed() {
    let (runs, server) = server();
    let root = runs.path().join("math");
    let secret = runs.path().join("secret.jsonl");
    std::fs::write(&secret, "{\"hidden\":1}\n").unwrap();
    std::fs::remove_file(root.join("metrics.jsonl")).unwrap();
    std::os::unix::fs::symlink(&secret, root.join("metrics.jsonl")).unwrap();
    let response = server.get("/api/log?run=math&log=metrics");
    assert_eq!(response.status, 422);
    assert!(response.body.contains("is a link") && !response.body.contains("hidden"), "{}", response.body);
    std::fs::rename(root.join("traces"), runs.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(runs.path().join("elsewhere"), root.join("traces")).unwrap();
    let response = server.get("/api/episodes?run=math");
    assert!(response.status == 422 && response.body.contains("is a link"), "{response:?}");
}

#[test]
fn responses_forbid_scripts_that_are_not_the_servers_own() {
    let (_runs, server) = server();
    for path in ["/", "/assets/main.js", "/api/runs", "/api/episode?run=math&episode=1.0.0", "/nothing"] {
        let head = server.get(path).head;
        assert!(head.contains("content-security-policy: default-src 'self';"), "{path}: {head}");
        assert!(head.contains("x-content-type-options: nosniff"), "{path}: {head}");
    }
    let episode = server.get("/api/episode?run=math&episode=1.0.0");
    assert!(episode.head.contains("content-type: application/json"));
    assert_eq!(episode.json()["visits"][0]["branches"][0]["turns"][0]["text"], HOSTILE);
}

/// The page builds elements and text nodes only.
#[test]
fn no_script_of_the_page_parses_markup() {
    let assets = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    for entry in std::fs::read_dir(assets).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for word in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "srcdoc", "DOMParser"]
        {
            assert!(!text.contains(word), "{} has {word}", path.display());
        }
    }
}
