//! The page in a real browser, if there is one.

use std::process::Command;

use crate::recorded::example;
use crate::server::Server;

/// Returns the elements of a page after its scripts have run. Returns `None` and reports the test as skipped
/// without Chromium.
fn page(server: &Server, hash: &str) -> Option<String> {
    let profile = tempfile::tempdir().unwrap();
    let program = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    let Some(program) = program else {
        pl_testing::skip_or_fail(pl_testing::Requirement::Chromium, "there is no chromium");
        return None;
    };
    let output = Command::new(program)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--dump-dom", "--virtual-time-budget=8000", "--window-size=1200,900"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("http://{}/?token={}{hash}", server.address, server.token))
        .output()
        .unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn every_page_is_drawn_and_hostile_text_stays_text() {
    let runs = tempfile::tempdir().unwrap();
    example(runs.path(), "math", 0);
    example(runs.path(), "math-2", 1);
    let server = Server::start(runs.path());
    // Text that the page must have.
    let pages = [
        ("#runs", &["Reward of agents", "<path class=\"line", "<path class=\"band", "math and 1 more"][..]),
        ("#episodes?run=math", &["1.2.0", "not solved", "environment: out of fuel"]),
        ("#episode?run=math&episode=1.0.0", &["Two and four?", "earns 1.5", "printed", "&lt;script&gt;"]),
        ("#episode?run=math&episode=1.2.0&view=tree", &["candidate good", "chosen", "candidate 2"]),
        ("#tokens?run=math&episode=1.0.0&agent=tool&visit=0&branch=0", &["mean log-prob", "token p4"]),
        ("#workflow?run=math", &["workflow sums", "train.steps"]),
    ];
    for (hash, texts) in pages {
        let Some(dom) = page(&server, hash) else { return };
        for text in texts {
            assert!(dom.contains(text), "{hash} has no {text}:\n{dom}");
        }
        assert!(!dom.contains("class=\"error\" role=\"alert\""), "{hash}:\n{dom}");
        assert!(dom.contains("<title>pl-host view</title>"), "a script of the run has acted on {hash}");
    }
}
