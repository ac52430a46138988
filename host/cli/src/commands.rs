//! Commands, one module each.

pub mod audit;
pub mod check;
pub mod compare;
pub mod completions;
pub mod data;
pub mod doctor;
pub mod evaluate;
pub mod explain;
pub mod export;
pub mod fmt;
pub mod grade;
pub mod graph;
pub mod lsp;
pub mod man;
pub mod plan;
pub mod play;
pub mod plugin;
pub mod replay;
pub mod run;
pub mod runs;
pub mod sandbox;
pub mod schema;
pub mod serve;
pub mod sweep;
pub mod view;
