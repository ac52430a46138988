//! What both grammars make of whole workflows.

use crate::{files, textmate, tree};

#[test]
fn every_workflow_is_read_without_a_mistake() {
    for path in files::workflows() {
        let tree = tree::parse(&files::read(&path));
        assert!(!tree.root_node().has_error(), "{}: {}", path.display(), tree.root_node().to_sexp());
    }
}

/// The snapshot is what both must see: every character of every form of the language over its class.
#[test]
fn every_form_has_its_classes() {
    let text = files::read(&files::repository("editors/tests/tests/fixtures/forms.mas"));
    insta::assert_snapshot!(tree::classify(&text).shown());
}

#[test]
fn both_grammars_see_the_same() {
    for path in files::workflows() {
        let text = files::read(&path);
        let (tree, textmate) = (tree::classify(&text).shown(), textmate::classify(&text).shown());
        for (number, (tree, textmate)) in tree.lines().zip(textmate.lines()).enumerate() {
            let line = text.lines().nth(number / 2).unwrap_or_default();
            assert_eq!(textmate, tree, "{}:{}\n {line}", path.display(), number / 2 + 1);
        }
    }
}

#[test]
fn broken_texts_keep_the_engines_going() {
    for path in files::of("dsl/tests/cases", "mas") {
        let text = files::read(&path);
        tree::parse(&text);
        textmate::classify(&text);
    }
    let deep = "a = ".to_owned() + &"[".repeat(20_000);
    tree::parse(&deep);
}
