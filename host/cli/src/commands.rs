//! One file per command.

pub mod check;
pub mod evaluate;
pub mod grade;
pub mod lsp;
pub mod play;
pub mod run;
pub mod sandbox;
