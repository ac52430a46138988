//! Both grammars on whole workflows.

use crate::{files, textmate, tree};

#[test]
fn every_workflow_is_parsed_without_errors() {
    for path in files::workflows() {
        let tree = tree::parse(&files::read(&path));
        assert!(!tree.root_node().has_error(), "{}: {}", path.display(), tree.root_node().to_sexp());
    }
}

/// The snapshot shows the class of every character in every form of the language.
#[test]
fn every_form_has_its_classes() {
    let text = files::read(&files::repository("editors/tests/tests/fixtures/forms.mas"));
    insta::assert_snapshot!(tree::classify(&text).render());
}

#[test]
fn both_grammars_assign_the_same_classes() {
    for path in files::workflows() {
        let text = files::read(&path);
        let (tree, textmate) = (tree::classify(&text).render(), textmate::classify(&text).render());
        for (number, (tree, textmate)) in tree.lines().zip(textmate.lines()).enumerate() {
            let line = text.lines().nth(number / 2).unwrap_or_default();
            assert_eq!(textmate, tree, "{}:{}\n {line}", path.display(), number / 2 + 1);
        }
    }
}

#[test]
fn invalid_texts_do_not_crash_the_engines() {
    for path in files::with_extension("dsl/tests/cases", "mas") {
        let text = files::read(&path);
        tree::parse(&text);
        textmate::classify(&text);
    }
    let deep = "a = ".to_owned() + &"[".repeat(20_000);
    tree::parse(&deep);
}
