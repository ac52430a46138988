//! Passages of a corpus for environments that search.
//!
//! - [`CorpusFile`]: a file of passages, JSONL or one JSON object, read record by record.
//! - [`CorpusIndex`]: a BM25 index of such a file, on disk. It is built once and memory-mapped.
//! - [`RemoteCorpus`]: a retrieval server of one's own.
//!
//! The same corpus, settings and query give the same passages in the same order: an index has one segment, whose
//! order is that of the file, and equal scores are ordered by it.

mod analysis;
mod error;
mod file;
mod index;
mod remote;

pub use analysis::Language;
pub use error::{Error, Place, RecordProblem};
pub use file::{CorpusFile, Fields};
pub use index::CorpusIndex;
pub use remote::{RemoteConfig, RemoteCorpus};
