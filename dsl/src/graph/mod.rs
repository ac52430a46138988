//! Drawings of a checked workflow: its agents, the order in which they act, and the weights that they share.
//!
//! [`Graph`] holds everything that a drawing shows. Each format is a file: [`Graph::terminal`] for a shell, [`Graph::svg`]
//! for documents, [`Graph::mermaid`] and [`Graph::dot`] for tools with a layout of their own, and [`Graph::json`] for
//! programs. `placement` computes the positions for SVG, JSON and the order of the terminal drawing.

mod condition;
mod dot;
mod json;
mod mermaid;
mod model;
mod placement;
mod svg;
mod terminal;

pub use model::{Adapter, Agent, Edge, Graph, ItemRef, Model, Node, Policy, Reward};
pub use placement::PlacementError;
pub use terminal::TerminalOptions;
