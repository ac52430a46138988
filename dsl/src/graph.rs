//! A checked workflow as a picture: who acts, in what order, on which weights.
//!
//! [`Graph`] is what there is to draw, and each form is a file: [`Graph::terminal`] for people at a shell,
//! [`Graph::svg`] for documents (laid out here, no other program is needed), [`Graph::mermaid`] and [`Graph::dot`]
//! for tools that lay out by themselves, and [`Graph::json`] for programs.

mod arrange;
mod condition;
mod crossing;
mod dot;
mod json;
mod layers;
mod mermaid;
mod model;
mod route;
mod svg;
mod terminal;

pub use model::{Adapter, Agent, Edge, Graph, Item, Model, Node, Policy, Reward};
pub use terminal::Screen;
