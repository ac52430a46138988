//! Run folders in a browser: curves, episodes as conversations, sampled trees, tokens and settings.
//!
//! The server reads nothing outside of the run folders, and only reads, except that a [`Player`] plays episodes. It sends JSON and the files of one page;
//! the page puts all recorded text in as text. Nothing is held whole: logs are read in pieces, trace files are
//! indexed when they are first needed ([`Viewer`] bounds the indexes' memory), and of a step file only the
//! columns and the row in question are read.

mod assets;
mod curves;
mod episode;
mod error;
mod event;
mod export;
mod index;
mod logs;
mod play;
mod query;
mod response;
mod reward_weights;
mod router;
mod rows;
mod runs;
mod security;
mod tokens;
mod trace_file;
mod trained;
mod viewer;
mod workflow;

pub use episode::{AgentTurn, Branch, EpisodeDetails, NodeVisit};
pub use error::Error;
pub use export::{ExportFormat, Exported, export};
pub use play::{LiveEpisode, PlayEvent, PlayMessage, PlayRequest, PlayStart, Player};
pub use query::{EpisodePage, EpisodeQuery, SortKey};
pub use router::serve;
pub use runs::{RunState, RunSummary, list_runs};
pub use security::AccessToken;
pub use viewer::Viewer;
pub use workflow::{SettingDoc, TokenTexts, Unavailable, Workflows};
