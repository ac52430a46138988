//! The tree-sitter grammar: syntax trees, and the classes of its query.

use pl_editors_tests::language;
use tree_sitter::{Parser, Tree};
use tree_sitter_highlight::{Highlight, HighlightConfiguration, HighlightEvent, Highlighter};

use crate::classes::{CLASSES, Classified};
use crate::files;

pub fn parse(text: &str) -> Tree {
    let mut parser = Parser::new();
    parser.set_language(&language()).unwrap();
    parser.parse(text, None).unwrap()
}

/// Classifies a text with `queries/highlights.scm`.
pub fn classify(text: &str) -> Classified<'_> {
    let query = files::read(&files::repository("editors/tree-sitter-mas/queries/highlights.scm"));
    let mut configuration = HighlightConfiguration::new(language(), "mas", &query, "", "").unwrap();
    let names: Vec<&str> = CLASSES.iter().map(|class| class.capture).collect();
    configuration.configure(&names);
    let mut out = Classified::unclassified(text);
    let mut inside: Vec<Highlight> = Vec::new();
    let mut highlighter = Highlighter::new();
    for event in highlighter.highlight(&configuration, text.as_bytes(), None, None, |_| None).unwrap() {
        match event.unwrap() {
            HighlightEvent::HighlightStart(class) => inside.push(class),
            HighlightEvent::HighlightEnd => {
                inside.pop();
            }
            HighlightEvent::Source { start, end } => {
                if let Some(class) = inside.last() {
                    out.set(start, end, &CLASSES[class.0]);
                }
            }
        }
    }
    out
}
