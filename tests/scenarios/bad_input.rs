//! Invalid input: exit code 2, a message that names the place and what to do, and nothing written.
//!
//! Each folder in `bad-input` holds a `case.mas`; `snapshots` holds the expected message.

use crate::support::{pl_host, repository, scenario, stderr, stdout};

#[test]
fn every_case_is_refused_with_its_message() {
    let mut cases: Vec<_> =
        std::fs::read_dir(scenario("bad-input")).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 7, "cases are missing");
    for case in cases {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let output = pl_host()
            .current_dir(&case)
            .args(["run", "case.mas", "--device", "cpu", "--out"])
            .arg(&out)
            .output()
            .unwrap();
        let message = stderr(&output)
            .replace(&*repository().to_string_lossy(), "[repository]")
            .replace(&*folder.path().to_string_lossy(), "[out]");
        assert_eq!(output.status.code(), Some(2), "{name}: {message}");
        assert!(!out.exists(), "{name}: the run folder was created");
        insta::with_settings!({ prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(name.as_str(), message);
        });
    }
}

/// Comments and blank lines of a collection are no tasks, but they count as lines.
#[test]
fn a_sudoku_with_several_solutions_is_named_by_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let puzzles = folder.path().join("puzzles.txt");
    std::fs::write(&puzzles, "# made by hand\n12..34....43..2.\n\n1...............\n").unwrap();
    let mut audit = pl_host();
    audit.arg("audit").arg(repository().join("examples/sudoku.mas")).args(["--tasks", "1", "--set"]);
    let output = audit.arg(format!("puzzles.tasks={}", puzzles.display())).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let expected = "task puzzles:2: line 4 of the collection: the puzzle has more than one solution";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
}

/// Missing files that only a run would open are warnings, and names that no machine knows are errors. Both have their places.
#[test]
fn check_finds_what_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let case = std::fs::read_to_string(scenario("bad-input/missing-tasks/case.mas")).unwrap();
    let check = |tasks: &str| {
        let text = case.replace("../../../data/tiny", "./gone").replace("no-such-tasks.jsonl", tasks);
        std::fs::write(folder.path().join("case.mas"), text).unwrap();
        let mut check = pl_host();
        check.current_dir(folder.path()).args(["check", "case.mas", "--format", "short"]);
        let output = check.output().unwrap();
        (output.status.code(), stdout(&output))
    };
    let (code, found) = check("gone.jsonl");
    assert_eq!(code, Some(0), "{found}");
    assert!(found.contains("case.mas:4:14: MAS0060 warning: model base: there is no ./gone"), "{found}");
    assert!(found.contains("case.mas:8:45: MAS0060 warning: there is no task file gone.jsonl"), "{found}");
    let (code, found) = check("gsmk:train");
    assert_eq!(code, Some(2), "{found}");
    assert!(found.contains("case.mas:8:45: MAS0060 error: there is no data set `gsmk`"), "{found}");
    assert!(found.contains("did you mean `gsm8k`?"), "{found}");
    let (code, found) = check("gsm8k:nope");
    assert_eq!(code, Some(2), "{found}");
    assert!(found.contains("no split `nope` (its splits are: `train` and `test`)"), "{found}");
}
