//! Models on libtorch: tokenizers, chat templates, weights, transformer, adapters.
