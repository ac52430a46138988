//! GGUF, llama.cpp's file format for quantized models.

mod file;
pub(crate) mod model;
mod packing;
mod quant;
mod tokenizer;
