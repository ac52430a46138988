//! Workflows with a corpus: an index that is built once, a run of a team, its replay, an audit.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use crate::support::{lock, metrics, pl_host, repository, run, scenario, stderr, stdout, succeed};

/// Passages about made towns and the people who founded them, and questions that need both.
const TOWNS: [(&str, &str, &str); 6] = [
    ("Quill", "Ida Moor", "a painter"),
    ("Harn", "Otto Vale", "a sailor"),
    ("Brisk", "Lena Tarn", "a singer"),
    ("Oskar", "Paul Reed", "a baker"),
    ("Milne", "Nora Finch", "a surgeon"),
    ("Tove", "Carl Lund", "a printer"),
];

fn example(name: &str) -> PathBuf {
    repository().join("examples").join(name)
}

/// Writes a corpus and questions into a folder.
fn write_data(folder: &Path) {
    let mut corpus = String::new();
    let mut questions = String::new();
    for (town, founder, work) in TOWNS {
        for (title, text) in [
            (town, format!("{town} is a town that {founder} founded.")),
            (founder, format!("{founder} was {work} who travelled far.")),
        ] {
            let line = serde_json::json!({ "id": title, "title": title, "text": text });
            corpus.push_str(&format!("{line}\n"));
        }
        let question = format!("What was the work of the person who founded {town}?");
        let facts = serde_json::json!([[town, 0], [founder, 0]]);
        let line = serde_json::json!({ "question": question, "answer": work, "supporting_facts": facts });
        questions.push_str(&format!("{line}\n"));
    }
    std::fs::write(folder.join("corpus.jsonl"), corpus).unwrap();
    let lines: Vec<&str> = questions.lines().collect();
    let (train, test) = lines.split_at(4);
    std::fs::write(folder.join("questions.jsonl"), train.join("\n")).unwrap();
    std::fs::write(folder.join("test.jsonl"), test.join("\n")).unwrap();
}

/// Writes the example with its data, and a model of random weights.
fn workflow(folder: &Path) -> PathBuf {
    write_data(folder);
    let model = std::fs::canonicalize(scenario("letters").join("../../data/tiny")).unwrap();
    let text = std::fs::read_to_string(example("search.mas")).unwrap();
    let text = text
        .replace("\"smollm2-135m\"", &format!("\"{}\"", model.display()))
        .replace("max_tokens = 32", "max_tokens = 6")
        .replace("max_tokens = 48", "max_tokens = 6");
    let file = folder.join("search.mas");
    std::fs::write(&file, text).unwrap();
    file
}

/// Returns the index folders of a cache.
fn indexes(cache: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(cache.join("corpora")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
}

#[test]
fn an_audit_of_the_example_finds_no_free_reward() {
    let folder = tempfile::tempdir().unwrap();
    let file = workflow(folder.path());
    let cache = folder.path().join("cache");
    let audit = || {
        let mut command = pl_host();
        command.env("PL_HOST_CACHE", &cache).arg("audit").arg(&file).args(["--tasks", "4", "--json"]);
        stdout(&succeed(&mut command))
    };
    let first = audit();
    let found: serde_json::Value = serde_json::from_str(&first).unwrap();
    let findings = found["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["verdict"] != "defect"), "{findings:?}");
    assert_eq!(indexes(&cache).len(), 1);
    let built = indexes(&cache)[0].metadata().unwrap().modified().unwrap();
    // The second time, the index comes from the cache, and finds the same.
    assert_eq!(audit(), first);
    assert_eq!(indexes(&cache)[0].metadata().unwrap().modified().unwrap(), built);
}

#[test]
fn a_plan_and_a_check_show_the_corpus() {
    let folder = tempfile::tempdir().unwrap();
    let file = workflow(folder.path());
    let check = stdout(&succeed(pl_host().arg("check").arg(&file)));
    assert!(check.contains("corpus    wiki, corpus.jsonl"), "{check}");
    let plan = |file: &Path| {
        let mut command = pl_host();
        stdout(&succeed(command.env("PL_HOST_CACHE", folder.path().join("cache")).arg("plan").arg(file)))
    };
    let line = |plan: String| plan.lines().find(|line| line.trim().starts_with("corpus")).unwrap().to_owned();
    let shown = line(plan(&file));
    assert!(shown.contains("corpus.jsonl, to be indexed"), "{shown}");
    std::fs::remove_file(folder.path().join("corpus.jsonl")).unwrap();
    let shown = line(plan(&file));
    assert!(shown.contains("MISSING: corpus wiki: there is no "), "{shown}");
}

#[test]
fn a_bad_corpus_is_named_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = workflow(folder.path());
    let cache = folder.path().join("cache");
    let fails = || {
        let mut command = pl_host();
        let output = command.env("PL_HOST_CACHE", &cache).arg("audit").arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    let corpus = folder.path().join("corpus.jsonl");
    let mut text = std::fs::read_to_string(&corpus).unwrap();
    text.push_str("{\"id\": \"Quill\", \"text\": \"again\"}\n");
    std::fs::write(&corpus, text).unwrap();
    let message = fails();
    assert!(
        message.contains("corpus wiki: ") && message.contains("corpus.jsonl, line 13: the id \"Quill\""),
        "{message}"
    );
    assert!(indexes(&cache).is_empty(), "a failed build leaves no index");
    std::fs::remove_file(&corpus).unwrap();
    assert!(fails().contains("corpus wiki: there is no "));
}

#[test]
fn a_grade_searches_and_scores() {
    let folder = tempfile::tempdir().unwrap();
    let file = workflow(folder.path());
    let task = serde_json::json!({"question": "Who founded Quill?", "golden_answers": ["Ida Moor"]});
    let line = |pred: &str| serde_json::json!({"task": task, "pred": pred}).to_string() + "\n";
    let lines =
        [line("<answer>the Ida Moor.</answer>"), line("<answer>Otto Vale</answer>"), line("Ida Moor")]
            .concat();
    let input = folder.path().join("lines.jsonl");
    std::fs::write(&input, lines).unwrap();
    let mut command = pl_host();
    command.env("PL_HOST_CACHE", folder.path().join("cache")).stdin(std::fs::File::open(&input).unwrap());
    command.arg("grade").arg(&file).args(["--agent", "reason", "--json"]);
    let expected = ["true", "false", "false"].map(|c| format!("{{\"correct\":{c}}}\n")).concat();
    assert_eq!(stdout(&succeed(&mut command)), expected);
}

#[test]
fn the_search_plugin_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path());
    let component = repository().join("target/release/plugins/search.wasm");
    let tasks = folder.path().join("questions.jsonl");
    let mut command = pl_host();
    succeed(command.args(["plugin", "test"]).arg(&component).arg("--tasks").arg(&tasks));
}

/// A model of random weights trains for two steps. Whatever it writes is searched for; a replay needs no corpus.
#[test]
fn a_team_trains_over_a_corpus_and_is_replayed_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = workflow(folder.path());
    let text = std::fs::read_to_string(&file).unwrap();
    let parrot = "std.chat { template = \"{question}\"; action = \"search\"; policy = searcher";
    std::fs::write(&file, text.replace("search.searcher { policy = searcher", parrot)).unwrap();
    // A passage with every letter as a word, so that random text finds something.
    let letters: String = ('a'..='z').flat_map(|letter| [letter, ' ']).collect();
    let line = serde_json::json!({ "id": "letters", "text": letters });
    let corpus = folder.path().join("corpus.jsonl");
    let passages = std::fs::read_to_string(&corpus).unwrap();
    std::fs::write(&corpus, format!("{passages}{line}\n")).unwrap();
    let out = folder.path().join("run");
    let few = ["--set", "train.steps=2", "--set", "train.tasks_per_step=2", "--set", "samples=2"];
    let cache = folder.path().join("cache");
    let first = succeed(run(&file, &out, &few).env("PL_HOST_CACHE", &cache));
    assert!(!metrics(&out).is_empty());
    assert!(stderr(&first).contains("never audited"), "{}", stderr(&first));
    // One of the answers solves the only task, which is a defect.
    let answers =
        TOWNS.iter().flat_map(|(.., work)| ["--answer".to_owned(), format!("<answer>{work}</answer>")]);
    let mut audit = pl_host();
    audit.arg("audit").arg(&file).args(["--tasks", "1"]).args(answers).env("PL_HOST_CACHE", &cache);
    assert_eq!(audit.output().unwrap().status.code(), Some(1));
    let second = succeed(run(&file, &folder.path().join("second"), &few).env("PL_HOST_CACHE", &cache));
    let notices = stderr(&second);
    assert!(!notices.contains("never audited") && notices.contains("the audit found "), "{notices}");
    let lock = lock(&out);
    assert_eq!(lock["data"]["corpus wiki"].as_str().map(str::len), Some(64), "{lock}");
    std::fs::remove_file(corpus).unwrap();
    let mut replay = pl_host();
    succeed(replay.arg("replay").arg(&out).arg("--all").env("PL_HOST_CACHE", &cache));
    let mut shown = pl_host();
    let shown = stdout(&succeed(shown.arg("replay").arg(&out).args(["1.0.0", "--show"])));
    assert!(shown.contains("[corpus] "), "{shown}");
}

/// A model of random weights neither searches nor answers, so that no sample is better than another.
#[test]
fn a_run_says_that_its_steps_teach_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = workflow(folder.path());
    let few = ["train.steps=6", "train.tasks_per_step=1", "samples=2", "turns.max=1", "test.limit=1"];
    let settings: Vec<&str> = few.into_iter().flat_map(|own| ["--set", own]).collect();
    let mut command = run(&file, &folder.path().join("run"), &settings);
    let shown = stderr(&succeed(command.env("PL_HOST_CACHE", folder.path().join("cache"))));
    let notices =
        shown.matches("warning: in the last 5 steps, 100 % of the groups had samples of equal reward");
    assert_eq!(notices.count(), 1, "{shown}");
    assert!(shown.contains("hint: more `samples`"), "{shown}");
}

/// Answers every query with one passage.
fn retriever() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut request, mut byte) = (Vec::new(), [0]);
            // The body ends with the last brace of the object, and no query here has one.
            while stream.read(&mut byte).is_ok_and(|read| read == 1) {
                request.push(byte[0]);
                if byte[0] == b'}' {
                    break;
                }
            }
            let body = r#"{"result": [[{"document": {"id": "9", "contents": "Quill\nIda Moor founded it."}, "score": 1.5}]]}"#;
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

#[test]
fn a_retrieval_server_answers_and_makes_episodes_irreproducible() {
    let folder = tempfile::tempdir().unwrap();
    let file = workflow(folder.path());
    let source = format!("wiki.source={}", retriever());
    let mut check = pl_host();
    let refused = check.arg("check").arg(&file).args(["--set", &source]).output().unwrap();
    assert!(
        stderr(&refused).contains("`language` has no effect: corpus `wiki` is a server"),
        "{}",
        stderr(&refused)
    );
    let text = std::fs::read_to_string(&file).unwrap().replace(" { language = english }", "");
    std::fs::write(&file, text).unwrap();
    let plan = stdout(&succeed(pl_host().arg("plan").arg(&file).args(["--set", &source])));
    assert!(plan.contains(": not reproducible"), "{plan}");
    let mut audit = pl_host();
    let audited =
        stdout(&succeed(audit.arg("audit").arg(&file).args(["--tasks", "2", "--json", "--set", &source])));
    assert!(!audited.contains("makes a plugin fail"), "{audited}");
}
