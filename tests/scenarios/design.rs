//! Searches for teams: deterministic, resumed after a kill to the same designs, and files that other commands work on.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{pl_host, run, scenario, stderr, stdout, succeed};

fn design(file: &Path, out: &Path, rounds: u32) -> Command {
    let mut command = pl_host();
    command.arg("design").arg(file).arg("--out").arg(out).args(["--device", "cpu", "--seed", "3"]);
    command.args(["--rounds", &rounds.to_string()]);
    command
}

fn record(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("designs.jsonl")).unwrap_or_default()
}

fn designs(folder: &Path) -> Vec<Value> {
    record(folder).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_search_that_was_cut_off_anywhere_goes_on_to_the_same_designs() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/design.mas");
    let whole = folder.path().join("whole");
    succeed(&mut design(&file, &whole, 3));
    let expected = record(&whole);
    let found = designs(&whole);
    let written: Vec<&Value> = found.iter().filter(|one| one["origin"] == "designer").collect();
    assert_eq!(written.len(), 9);
    assert!(found.iter().any(|one| one["origin"] == "own"));
    assert!(written.iter().all(|one| !one["parents"].as_array().unwrap().is_empty()));
    // The grammar holds: no design has a syntax error.
    let texts = found.iter().map(|one| one["outcome"].to_string());
    assert!(texts.into_iter().all(|outcome| !outcome.contains("MAS0001")), "{expected}");
    for cut in [1, 40, expected.len() / 2, expected.len() - 3, expected.len() - 1] {
        let part = folder.path().join(format!("cut-{cut}"));
        succeed(&mut design(&file, &part, 0));
        std::fs::write(part.join("designs.jsonl"), &expected[..cut]).unwrap();
        succeed(&mut design(&file, &part, 3));
        assert_eq!(record(&part), expected, "cut at {cut}");
    }
    // Another seed is another search.
    let mut other = pl_host();
    other.arg("design").arg(&file).arg("--out").arg(&whole).args(["--device", "cpu", "--rounds", "3"]);
    let output = other.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("its seed differs"), "{}", stderr(&output));
    let output = design(&file, &whole, 3).args(["--set", "inference.slots=8"]).output().unwrap();
    assert!(stderr(&output).contains("its settings differ\n"), "{}", stderr(&output));
}

#[test]
fn every_item_of_a_palette_may_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(scenario("letters/design.mas")).unwrap();
    let tiny = std::fs::canonicalize(scenario("letters").join("../../data/tiny")).unwrap();
    let text = text
        .replace("../../data/tiny", &tiny.display().to_string())
        .replace("agents = [letters.writer]", "agents = [letters.writer, std.chat]")
        .replace("letters.writer { policy = singer;", "std.chat { policy = singer; template = \"Sing.\";");
    let file = folder.path().join("design.mas");
    std::fs::write(&file, text).unwrap();
    let out = folder.path().join("designs");
    succeed(&mut design(&file, &out, 1));
    let found = designs(&out);
    let own = found.iter().find(|one| one["origin"] == "own").unwrap();
    assert!(own["design"].as_str().unwrap().contains("std.chat"), "{own}");
    // Each was checked, the designer's too.
    assert!(found.iter().all(|one| one["outcome"]["kind"] != "invalid"), "{found:#?}");
}

#[test]
fn a_killed_search_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/design.mas");
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    succeed(&mut design(&file, &whole, 4));
    let mut child = design(&file, &killed, 4).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while record(&killed).lines().count() < 4 {
        assert!(Instant::now() < deadline, "no design was recorded");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    succeed(&mut design(&file, &killed, 4));
    assert_eq!(record(&killed), record(&whole));
}

#[test]
fn the_best_designs_are_workflows() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("search");
    succeed(&mut design(&scenario("letters/design.mas"), &out, 0));
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(out.join("best")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.push(out.join("best.mas"));
    assert!(files.len() > 2);
    for file in &files {
        let output = succeed(pl_host().arg("check").arg(file));
        assert!(!stderr(&output).contains("MAS"), "{}", stderr(&output));
        succeed(pl_host().arg("fmt").arg("--check").arg(file));
        succeed(pl_host().arg("play").arg(file).args(["--device", "cpu"]));
    }
    let listed = stdout(&succeed(pl_host().arg("designs").arg(&out)));
    assert_eq!(listed.lines().count(), designs(&out).len());
    let best = listed.split_whitespace().next().unwrap();
    let shown = stdout(&succeed(pl_host().arg("designs").arg(&out).args(["--show", best])));
    assert!(shown.contains("turns"), "{shown}");
}

#[test]
fn the_best_design_is_written_again_unless_a_person_has_changed_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("search");
    let file = scenario("letters/design.mas");
    succeed(&mut design(&file, &out, 0));
    let best = out.join("best.mas");
    let text = std::fs::read_to_string(&best).unwrap();
    // A search that was killed before it wrote the file, or after it wrote an earlier one.
    std::fs::remove_file(&best).unwrap();
    succeed(&mut design(&file, &out, 0));
    assert_eq!(std::fs::read_to_string(&best).unwrap(), text);
    std::fs::write(&best, format!("# mine\n{text}")).unwrap();
    let output = succeed(&mut design(&file, &out, 0));
    assert!(stderr(&output).contains("was changed and stays as it is"), "{}", stderr(&output));
    assert!(std::fs::read_to_string(&best).unwrap().starts_with("# mine"));
    // A record that somebody has changed is no way around the palette.
    std::fs::remove_file(&best).unwrap();
    std::fs::remove_dir_all(out.join("best")).unwrap();
    let spoilt = record(&out).replace("turns {", "plugin spy = \\\"spy.wasm\\\"\\nturns {");
    assert!(spoilt.contains("spy.wasm"));
    std::fs::write(out.join("designs.jsonl"), spoilt).unwrap();
    succeed(&mut design(&file, &out, 0));
    assert!(!best.exists());
}

#[test]
fn the_file_of_a_search_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let (out, file) = (folder.path().join("search"), scenario("letters/design.mas"));
    succeed(&mut design(&file, &out, 0));
    std::fs::write(out.join("search.json"), "{").unwrap();
    let output = design(&file, &out, 0).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("its search.json can't be read"), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(out.join("search.json")).unwrap(), "{");
}

#[test]
fn a_run_lists_the_designs_that_it_trained_with_and_replays() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    succeed(&mut run(&scenario("letters/designer.mas"), &out, &["--set", "train.steps=1"]));
    let found = designs(&out);
    assert_eq!(found.len(), 8);
    let hashes: BTreeSet<&str> = found.iter().filter_map(|one| one["hash"].as_str()).collect();
    let listed = stdout(&succeed(pl_host().arg("designs").arg(&out)));
    assert_eq!(listed.lines().count(), hashes.len());
    let best = listed.split_whitespace().next().unwrap();
    succeed(pl_host().arg("check").arg(out.join(format!("best/{best}.mas"))));
    let replayed = stdout(&succeed(pl_host().arg("replay").arg(&out).arg("--all")));
    let (count, rest) = replayed.trim().split_once(' ').unwrap();
    assert_eq!(rest, format!("episodes: {count} as recorded"));
}

#[test]
fn a_budget_ends_a_search() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("search");
    let mut command = design(&scenario("letters/design.mas"), &out, 3);
    let output = succeed(command.args(["--budget", "300"]));
    assert!(stderr(&output).contains("the budget is spent"), "{}", stderr(&output));
    assert!(designs(&out).iter().all(|one| one["round"] == 0));
}

#[test]
fn a_scenario_without_a_team_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = without_own_team(folder.path(), "");
    succeed(pl_host().arg("check").arg(&file));
    succeed(pl_host().arg("plan").arg(&file));
    for command in ["play", "evaluate"] {
        let output = pl_host().arg(command).arg(&file).args(["--device", "cpu"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}");
        let message = stderr(&output);
        assert!(message.contains("scenario made has no turns yet"), "{message}");
    }
    // A search needs none.
    let out = folder.path().join("search");
    succeed(&mut design(&file, &out, 0));
    assert!(designs(&out).iter().all(|one| one["origin"] != "own"));
}

/// Writes `letters/design.mas` without its own team, with a server for the designer if `server` is not empty.
fn without_own_team(folder: &Path, server: &str) -> PathBuf {
    let text = std::fs::read_to_string(scenario("letters/design.mas")).unwrap();
    let tiny = std::fs::canonicalize(scenario("letters/../../data/tiny")).unwrap();
    let hosted = format!(
        "server hosted = \"{server}\" {{ kind = openai }}\n\
         policy writer {{ model = base; train = false; server = hosted; served = \"architect\" }}"
    );
    let own = "policy writer { model = base; train = false }";
    let text = text
        .replace("../../data/tiny", &tiny.display().to_string())
        .replace("  turns { max = 1; start -> alto -> end }\n", "")
        .replace("agent alto = letters.writer { policy = singer; max_tokens = 12 }\n", "")
        .replace(own, if server.is_empty() { own } else { &hosted });
    assert!(!text.contains("alto"));
    let file = folder.join("design.mas");
    std::fs::write(&file, text).unwrap();
    file
}

/// Answers of a scripted designer, in turn.
const ANSWERS: [&str; 3] = [
    "Here is a design:\n```mas\nagent duo = letters.writer { policy = singer; max_tokens = 9 }\nturns { max = 1; start -> duo -> \
     end }\n```\n",
    "agent spy = letters.writer { policy = writer }\nplugin other = \"other.wasm\"\nturns { start -> spy -> end }\n",
    "agent big = letters.writer { policy = singer; max_tokens = 9000 }\nturns { max = 4; start -> big; big -> end when turn >= \
     4; big -> big }\n",
];

/// A server with OpenAI's API whose model answers by a script. Keeps the prompts.
struct Scripted {
    url: String,
    prompts: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    fn start() -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let prompts = Arc::new(Mutex::new(Vec::new()));
        let (kept, next) = (Arc::clone(&prompts), Arc::new(AtomicUsize::new(0)));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, next) = (Arc::clone(&kept), Arc::clone(&next));
                std::thread::spawn(move || answer(stream, &kept, &next));
            }
        });
        Scripted { url, prompts }
    }
}

fn answer(mut stream: TcpStream, prompts: &Mutex<Vec<String>>, next: &AtomicUsize) {
    let mut read = Vec::new();
    let mut buffer = [0; 65_536];
    let (head, body) = loop {
        let count = stream.read(&mut buffer).unwrap_or(0);
        if count == 0 {
            return;
        }
        read.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&read).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            break (head.to_owned(), body.to_owned());
        }
    };
    let reply = if head.contains("/chat/completions") {
        let request: Value = serde_json::from_str(&body).unwrap();
        prompts.lock().unwrap().push(request["messages"].to_string());
        let wanted = request["n"].as_u64().unwrap_or(1) as usize;
        let choices: Vec<Value> = (0..wanted)
            .map(|index| {
                let text = ANSWERS[next.fetch_add(1, Ordering::Relaxed) % ANSWERS.len()];
                json!({ "index": index, "finish_reason": "stop",
                        "message": { "role": "assistant", "content": text } })
            })
            .collect();
        json!({ "id": "1", "object": "chat.completion", "created": 1, "model": "architect", "choices": choices,
                "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 } })
    } else {
        json!({ "object": "list", "data": [{ "id": "architect", "object": "model" }] })
    };
    let body = reply.to_string();
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
}

#[test]
fn a_designer_on_a_server_is_cut_where_it_reaches_too_far() {
    let folder = tempfile::tempdir().unwrap();
    let server = Scripted::start();
    let file = without_own_team(folder.path(), &server.url);
    let out = folder.path().join("search");
    succeed(&mut design(&file, &out, 2));
    let found = designs(&out);
    let written: Vec<&Value> = found.iter().filter(|one| one["origin"] == "designer").collect();
    assert_eq!(written.len(), 6, "{found:#?}");
    let of_kind = |kind: &str| written.iter().filter(|one| one["outcome"]["kind"] == kind).count();
    assert_eq!((of_kind("played"), of_kind("invalid"), of_kind("costly")), (2, 2, 2), "{written:#?}");
    let text = record(&out);
    assert!(text.contains("a design has no plugin `other`") && text.contains("no policy `writer`"), "{text}");
    // A design that comes again is not played again.
    let again = written.iter().filter(|one| one["round"] == 2);
    assert!(again.into_iter().all(|one| one["execution_tokens"] == 0));
    // The second round's prompt shows the results of the first.
    let prompts = server.prompts.lock().unwrap();
    assert!(prompts.last().unwrap().contains("duo"), "{prompts:?}");
    assert!(prompts[0].contains("letters.writer") && !prompts[0].contains("duo"));
}
