//! Invalid input: exit code 2, a message that names the place and what to do, and nothing written.
//!
//! Each folder in `bad-input` holds a `case.mas`; `snapshots` holds the expected message.

use crate::support::{pl_host, repository, scenario, stderr};

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
