//! Analyses for editors: the outline of a text, the context of the cursor, and the definitions and uses of names.
//!
//! They are based on the scanner, which also finds the statements of a text with mistakes. They report no mistakes.

mod cursor;
mod head;
mod lexer;
pub mod names;
mod outline;

pub use cursor::{Cursor, CursorContext, EnclosingBlock};
pub use outline::{OutlineBlock, outline};

use crate::diagnostic::reports::Reports;
use crate::syntax::scan::{Statement, scan};

fn statements(text: &str) -> Vec<Statement> {
    // Mistakes are for the check to report.
    scan(text, 0..text.len(), &mut Reports::new(&[]))
}
