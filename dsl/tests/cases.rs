//! Every file in `tests/cases` against its expected messages beside it, and the examples, which have none.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::Shelf;
use mas_dsl::workflow::Layout;
use mas_dsl::{Checked, Source, check, render};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The workflow files of a folder, in order of name.
fn workflows(folder: &Path) -> Vec<Source> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "mas"))
        .collect();
    files.sort();
    let read = |path: &PathBuf| Source {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        text: fs::read_to_string(path).unwrap(),
    };
    files.iter().map(read).collect()
}

fn snapshots() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder("tests/cases"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}

#[test]
fn every_case_has_its_messages() {
    let cases = workflows(&folder("tests/cases"));
    assert!(cases.len() >= 30, "only {} cases were found", cases.len());
    snapshots().bind(|| {
        for source in cases {
            let Checked { workflow, diagnostics } = check(&source, &[], &Shelf);
            let shown = if diagnostics.is_empty() {
                "nothing to say\n".to_owned()
            } else {
                render::human(&diagnostics, &source, false)
            };
            let failed = diagnostics.iter().any(|one| one.severity == mas_dsl::Severity::Error);
            assert_eq!(workflow.is_none(), failed, "{}", source.name);
            insta::assert_snapshot!(source.name.trim_end_matches(".mas"), shown);
        }
    });
}

#[test]
fn examples_are_clean_and_have_their_layout() {
    let layouts = [
        ("chat.mas", Layout::L2),
        ("math-l0.mas", Layout::L0),
        ("math-l1.mas", Layout::L1),
        ("math-l3.mas", Layout::L3),
        ("math-mixed.mas", Layout::Mixed),
        ("math.mas", Layout::L2),
    ];
    let examples = workflows(&folder("../examples"));
    for (name, layout) in layouts {
        let source = examples.iter().find(|source| source.name == name).unwrap();
        let Checked { workflow, diagnostics } = check(source, &[], &Shelf);
        assert_eq!(render::short(&diagnostics, source), "");
        assert_eq!(workflow.unwrap().layout, layout, "{name}");
    }
}
