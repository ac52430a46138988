//! The page in a real browser, if there is one.

use serde_json::json;

use crate::chromium::Page;
use crate::recorded::example;
use crate::server::Server;

/// Addresses of the pages of the recorded example, an element that each has once it is drawn, and texts of it.
const PAGES: [(&str, &str, &[&str]); 8] = [
    ("#runs", ".chart path.line", &["Reward of agents", "math and 1 more", "Success"]),
    ("#episodes?run=math", "table.episodes tbody a", &["1.2.0", "not solved", "environment: out of fuel"]),
    (
        "#episode?run=math&episode=1.0.0",
        ".turn",
        &["earns 1.5", "advantage +0.5", "printed", "<script>", "play from here"],
    ),
    ("#episode?run=math&episode=1.2.0&view=tree", ".candidate.chosen", &["A +1", "candidate 2", "turn 1"]),
    (
        "#tokens?run=math&episode=1.0.0&agent=tool&visit=0&branch=0",
        ".token.p4",
        &["mean log-prob", "clipped", "Colour", "probability when sampled"],
    ),
    (
        "#workflow?run=math",
        ".grid details.setting",
        &["workflow sums", "train.steps", "Number of training steps"],
    ),
    ("#play?run=math", "textarea", &["Weights", "newest checkpoint", "step-00000002"]),
    ("#play?run=math&episode=1.0.0&visit=0", "textarea", &["on from", "Prompt of tool", "Draw"]),
];

fn server() -> (tempfile::TempDir, Server) {
    let runs = tempfile::tempdir().unwrap();
    example(runs.path(), "math", 0);
    example(runs.path(), "math-2", 1);
    let server = Server::start(runs.path());
    (runs, server)
}

#[test]
fn every_page_is_drawn_and_hostile_text_stays_text() {
    let (_runs, server) = server();
    let Some(mut page) = Page::open(&server, 1200, 900) else { return };
    for (hash, element, texts) in PAGES {
        page.go(hash, element);
        let shown = page.eval("document.body.innerText + [...document.querySelectorAll('textarea, details p, title')].map((e) => e.value ?? e.textContent).join()");
        for text in texts {
            assert!(shown.as_str().unwrap().contains(text), "{hash} has no {text}:\n{shown}");
        }
        assert_eq!(page.eval("document.querySelectorAll('.error[role=alert]').length"), 0, "{hash}");
        assert_eq!(page.eval("document.title"), "pl-host view", "a script of the run has acted on {hash}");
        assert_eq!(
            page.eval("document.querySelectorAll('#page img:not(.drawing), #page script').length"),
            0,
            "{hash}"
        );
    }
}

#[test]
fn no_page_has_a_serious_barrier_in_light_and_in_dark_and_none_is_wider_than_its_window() {
    let (_runs, server) = server();
    let Some(mut page) = Page::open(&server, 1200, 900) else { return };
    let Some(path) = std::env::var_os("PL_HOST_AXE") else {
        pl_testing::skip_or_fail(
            pl_testing::Requirement::Axe,
            "PL_HOST_AXE does not name axe-core's axe.min.js",
        );
        return;
    };
    page.eval(&format!("{}; true", std::fs::read_to_string(path).unwrap()));
    let mut found = Vec::new();
    for scheme in ["light", "dark"] {
        page.colours(scheme);
        for (index, (hash, element, _)) in PAGES.into_iter().enumerate() {
            for (width, height) in [(1200, 900), (390, 800)] {
                page.resize(width, height);
                page.go(hash, element);
                let name = format!(
                    "{index}-{}-{scheme}-{width}",
                    hash.trim_start_matches('#').split('?').next().unwrap()
                );
                page.screenshot(&name);
                let wide = page.eval("document.documentElement.scrollWidth > innerWidth");
                if wide == json!(true) {
                    found.push(format!("{name}: wider than the window"));
                }
                let script = "axe.run(document, { resultTypes: ['violations'] }).then((result) => result.violations \
                              .filter((one) => ['serious', 'critical'].includes(one.impact)) \
                              .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html + ' ' + \
                              node.failureSummary).join('\\n')}`))";
                let violations = page.eval(script);
                found.extend(violations.as_array().unwrap().iter().map(|one| format!("{name}: {one}")));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_keyboard_leads_from_the_runs_to_the_reason_of_a_gradient() {
    let (_runs, server) = server();
    let Some(mut page) = Page::open(&server, 1200, 900) else { return };
    page.press("2");
    page.wait_for("document.querySelectorAll('table.episodes tbody a').length >= 5");
    page.press("j");
    page.press("j");
    page.press("Enter");
    page.wait_for("document.querySelector('h1')?.textContent === '1.2.0'");
    page.press("[");
    page.wait_for("document.querySelector('h1')?.textContent === '1.1.0'");
    page.press("u");
    page.wait_for("document.querySelector('h1')?.textContent === '1.2.0'");
    page.go("#tokens?run=math&episode=1.0.0&agent=tool&visit=0&branch=0", ".token.p4");
    page.press("j");
    page.press("j");
    page.wait_for("document.querySelector('.tokendetail').innerText.includes('yes: outside of the range')");
    page.press("Enter");
    page.wait_for("document.querySelector('.explanation')?.innerText.includes('a token of tool')");
    page.press("?");
    page.wait_for("document.querySelector('dialog[open]')");
}

#[test]
fn an_episode_is_played_and_shown_while_it_is_played() {
    let (_runs, server) = server();
    let Some(mut page) = Page::open(&server, 1200, 900) else { return };
    page.go("#play?run=math", "textarea");
    page.eval("document.querySelector('button.primary').click()");
    page.wait_for("document.querySelector('#page').innerText.includes('half of')");
    page.screenshot("play-live");
    server.player.go_on();
    page.wait_for("document.querySelector('.turnhead')?.innerText.includes('earns')");
    page.eval("document.querySelector('button.primary').click()");
    page.wait_for("document.querySelector('#page').innerText.includes('half of')");
    page.eval("document.querySelectorAll('.form button')[1].click()");
    page.wait_for("document.querySelector('[role=status]').innerText.includes('cancelled')");
}
