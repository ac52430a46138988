//! Download of models from a Hugging Face hub, into the cache that Python's `huggingface_hub` uses too.
//!
//! [`HubModel`] is a model's name in a workflow, [`Hub`] the address and settings of a hub. A download
//! requests the list of a revision's files once, downloads only the files that a model needs, and returns a
//! folder (or one GGUF file) for [`Model::load`](crate::Model::load). Files in the cache are not requested
//! again; if the hub can't be reached, a complete model in the cache is used. Files of data sets ([`HubData`]) are downloaded
//! likewise.

mod cache;
mod client;
mod error;
mod fetch;
mod listing;
mod settings;
mod source;

pub use fetch::{FetchProgress, Fetched, FetchedData};
pub use settings::Hub;
pub use source::{HubData, HubModel};
