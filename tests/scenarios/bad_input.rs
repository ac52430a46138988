//! Wrong input: exit code 2, a message that says where and what to do, and nothing written.
//!
//! Each folder below `bad-input` holds a `case.mas`; the message it must give lies in `snapshots`.

use crate::support::{pl_host, repository, scenario, stderr};

#[test]
fn every_case_is_refused_with_its_message() {
    let mut cases: Vec<_> =
        std::fs::read_dir(scenario("bad-input")).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 7, "the cases are gone");
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
        let said = stderr(&output)
            .replace(&*repository().to_string_lossy(), "[repository]")
            .replace(&*folder.path().to_string_lossy(), "[out]");
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(!out.exists(), "{name}: the run folder was made all the same");
        insta::with_settings!({ prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(name.as_str(), said);
        });
    }
}
