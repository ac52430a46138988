//! The cases of `test/corpus`, run without the tree-sitter program.

use crate::{files, tree};

/// Normalises the white space of a tree.
fn normalize(tree: &str) -> String {
    tree.split_whitespace().collect::<Vec<_>>().join(" ").replace(" )", ")")
}

/// Removes the names of fields, which the corpus omits.
fn without_fields(tree: &str) -> String {
    tree.split(' ').filter(|word| !word.ends_with(':')).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_case_of_the_corpus_holds() {
    for path in files::with_extension("editors/tree-sitter-mas/test/corpus", "txt") {
        let text = files::read(&path);
        let rule = "=".repeat(80);
        // `===`, name, `===`, case, `===`, name, …
        let parts: Vec<&str> = text.split(&rule).skip(1).collect();
        for case in parts.chunks(2) {
            let [name, rest] = case else { panic!("{}: a case lacks its text", path.display()) };
            let (source, expected) = rest.split_once(&"-".repeat(80)).expect("a tree below the text");
            let found = tree::parse(source.trim_start_matches('\n')).root_node().to_sexp();
            assert_eq!(
                without_fields(&normalize(&found)),
                normalize(expected),
                "{}: {}",
                path.display(),
                name.trim()
            );
        }
    }
}
