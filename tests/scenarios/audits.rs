//! Audits of the examples: flaws of rules and rewards that they find, and those that they must not find.

use std::path::Path;

use crate::support::{pl_host, repository, stderr, stdout};

fn example(name: &str) -> std::path::PathBuf {
    repository().join("examples").join(name)
}

/// The reference's rules of Plan-Path pay for walking to and fro; the fixed ones don't.
#[test]
fn an_audit_finds_a_loop_that_pays() {
    let audit = |rules: &str| {
        let mut command = pl_host();
        command.arg("audit").arg(example("plan-path.mas")).args(["--tasks", "6", "--json"]);
        // Level 1 has paths of one cell, which the solution of another task may find too.
        command.args(["--set", "maze.level=2", "--set", "train.returns=episode", "--set"]);
        command.arg(format!("maze.rules={rules}"));
        let output = command.output().unwrap();
        let audit: serde_json::Value = serde_json::from_str(&stdout(&output))
            .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
        for oracle in audit["oracle"].as_array().unwrap() {
            assert_eq!((&oracle["success"], &oracle["unsolvable"]), (&1.0.into(), &0.0.into()), "{oracle}");
        }
        assert_eq!(audit["oracle"][0]["tasks"], "maze");
        let findings = audit["findings"].as_array().unwrap().clone();
        let of = |verdict: &str| {
            let own = findings.iter().filter(|finding| finding["verdict"] == verdict);
            own.map(|finding| finding["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(repeats_a_loop(&audit), rules == "reference", "{audit:#}");
        (output.status.code(), of("defect"), of("ok"))
    };
    let (code, defects, fine) = audit("sound");
    assert_eq!((code, &defects[..]), (Some(0), &[][..]), "{defects:?}");
    assert!(fine.iter().any(|text| text.contains("shares no starting state")), "{fine:?}");
    let (code, defects, _) = audit("reference");
    assert_eq!(code, Some(1));
    let pays = |text: &String| text.starts_with("a loop of known moves (") && text.contains("pay in a loop");
    assert!(defects.iter().any(pays), "{defects:?}");
    // Ten thousand moves count as a solution.
    let long = |text: &String| {
        text.starts_with("a long plan of one known move (") && text.ends_with("solves 100 % of the tasks")
    };
    assert!(defects.iter().any(long), "{defects:?}");
}

/// Audits a workflow. Returns the result.
fn audit_of(file: &Path, arguments: &[&str]) -> serde_json::Value {
    let mut command = pl_host();
    let output = command.arg("audit").arg(file).arg("--json").args(arguments).output().unwrap();
    let text = stdout(&output);
    assert!(text.starts_with('{'), "{}", stderr(&output));
    serde_json::from_str(&text).unwrap()
}

/// Returns true if an audit has a finding of a severity whose text begins and ends with the given parts.
fn has_finding(audit: &serde_json::Value, severity: &str, start: &str, end: &str) -> bool {
    audit["findings"].as_array().unwrap().iter().any(|finding| {
        let text = finding["text"].as_str().unwrap();
        finding["verdict"] == severity && text.starts_with(start) && text.ends_with(end)
    })
}

/// By the reference's rules of Sokoban, two hundred moves count as a solution, and what the planner earns is paid to it
/// twice.
#[test]
fn an_audit_finds_that_many_moves_solve_any_room() {
    let findings = |rules: &str| {
        let rules = format!("rooms.rules={rules}");
        let arguments = ["--tasks", "8", "--set", "rooms.level=2", "--set", &rules];
        let audit = audit_of(&example("sokoban-l0.mas"), &arguments);
        let long = "a long plan of one known move (";
        let solves = has_finding(&audit, "defect", long, "solves 100 % of the tasks");
        let twice = has_finding(&audit, "look", "the own score of agent `push` is the team's", "count twice");
        (solves, twice, audit)
    };
    let (solves, twice, sound) = findings("sound");
    assert!(!solves && !twice, "{sound:#}");
    let (solves, twice, reference) = findings("reference");
    assert!(solves && twice, "{reference:#}");
}

/// By the reference's rules of Sokoban, a box that is pushed off its goal and back onto it pays, while another box isn't on
/// its goal. The way round the box makes that a loop of ten moves.
#[test]
fn an_audit_finds_a_long_loop_that_pays() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    // A room and its mirror image: the oracle's plans for both have moves in all directions.
    let rows = ["#########", "#    ####", "#@$. $ .#", "#########"];
    let mirrored = rows.map(|row| row.chars().rev().collect::<String>());
    let records = [serde_json::json!({ "room": rows }), serde_json::json!({ "room": mirrored })];
    write("rooms.jsonl", &records.map(|record| format!("{record}\n")).concat());
    write("test.jsonl", "{\"room\": [\"######\", \"#@$ .#\", \"######\"]}\n");
    let text = std::fs::read_to_string(example("sokoban-l0.mas")).unwrap();
    let own = text.replace("planning.sokoban { level = 0 }", "planning.sokoban { tasks = \"rooms.jsonl\" }");
    let whole = own.replace("evaluate test { ", "evaluate test { tasks = \"test.jsonl\"; ");
    assert!(own != text && whole != own);
    write("rooms.mas", &whole);
    let audit = |rules: &str| {
        let rules = format!("rooms.rules={rules}");
        let arguments = ["--set", "train.returns=episode", "--set", &rules];
        audit_of(&folder.path().join("rooms.mas"), &arguments)
    };
    let pays = |audit: &serde_json::Value| {
        has_finding(audit, "defect", "a loop of known moves (", "its actions pay in a loop")
    };
    let sound = audit("sound");
    assert!(!repeats_a_loop(&sound) && !pays(&sound), "{sound:#}");
    let reference = audit("reference");
    assert!(repeats_a_loop(&reference) && pays(&reference), "{reference:#}");
}

/// Returns true if an audit found moves that lead back to an earlier state and earn more than they cost.
fn repeats_a_loop(audit: &serde_json::Value) -> bool {
    audit["adversaries"].as_array().unwrap().iter().any(|one| one["strategy"] == "a loop of known moves")
}

/// By the reference's rules of Blocksworld, a block that is moved to and fro pays. The oracle's plans have such moves, the
/// prompt's fragments don't.
#[test]
fn an_audit_finds_moves_that_undo_each_other_and_pay() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(example("sokoban-l0.mas")).unwrap();
    let blocks = text.replace("planning.sokoban { level = 0 }", "planning.blocksworld { level = 2 }");
    assert_ne!(blocks, text);
    let file = folder.path().join("blocks.mas");
    std::fs::write(&file, blocks).unwrap();
    let audit = |rules: &str| {
        let mut command = pl_host();
        command.arg("audit").arg(&file).args(["--tasks", "12", "--json", "--set", "train.returns=episode"]);
        let output = command.args(["--set", &format!("rooms.rules={rules}")]).output().unwrap();
        let audit: serde_json::Value = serde_json::from_str(&stdout(&output))
            .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
        let pays = |finding: &serde_json::Value| {
            let text = finding["text"].as_str().unwrap();
            text.starts_with("a loop of known moves (") && text.contains("pay in a loop")
        };
        let findings = audit["findings"].as_array().unwrap();
        let pays = findings.iter().any(|finding| finding["verdict"] == "defect" && pays(finding));
        (repeats_a_loop(&audit), pays, audit)
    };
    let (repeats, pays, sound) = audit("sound");
    assert!(!repeats && !pays, "{sound:#}");
    let (repeats, pays, reference) = audit("reference");
    assert!(repeats && pays, "{reference:#}");
}

/// By the reference's rules, any whole grid without a repeated digit solves any Sudoku, and any board without an attack
/// solves N Queens, since given queens may move; by the fixed ones, only its own does.
#[test]
fn an_audit_finds_that_solutions_solve_other_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(example("sudoku.mas")).unwrap();
    let queens = text.replace("planning.sudoku { level = 0 }", "planning.queens { level = 0 }");
    assert_ne!(queens, text);
    let queens_file = folder.path().join("queens.mas");
    std::fs::write(&queens_file, queens).unwrap();
    let solves_others = |file: &Path, rules: &str| {
        let mut command = pl_host();
        command.arg("audit").arg(file).args(["--tasks", "3", "--json", "--set"]);
        let output = command.arg(format!("puzzles.rules={rules}")).output().unwrap();
        let audit: serde_json::Value = serde_json::from_str(&stdout(&output))
            .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
        let other = |one: &&serde_json::Value| one["strategy"] == "the oracle's solution of another task";
        let success = audit["adversaries"].as_array().unwrap().iter().find(other).unwrap()["success"].clone();
        let findings = audit["findings"].as_array().unwrap().clone();
        let text = "the oracle's solution of another task solves 100 % of the tasks";
        let finding = findings.into_iter().find(|finding| finding["text"] == text);
        (success, finding.map(|finding| finding["verdict"].clone()), output.status.code())
    };
    for file in [example("sudoku.mas"), queens_file] {
        let (success, finding, _) = solves_others(&file, "sound");
        assert_eq!((success, finding), (0.0.into(), None), "{}", file.display());
        let reference = solves_others(&file, "reference");
        assert_eq!(reference, (1.0.into(), Some("defect".into()), Some(1)), "{}", file.display());
    }
}

/// Adversaries that neither write programs nor work out results earn nothing as a coder or as a tester.
#[test]
fn an_audit_finds_no_free_reward_for_a_coder_and_a_tester() {
    let folder = tempfile::tempdir().unwrap();
    let problem = |name: &str, text: &str, body: &str| {
        let prompt = format!("def {name}(x):\n    \"\"\" {text} \"\"\"\n");
        let expected: Vec<String> =
            [4, 14, 159].iter().map(|x| format!("candidate({x}) == right({x})")).collect();
        let asserts = expected.iter().map(|test| format!("    assert {test}\n")).collect::<String>();
        let test = format!("def right(x):\n{body}\n\ndef check(candidate):\n{asserts}");
        serde_json::json!({"prompt": prompt, "entry_point": name, "canonical_solution": body, "test": test})
            .to_string()
    };
    let file = |name: &str, line: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, line + "\n").unwrap();
        path.display().to_string()
    };
    let train = file(
        "train.jsonl",
        problem("mix", "Mixes a number. `mix(3)` is 62949.", "    return (x * 7919 + 104729) % 65537"),
    );
    let test = file("test.jsonl", problem("cube", "The third power.", "    return x ** 3"));
    let mut command = pl_host();
    command.arg("audit").arg(example("code-team.mas")).args(["--tasks", "1", "--json"]);
    command.args(["--set", "train.returns=episode", "--set", &format!("problems.tasks={train}")]);
    command.args(["--set", &format!("test.tasks={test}"), "--answer", "assert mix(3) == 62949"]);
    command.args(["--answer", "```python\ndef mix(x):\n    return 62949\n```\nassert mix(3) == mix(3)"]);
    let output = command.output().unwrap();
    let audit: serde_json::Value =
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    assert_eq!(output.status.code(), Some(0), "{audit:#}");
    let verdicts: Vec<_> =
        audit["findings"].as_array().unwrap().iter().map(|one| one["verdict"].clone()).collect();
    assert!(verdicts.iter().all(|verdict| verdict == "ok"), "{:#}", audit["findings"]);
    for adversary in audit["adversaries"].as_array().unwrap() {
        assert!(adversary["reward"] == 0.0 && adversary["faults"] == 0, "{adversary:#}");
    }
}
