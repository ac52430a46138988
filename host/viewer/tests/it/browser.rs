//! The page in a real browser, if there is one.

use pl_record::{TraceFile, Traces};
use pl_testing::chromium::Page;
use serde_json::json;

use crate::recorded::{TOOL_CALL, completion, create, event, example, flat, tool_calls};
use crate::server::Server;

/// Addresses of the pages of the recorded example, an element that each has once it is drawn, and texts of it.
const PAGES: [(&str, &str, &[&str]); 8] = [
    ("#runs", ".chart path.line", &["Reward of agents", "and 1 more", "Success"]),
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

fn open(server: &Server) -> Option<Page> {
    Page::open(&format!("http://{}/?token={}", server.address, server.token), 1200, 900)
}

#[test]
fn every_page_is_drawn_and_hostile_text_stays_text() {
    let (_runs, server) = server();
    let Some(mut page) = open(&server) else { return };
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
    let Some(mut page) = open(&server) else { return };
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
fn boards_are_drawn_in_an_episode_and_in_its_tree_and_hostile_ones_reach_nothing() {
    let runs = tempfile::tempdir().unwrap();
    let root = example(runs.path(), "games", 0);
    // What a hostile drawing would have to load to be seen.
    let outside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    outside.set_nonblocking(true).unwrap();
    let url = format!("http://{}", outside.local_addr().unwrap());
    let board = |colour: &str| {
        format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 40 40' width='40' height='40'>\
             <rect width='40' height='40' fill='{colour}'/><text x='4' y='20'>A</text></svg>"
        )
    };
    let act = "parent.document.title='owned';document.title='owned'";
    let hostile = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' width='30' height='30' \
         onload=\"{act}\"><style>@import url('{url}/style.css'); rect {{ fill: url('{url}/fill.svg#a') }}</style>\
         <script>{act};fetch('{url}/script')</script><script href='{url}/script.js'/><rect width='30' height='30' \
         onclick=\"{act}\"/><image href='{url}/image.png' width='9' height='9'/><use xlink:href='{url}/use.svg#a'/>\
         <a href=\"javascript:{act}\"><text y='9'>go</text></a><animate onbegin=\"{act}\" attributeName='x' dur='1s'/>\
         <foreignObject width='9' height='9'><body xmlns='http://www.w3.org/1999/xhtml'><img src='{url}/x' \
         onerror=\"{act}\"/><iframe src='{url}/frame'/><script>{act}</script></body></foreignObject></svg>"
    );
    let drawn = |visit, branch, text: &str| event(visit, branch, None, json!({ "drawing": text }));
    let mut trace = flat("train", 3, 0, 0, "up", 1.0);
    trace["mode"] = json!("tree");
    let said = |visit, branch, text: &str| {
        let completion = json!({ "completion": { "text": text, "finish": "stop", "tokens": [1] } });
        event(visit, Some(branch), Some("tool"), completion)
    };
    trace["events"] = json!([
        drawn(0, None, &board("white")),
        said(0, 0, "up"),
        drawn(0, Some(0), &board("teal")),
        said(0, 1, "down"),
        drawn(0, Some(1), &hostile),
        event(0, None, None, json!({ "chosen": 0 })),
        said(1, 0, "left"),
        drawn(1, Some(0), &board("plum")),
        event(1, None, None, json!({ "chosen": 0 })),
    ]);
    Traces::for_run(&root).write(&TraceFile { step: 3, evaluation: None }, &[trace]).unwrap();
    let server = Server::start(runs.path());
    let Some(mut page) = open(&server) else { return };
    page.go("#episode?run=games&episode=3.0.0", "img.drawing");
    let shown = "[...document.querySelectorAll('img.drawing')].map((one) => decodeURIComponent(one.src).match(/fill='([a-z]+)'/)?.[1] ?? 'hostile')";
    let loaded =
        "[...document.querySelectorAll('img.drawing')].every((one) => one.complete && one.naturalWidth > 20)";
    page.wait_for(loaded);
    assert_eq!(
        page.eval(shown),
        json!(["white", "teal", "plum"]),
        "the start and the branches that were taken"
    );
    page.screenshot("boards");
    page.go("#episode?run=games&episode=3.0.0&view=tree", "img.drawing");
    page.wait_for(loaded);
    let candidate = |index: u32| {
        format!("document.querySelectorAll('.candidate')[{index}].dispatchEvent(new Event('click')); true")
    };
    for (index, boards) in [(0, ["white", "teal"]), (1, ["white", "hostile"]), (2, ["teal", "plum"])] {
        page.eval(&candidate(index));
        page.wait_for(loaded);
        assert_eq!(page.eval(shown), json!(boards), "before and after candidate {index}");
        page.screenshot(&format!("boards-tree-{index}"));
    }
    page.eval(&candidate(1));
    page.eval(
        "document.querySelectorAll('img.drawing')[1].click(); new Promise((done) => setTimeout(done, 500))",
    );
    assert_eq!(page.eval("document.title"), "pl-host view", "a script of a drawing has acted");
    assert_eq!(page.eval("location.hash.startsWith('#episode')"), json!(true));
    let reached = outside.accept().map(|(stream, _)| stream);
    assert!(
        reached.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock),
        "a drawing has loaded a file"
    );
}

#[test]
fn curves_of_many_steps_are_merged_and_single_steps_are_shown_in_a_range() {
    let runs = tempfile::tempdir().unwrap();
    let (_, mut folder) = create(runs.path(), "long", 0);
    for step in 1..=4000u32 {
        let line = json!({ "kind": "step", "step": step, "rollout_success": f64::from(step % 7) / 10.0 });
        folder.append_metrics(u64::from(step), &line).unwrap();
    }
    folder.sync().unwrap();
    let server = Server::start(runs.path());
    let Some(mut page) = open(&server) else { return };
    page.go("#runs", ".chart path.line");
    let points = "[...document.querySelectorAll('.plot path.line')].map((path) => path.getAttribute('d').split(/[ML]/).length - 1)";
    let drawn = page.eval(points)[0].as_u64().unwrap();
    assert!((300..=1300).contains(&drawn), "{drawn} points");
    page.eval(
        "for (const [label, step] of [['From step', 1001], ['To step', 1100]]) { const input = [...document.querySelectorAll('label')] \
         .find((one) => one.innerText.trim() === label).querySelector('input'); input.value = step; \
         input.dispatchEvent(new Event('input')); }",
    );
    page.wait_for(&format!("{points}[0] === 100"));
    assert!(page.eval("location.hash").as_str().unwrap().contains("from=1001"));
    // A drag shows the steps under it, a double click all.
    page.eval(
        "{ const svg = document.querySelector('.plot svg'); const left = svg.getBoundingClientRect().left; \
         for (const [type, x] of [['pointerdown', 150], ['pointerup', 250]]) svg.dispatchEvent(new PointerEvent(type, { clientX: left + x })); }",
    );
    page.wait_for(&format!("{points}[0] < 100"));
    page.eval("document.querySelector('.plot svg').dispatchEvent(new MouseEvent('dblclick'))");
    page.wait_for(&format!("{points}[0] >= 300"));
}

#[test]
fn the_keyboard_leads_from_the_runs_to_the_reason_of_a_gradient() {
    let (_runs, server) = server();
    let Some(mut page) = open(&server) else { return };
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
fn the_tokens_of_every_model_call_of_a_turn_can_be_chosen() {
    let runs = tempfile::tempdir().unwrap();
    tool_calls(runs.path(), "tools");
    let server = Server::start(runs.path());
    let Some(mut page) = open(&server) else { return };
    page.go("#episode?run=tools&episode=1.0.0", ".turn");
    let links =
        "[...document.querySelectorAll('.turn a')].map((one) => one.hash.match(/call=([0-9]+)/)?.[1])";
    assert_eq!(page.eval(links), json!(["0", "1"]), "the results that no longer fitted have no completion");
    page.go("#tokens?run=tools&episode=1.0.0&agent=tool&visit=0&branch=0", ".token.p3");
    let call = "[...document.querySelectorAll('label')].find((one) => one.textContent.startsWith('Model call'))\
                ?.querySelector('select')";
    assert_eq!(page.eval(&format!("{call}.value")), "1", "the last one");
    page.screenshot("tokens-call");
    page.eval(&format!("{{ const s = {call}; s.value = '0'; s.dispatchEvent(new Event('change')); }}"));
    page.wait_for("document.querySelector('.title').innerText.includes('call 1')");
    assert_eq!(page.eval(&format!("{call}.value")), "0");
    assert!(page.eval("location.hash").as_str().unwrap().contains("call=0"));
}

#[test]
fn an_action_is_compared_with_the_completion_that_it_was_parsed_from() {
    let runs = tempfile::tempdir().unwrap();
    let root = example(runs.path(), "math", 0);
    let of_tool = |kind| event(0, None, Some("tool"), kind);
    let program = "total = 2 + 4\nprint(total)";
    let mut trace = flat("train", 3, 0, 0, TOOL_CALL, 1.0);
    trace["events"] = json!([
        of_tool(completion(TOOL_CALL)),
        of_tool(json!({ "tool_results": ["6"] })),
        of_tool(completion(&format!("```python\n{program}\n```"))),
        // They no longer fitted: no completion follows.
        of_tool(json!({ "tool_results": ["7"] })),
        of_tool(json!({ "action": json!({ "program": program }).to_string() })),
    ]);
    Traces::for_run(&root).write(&TraceFile { step: 3, evaluation: None }, &[trace]).unwrap();
    let server = Server::start(runs.path());
    let Some(mut page) = open(&server) else { return };
    page.go("#episode?run=math&episode=3.0.0", ".turn");
    let actions = "[...document.querySelectorAll('.turn .action')].map((one) => one.textContent)";
    assert_eq!(page.eval(actions), json!(["does program: the program above"]));
}

#[test]
fn tokens_are_linked_from_the_last_attempt_at_a_candidate_alone() {
    let runs = tempfile::tempdir().unwrap();
    let root = example(runs.path(), "math", 0);
    let attempt = |retry: u32| {
        let mut event = event(0, Some(0), Some("tool"), completion("six"));
        event["position"]["candidate"]["retry"] = json!(retry);
        event
    };
    let mut trace = flat("train", 3, 0, 0, "six", 1.0);
    trace["events"] = json!([attempt(0), attempt(1)]);
    Traces::for_run(&root).write(&TraceFile { step: 3, evaluation: None }, &[trace]).unwrap();
    let server = Server::start(runs.path());
    let Some(mut page) = open(&server) else { return };
    page.go("#episode?run=math&episode=3.0.0", ".branches button");
    let links =
        "document.querySelectorAll('.turn').length + ' ' + document.querySelectorAll('.turn a').length";
    assert_eq!(page.eval(links), "1 0");
    page.eval("document.querySelectorAll('.branches button')[1].click()");
    assert_eq!(page.eval(links), "1 1");
}

#[test]
fn an_episode_is_played_and_shown_while_it_is_played() {
    let (_runs, server) = server();
    let Some(mut page) = open(&server) else { return };
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
