//! The generated tree-sitter parser, for the tests of this crate.

use tree_sitter::Language;
use tree_sitter_language::LanguageFn;

unsafe extern "C" {
    fn tree_sitter_mas() -> *const ();
}

/// The language as tree-sitter knows it.
pub fn language() -> Language {
    // SAFETY: the generated parser is made for the tree-sitter that it is linked with.
    Language::new(unsafe { LanguageFn::from_raw(tree_sitter_mas) })
}
