//! Evaluation: from the syntax tree to values, with overrides, params and templates applied.

mod arithmetic;
pub(crate) mod assemble;
pub(crate) mod evaluate;
pub(crate) mod expand;
pub mod functions;
mod numbers;
pub(crate) mod overrides;
pub(crate) mod params;
pub(crate) mod raw;
pub(crate) mod scalar;
pub(crate) mod scope;
pub(crate) mod typed;
