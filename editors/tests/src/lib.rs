//! Holds the generated tree-sitter parser for the tests beside it.

unsafe extern "C" {
    fn tree_sitter_mas() -> *const ();
}

/// What makes a tree-sitter language of it.
pub const PARSER: unsafe extern "C" fn() -> *const () = tree_sitter_mas;
