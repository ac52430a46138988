//! What editors ask about a text that is being written: its outline, and where the cursor stands in it.
//!
//! All of it rests on the scanner, which finds the statements of a broken text too. Nothing here reports mistakes.

mod cursor;
mod head;
mod outline;
mod tokens;

pub use cursor::{Cursor, Enclosing, Place};
pub use outline::{Block, outline};

use crate::diagnostic::Reports;
use crate::scan::{Piece, scan};

fn pieces(text: &str) -> Vec<Piece> {
    // Mistakes are for the check to report.
    scan(text, 0..text.len(), &mut Reports::new(&[]))
}
