//! The transformer: its dimensions, weights and adapters, and its passes over packed sequences.

pub(crate) mod adapter;
pub(crate) mod config;
pub(crate) mod matmul;
pub(crate) mod packed;
pub(crate) mod parallel;
pub(crate) mod rope;
pub(crate) mod rope_scaling;
pub(crate) mod tensor_set;
pub(crate) mod transformer;
pub(crate) mod values;
pub(crate) mod weight_matrix;
pub(crate) mod weights;
