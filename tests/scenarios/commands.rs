//! All other commands, seen from outside.

use std::io::Write;
use std::process::{Output, Stdio};

use pl_testing::data;

use crate::support::{pl_host, repository, run, scenario, stderr, stdout, succeed};

fn example(name: &str) -> std::path::PathBuf {
    repository().join("examples").join(name)
}

/// Runs a command with the given standard input.
fn run_with_input(command: &mut std::process::Command, input: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A program that stops early closes the pipe; the exit code shows whether that is an error.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn recipes_of_the_paper_pass_check_and_plan() {
    let folder = repository().join("examples/paper");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 5);
    for file in files {
        succeed(pl_host().arg("check").arg(&file));
        // Data sets are fetched when a run uses them: `plan` says so, whether the machine has them or not.
        let plan = stdout(&succeed(pl_host().arg("plan").arg(&file)));
        assert!(plan.contains("hf:Qwen/Qwen3-") && plan.contains("step      32 tasks, 32 trees"), "{plan}");
        assert!(plan.contains("run       200 steps"), "{plan}");
    }
}

#[test]
fn every_example_passes_check() {
    let mut files: Vec<_> = std::fs::read_dir(repository().join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "mas"))
        .collect();
    files.sort_by_key(|file| file.file_stem().unwrap().to_owned());
    let layouts: Vec<String> = files
        .iter()
        .map(|file| {
            let message = stdout(&succeed(pl_host().arg("check").arg(file)));
            let layout = message.lines().find_map(|line| line.trim().strip_prefix("layout")).unwrap().trim();
            format!("{} {layout}", file.file_stem().unwrap().to_string_lossy())
        })
        .collect();
    assert_eq!(
        layouts,
        [
            "autoevol L0",
            "chat L2",
            "code L0",
            "code-team L2",
            "experts L2",
            "math L2",
            "math-aggregate L2",
            "math-l0 L0",
            "math-l1 L1",
            "math-l3 L3",
            "math-mixed mixed",
            "mix L1",
            "plan-path L2",
            "plan-path-l0 L0",
            "plan-path-l1 L1",
            "search L2",
            "search-l0 L0",
            "search-l1 L1",
            "servers L2",
            "sokoban L2",
            "sokoban-l0 L0",
            "sokoban-l1 L1",
            "sudoku L1",
            "walk L2",
            "walk-l0 L0",
            "walk-l1 L1"
        ]
    );
}

#[test]
fn grade_plays_an_episode_per_line() {
    let lines = [
        r#"{"gold": "42", "pred": "So the answer is \\boxed{42}."}"#,
        r#"{"gold": "42", "pred": "So: #### 41"}"#,
        r#"{"gold": "1/2", "pred": "It is 0.5", "more": 1}"#,
        r#"{"gold": "3", "pred": ""}"#,
    ]
    .join("\n");
    // As some programs write UTF-8.
    let lines = format!("\u{feff}{lines}");
    let output = run_with_input(pl_host().arg("grade").arg(example("math.mas")).arg("--json"), &lines);
    assert!(output.status.success(), "{}", stderr(&output));
    let expected = ["true", "false", "true", "false"].map(|c| format!("{{\"correct\":{c}}}\n")).concat();
    assert_eq!(stdout(&output), expected);
}

/// Programs run in the sandbox, with the same agent, environment and reward as in a run.
#[test]
fn grade_takes_whole_records() {
    let task =
        serde_json::json!({"text": "Add one.", "test_list": ["assert inc(1) == 2", "assert inc(5) == 6"]});
    let line = |pred: &str| serde_json::json!({"task": task, "pred": pred}).to_string() + "\n";
    let right = line("Here:\n```python\ndef inc(x):\n    return x + 1\n```\nIt adds one.");
    let lines = [right, line("def inc(x):\n    return 2"), line("I can't.")].concat();
    let output = run_with_input(pl_host().arg("grade").arg(example("code.mas")).arg("--json"), &lines);
    assert!(output.status.success(), "{}", stderr(&output));
    let expected = ["true", "false", "false"].map(|c| format!("{{\"correct\":{c}}}\n")).concat();
    assert_eq!(stdout(&output), expected);
    let neither = run_with_input(pl_host().arg("grade").arg(example("code.mas")), "{\"pred\": \"1\"}\n");
    assert_eq!(neither.status.code(), Some(2));
    assert!(stderr(&neither).contains("standard input:1: it has neither"), "{}", stderr(&neither));
}

/// A planning game in the host: the plan of each line is found, played and scored.
#[test]
fn grade_plays_a_planning_game() {
    let room = serde_json::json!({"room": ["######", "#@$ .#", "######"]});
    let line = |pred: &str| serde_json::json!({"task": room, "pred": pred}).to_string() + "\n";
    let lines = [
        line("Push twice.\n#### [\"R\", \"R\"]"),
        line("#### [\"R\"]"),
        line("I can't."),
        line("```\n[up, right, right]\n```"),
    ];
    let output =
        run_with_input(pl_host().arg("grade").arg(example("sokoban-l0.mas")).arg("--json"), &lines.concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let expected = ["true", "false", "false", "true"].map(|c| format!("{{\"correct\":{c}}}\n")).concat();
    assert_eq!(stdout(&output), expected);
}

/// Snapshots, splits and settings of the planning games, at the levels whose puzzles take longest to generate.
#[test]
fn the_planning_games_keep_the_contract() {
    let component = repository().join("target/release/plugins/planning.wasm");
    for level in ["1", "7"] {
        succeed(pl_host().args(["plugin", "test", "--level", level]).arg(&component));
    }
}

#[test]
fn grade_names_an_unreadable_line() {
    let output = run_with_input(
        pl_host().arg("grade").arg(example("math.mas")),
        "{\"gold\": \"1\", \"pred\": \"1\"}\n{\"gold\": \"1\"}\n",
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("standard input:2:"), "{}", stderr(&output));
}

/// Returns the share of lines with the expected verdict.
fn agreement(file: &str) -> Option<f64> {
    let text = std::fs::read_to_string(data(file)?).unwrap();
    let output = run_with_input(pl_host().arg("grade").arg(example("math.mas")).arg("--json"), &text);
    assert!(output.status.success(), "{}", stderr(&output));
    let field = |line: &str, name: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        value[name].as_bool().or(value[name].as_i64().map(|n| n == 1)).unwrap()
    };
    let message = stdout(&output);
    assert_eq!(message.lines().count(), text.lines().count());
    let right = text
        .lines()
        .zip(message.lines())
        .filter(|(asked, answered)| field(asked, "expected") == field(answered, "correct"));
    Some(right.count() as f64 / text.lines().count() as f64)
}

#[test]
fn the_grader_agrees_with_people() {
    if let Some(share) = agreement("graders/math_verify_cases.jsonl") {
        assert!(share >= 0.9, "math_verify_cases: {share}");
    }
    if let Some(share) = agreement("graders/gsm8k_model_solutions.jsonl") {
        assert!(share >= 0.995, "gsm8k_model_solutions: {share}");
    }
}

#[test]
fn evaluate_reports_agents_and_the_team_and_takes_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (scenario("letters/tree-l2.mas"), folder.path().join("run"));
    succeed(&mut run(&file, &out, &["--set", "train.steps=2"]));
    let evaluate = |more: &[&str]| {
        let output =
            succeed(pl_host().arg("evaluate").arg(&file).args(["--json", "--device", "cpu"]).args(more));
        serde_json::from_str::<serde_json::Value>(&stdout(&output)).unwrap()
    };
    let untrained = evaluate(&[]);
    assert_eq!(untrained["episodes"], 8);
    assert_eq!(untrained["agents"][1]["name"], "bass");
    assert_eq!(untrained["pass_at"].as_array().unwrap().len(), 2);
    let trained = evaluate(&["--checkpoint", out.to_str().unwrap()]);
    assert_ne!(untrained["agents"], trained["agents"], "the checkpoint has no effect");
    let newest = out.join("checkpoints/step-00000002");
    assert_eq!(trained, evaluate(&["--checkpoint", newest.to_str().unwrap()]));
}

/// Evaluates `letters/tree-l2.mas` and returns the report.
fn evaluation_report(more: &[&str]) -> serde_json::Value {
    let file = scenario("letters/tree-l2.mas");
    let output = succeed(pl_host().arg("evaluate").arg(file).args(["--json", "--device", "cpu"]).args(more));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn sampling_settings_of_an_evaluation_take_effect() {
    let own = evaluation_report(&[]);
    // Sampling from one token is the same as a temperature of 0.
    let greedy = evaluation_report(&["--set", "held_out.temperature=0"]);
    assert_ne!(own, greedy);
    assert_eq!(greedy, evaluation_report(&["--set", "held_out.top_k=1"]));
    assert_eq!(greedy, evaluation_report(&["--set", "held_out.top_p=0.0001"]));
    // Penalties are allowed because nothing is trained here.
    assert_ne!(own, evaluation_report(&["--set", "held_out.repetition_penalty=2"]));
    assert_ne!(own, evaluation_report(&["--set", "held_out.presence_penalty=5"]));
    assert_eq!(own, evaluation_report(&["--set", "held_out.min_p=0", "--set", "inference.slots=3"]));
}

#[test]
fn stop_strings_of_the_workflow_end_completions() {
    let tokens = |report: serde_json::Value| report["tokens"].as_f64().unwrap();
    let stop = r#"["a", "e", "i", "o", "u"]"#;
    let (alto, bass) = (format!("alto.stop={stop}"), format!("bass.stop={stop}"));
    let stopped = evaluation_report(&["--set", &alto, "--set", &bass]);
    // Only vowels earn rewards.
    assert!(stopped["agents"].as_array().unwrap().iter().all(|agent| agent["reward"] == 0.0), "{stopped}");
    assert!(tokens(stopped) < tokens(evaluation_report(&[])));
}

#[test]
fn check_reports_the_memory_of_a_workflow() {
    let check = |more: &[&str]| {
        let mut command = pl_host();
        // An empty cache and an unreachable hub.
        let folder = tempfile::tempdir().unwrap();
        command.arg("check").arg(example("math-l0.mas")).args(more).env("HF_HOME", folder.path());
        command.env("HF_ENDPOINT", "http://127.0.0.1:9");
        succeed(&mut command)
    };
    let message = stdout(&check(&[]));
    for part in ["weights, training", "gradients and optimiser", "KV cache", "activations", " free"] {
        assert!(message.contains(part), "no {part:?} in\n{message}");
    }
    let huge = ["--set", "inference.kv_cache=1000GiB"];
    let warning = "the workflow will take about 100";
    let output = check(&huge);
    assert!(stderr(&output).contains(warning) && stdout(&output).contains("1000.0 GiB"), "{output:?}");
    // Diagnostics for programs are the result: they go to stdout, alone.
    let short = check(&[&huge[..], &["--format", "short"]].concat());
    assert!(stdout(&short).contains(&format!("MAS0037 warning: {warning}")), "{}", stdout(&short));
    assert_eq!((stdout(&short).lines().count(), stderr(&short).as_str()), (1, ""));
    let json = check(&[&huge[..], &["--format", "json"]].concat());
    let list: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((list[0]["code"].as_str(), stderr(&json).as_str()), (Some("MAS0037"), ""), "{list}");
    let none: serde_json::Value = serde_json::from_slice(&check(&["--format", "json"]).stdout).unwrap();
    assert_eq!(none, serde_json::json!([]));
    let far = check(&["--set", "base.source=hf:nobody/nothing"]);
    assert!(stdout(&far).contains("memory    unknown: model base"), "{}", stdout(&far));
    assert_eq!(stderr(&far), "");
}

#[test]
fn evaluate_writes_every_completion() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("completions.jsonl");
    let mut command = pl_host();
    command.arg("evaluate").arg(scenario("letters/tree-l2.mas")).args(["--json", "--device", "cpu", "--out"]);
    let report: serde_json::Value = serde_json::from_str(&stdout(&succeed(command.arg(&out)))).unwrap();
    let text = std::fs::read_to_string(&out).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sum = |list: &str| lines.iter().map(|line| line[list].as_array().unwrap().len()).sum::<usize>();
    let episodes = report["episodes"].as_u64().unwrap();
    assert_eq!(sum("completion") as f64, report["tokens"].as_f64().unwrap() * episodes as f64);
    // Each agent acts once or twice in an episode; a line has the agent, its prompt, its completion and its action.
    for agent in ["alto", "bass"] {
        let first = lines.iter().filter(|line| line["agent"] == agent && line["turn"] == 0);
        assert_eq!(first.count() as u64, episodes);
    }
    for line in &lines {
        assert_eq!(line["evaluation"], "held_out");
        assert!(
            line["task"].is_string() && line["success"].is_boolean() && line["reward"].is_number(),
            "{line}"
        );
        assert!(!line["prompt"].as_array().unwrap().is_empty(), "{line}");
        // The action of these agents is their text.
        assert!(line["action"].to_string().contains(&line["text"].to_string()), "{line}");
    }
    let nowhere = folder.path().join("missing/completions.jsonl");
    let mut command = pl_host();
    let output = command.arg("evaluate").arg(scenario("letters/tree-l2.mas")).arg("--out").arg(&nowhere);
    assert_eq!(output.output().unwrap().status.code(), Some(2));
    // The folder is no run: nothing is played, and the older file stays as it was.
    let mut command = pl_host();
    command.arg("evaluate").arg(scenario("letters/tree-l2.mas")).args(["--device", "cpu", "--checkpoint"]);
    let failed = command.arg(folder.path()).arg("--out").arg(&out).output().unwrap();
    assert!(!failed.status.success());
    assert_eq!(std::fs::read_to_string(&out).unwrap(), text);
}

#[test]
fn play_shows_views_completions_actions_and_rewards() {
    let file = scenario("letters/tree-l2.mas");
    let task = r#"{"topic": "given by hand"}"#;
    let output = succeed(pl_host().arg("play").arg(&file).args(["--device", "cpu", "--task", task]));
    let message = stdout(&output);
    for part in
        ["alto · turn 1", "bass · turn 1", "alto given by hand", "[alto says]", "[alto does]", "[bass earns]"]
    {
        assert!(message.contains(part), "no {part:?} in\n{message}");
    }
}

#[test]
fn the_sandbox_runs_a_file_and_reports_its_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program.py");
    let run = |source: &str, input: &str| {
        std::fs::write(&program, source).unwrap();
        run_with_input(pl_host().args(["sandbox", "run"]).arg(&program), input)
    };
    let fine = run("import sympy\nx = sympy.Symbol('x')\nprint(sympy.solve(x**2 - 4), input())", "hello\n");
    assert!(fine.status.success(), "{}", stderr(&fine));
    assert_eq!(stdout(&fine), "[-2, 2] hello\n");
    let failed = run("print('before')\nraise ValueError('no')", "");
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(stdout(&failed), "before\n");
    assert!(stderr(&failed).contains("ValueError: no"), "{}", stderr(&failed));
    // The host's files are out of reach.
    let secret = repository().join("Cargo.toml");
    let reach = run(&format!("print(open({:?}).read())", secret.to_str().unwrap()), "");
    assert_eq!(reach.status.code(), Some(1));
    assert!(stderr(&reach).contains("FileNotFoundError"), "{}", stderr(&reach));
}

#[test]
fn data_of_a_folder_is_shown_and_checked_by_split() {
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("set");
    std::fs::create_dir(&set).unwrap();
    std::fs::write(set.join("train.jsonl"), "{\"topic\":\"a\"}\n{\"topic\":\"b\"}\n").unwrap();
    std::fs::write(set.join("test.json"), "[{\"topic\":\"c\"}]").unwrap();
    let data = |command: &str, name: &str| {
        pl_host().current_dir(folder.path()).args(["data", command, name]).output().unwrap()
    };
    let checked = stdout(&data("check", "./set"));
    assert_eq!(checked, "ok       ./set:test: 1 tasks\nok       ./set:train: 2 tasks\n");
    let shown = stdout(&data("show", "./set:train"));
    assert!(shown.starts_with("./set:train\n") && shown.contains("tasks  2"), "{shown}");
    assert!(shown.contains("first  {\"topic\":\"a\"}"), "{shown}");
    let wrong = data("check", "./set:dev");
    assert_eq!(wrong.status.code(), Some(2), "{}", stderr(&wrong));
    assert!(stderr(&wrong).contains("./set has no split dev; it has test, train"), "{}", stderr(&wrong));
}

#[test]
fn a_malformed_record_is_named_by_file_and_line() {
    let Some(gsm8k) = data("gsm8k/test.jsonl") else { return };
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.jsonl");
    let mut lines: Vec<String> =
        std::fs::read_to_string(gsm8k).unwrap().lines().take(5).map(str::to_owned).collect();
    lines[3] = r#"{"query": "2 + 2"}"#.to_owned();
    std::fs::write(&bad, lines.join("\n")).unwrap();
    let out = folder.path().join("out");
    let setting = format!("problems.tasks={}", bad.display());
    let output = run(&example("math.mas"), &out, &["--set", &setting]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("bad.jsonl:4:"), "{}", stderr(&output));
    assert!(!out.exists());
}

#[test]
fn a_run_folder_is_not_used_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (scenario("letters/tree-l2.mas"), folder.path().join("run"));
    succeed(&mut run(&file, &out, &["--set", "train.steps=1"]));
    let output = run(&file, &out, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("already holds a run"), "{}", stderr(&output));
}

#[test]
fn topics_are_explained() {
    let output = succeed(pl_host().args(["explain", "MAS0007,", "top_p"]));
    let message = stdout(&output);
    assert!(message.starts_with("MAS0007: ") && message.contains("\nagent.top_p: "), "{message}");
    let listed = stdout(&succeed(pl_host().arg("explain")));
    assert!(listed.contains("\n- MAS0041: "), "{listed}");
    let unknown = pl_host().args(["explain", "temprature"]).output().unwrap();
    assert_eq!((unknown.status.code(), stdout(&unknown)), (Some(2), String::new()));
    assert!(stderr(&unknown).contains("did you mean `temperature`?"), "{}", stderr(&unknown));
}

#[test]
fn the_schema_is_json() {
    let output = succeed(pl_host().arg("schema"));
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["properties"]["workflow"]["title"], "Workflow");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let check = pl_host().arg("check").arg(example("math.mas")).stdout(Stdio::piped()).spawn().unwrap();
    // The reader goes away.
    let mut check = check;
    drop(check.stdout.take());
    assert!(check.wait().unwrap().success());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.mas");
    std::fs::write(&file, "workflow wrong\nmodel base = 1\n").unwrap();
    let mut check = pl_host().arg("check").arg(&file).stderr(Stdio::piped()).spawn().unwrap();
    drop(check.stderr.take());
    assert_eq!(check.wait().unwrap().code(), Some(2));
}

#[test]
fn errors_for_programs_go_to_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.mas");
    std::fs::write(&file, "workflow wrong\nmodel base = 1\n").unwrap();
    let check = |format: &str| pl_host().arg("check").arg(&file).args(["--format", format]).output().unwrap();
    let json = check("json");
    assert_eq!((json.status.code(), stderr(&json).as_str()), (Some(2), ""));
    let list: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(list.as_array().unwrap().iter().all(|one| one["severity"] == "error"), "{list}");
    let short = check("short");
    assert_eq!((short.status.code(), stderr(&short).as_str()), (Some(2), ""));
    assert!(stdout(&short).contains("wrong.mas:2:"), "{}", stdout(&short));
    let human = check("human");
    assert_eq!((human.status.code(), stdout(&human).as_str()), (Some(2), ""));
}

#[test]
fn a_finished_run_is_prolonged_and_fixed_settings_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (scenario("letters/flat-l3.mas"), folder.path().join("run"));
    succeed(&mut run(&file, &out, &["--set", "train.steps=1"]));
    let resume = |more: &[&str]| {
        let mut command = pl_host();
        command.arg("run").arg("--resume").arg(&out).args(["--device", "cpu"]).args(more);
        command
    };
    let refused = resume(&["--set", "train.steps=2", "--set", "train.samples=2"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let message = stderr(&refused);
    assert!(message.contains("train.samples: the run was started with 4, now it is 2"), "{message}");
    succeed(&mut resume(&["--set", "train.steps=2", "--set", "inference.slots=8"]));
    assert!(out.join("steps/000002.parquet").is_file());
    let again = resume(&[]).output().unwrap();
    assert_eq!(again.status.code(), Some(0));
    assert!(stderr(&again).contains("nothing is left to do: all 2 steps"), "{}", stderr(&again));
}

#[test]
fn doctor_finds_what_set_up_has_made() {
    let output = succeed(pl_host().args(["doctor", "--json"]));
    let checks: Vec<serde_json::Value> = serde_json::from_str(&stdout(&output)).unwrap();
    let status = |name: &str| {
        let check = checks.iter().find(|check| check["name"] == name);
        check.unwrap_or_else(|| panic!("no {name} in {checks:?}"))["status"].as_str().unwrap().to_owned()
    };
    for name in ["model", "plugins", "python-worker"] {
        assert_eq!(status(name), "ready", "{name}");
    }
    assert!(
        checks.iter().all(|check| (check["status"] == "ready") == check["remedy"].is_null()),
        "{checks:?}"
    );
    let text = stdout(&succeed(pl_host().arg("doctor")));
    assert!(text.lines().any(|line| line.starts_with("ok  plugins ")), "{text}");
    // Without its folder of plugins, the program says what is missing and fails.
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("pl-host");
    std::fs::copy(repository().join("target/release/pl-host"), &alone).unwrap();
    let output = std::process::Command::new(alone).arg("doctor").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("missing: plugins"), "{}", stderr(&output));
}

#[test]
fn completions_and_the_manual_page_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&succeed(pl_host().args(["completions", shell])));
        assert!(script.contains("pl-host") && script.contains("sandbox"), "{shell}: {script}");
    }
    let page = stdout(&succeed(pl_host().arg("man")));
    for heading in [".SH PL\\-HOST RUN", ".SH PL\\-HOST PLUGIN NEW", ".SH PL\\-HOST SERVE"] {
        let plain = heading.replace("\\-", "-");
        assert!(page.lines().any(|line| line == heading || line == plain), "{heading} is missing in\n{page}");
    }
    assert!(page.contains("checkpoint"), "{page}");
}

/// vscode-languageclient and others add the flag by themselves.
#[test]
fn editors_may_name_the_transport_of_the_language_server() {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}}"#;
    let message = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let answer = stdout(&run_with_input(pl_host().args(["lsp", "--stdio"]), &message));
    assert!(answer.contains(r#""id":1"#) && answer.contains("capabilities"), "{answer}");
}

#[test]
fn a_project_of_each_pattern_passes_check() {
    let folder = tempfile::tempdir().unwrap();
    for pattern in ["single", "reflection", "debate", "ensemble", "router", "planner"] {
        let mut new = pl_host();
        new.args(["new", pattern, "--pattern", pattern, "--into"]).arg(folder.path());
        assert!(stdout(&succeed(&mut new)).contains(&format!("by the pattern `{pattern}`")));
        let file = folder.path().join(pattern).join(format!("{pattern}.mas"));
        let checked = succeed(pl_host().arg("check").arg(&file));
        assert!(stdout(&checked).contains("layout"), "{checked:?}");
        assert!(!stderr(&checked).contains("is never used"), "{}", stderr(&checked));
        succeed(pl_host().args(["fmt", "--check"]).arg(&file));
    }
    let refused = pl_host().args(["new", "x", "--pattern", "chaos"]).output().unwrap();
    assert!(!refused.status.success() && stderr(&refused).contains("planner"), "{}", stderr(&refused));
}
