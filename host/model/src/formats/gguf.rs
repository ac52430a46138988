//! GGUF, llama.cpp's file format for quantized models.

mod file;
pub(crate) mod model;
mod quant;
mod tokenizer;
