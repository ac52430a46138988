//! The application as a library: check, plan, train, evaluate, play, grade and replay workflows.
//!
//! A [`Host`] has what all operations share. [`CheckedWorkflow::open`] reads a file and checks it against its
//! plugins. [`TrainingRun`] trains it; [`Session`] loads its models to play and evaluate it. Errors are
//! typed, progress goes to a [`Progress`], and nothing here prints or reads the command line.
//!
//! # Example
//!
//! Training from Rust, as `tests/it/example.rs` compiles and runs it:
//!
//! ```ignore
#![doc = include_str!("../tests/it/example.rs")]
//! ```

pub mod audit;
mod changed_settings;
mod chat;
mod checkpoints;
mod cluster;
pub mod compare;
mod corpus;
pub mod data;
pub mod design;
mod device;
mod diagnostics;
pub mod doctor;
mod dtype;
mod error;
pub mod evaluation;
mod generation;
pub mod grade;
mod granted_policies;
mod host;
mod kv_cache;
mod locate;
mod lock;
mod memory;
mod missing_files;
mod model_card;
mod open_run;
mod origin;
mod permissions;
mod placement;
pub mod plan;
pub mod play;
pub mod play_run;
mod player;
mod plugins;
pub mod progress;
pub mod replay;
mod required_permissions;
pub mod results;
mod run_folder;
mod run_tokenizers;
pub mod sandbox;
pub mod schedule;
mod server_key;
mod session;
mod stop_request;
mod stored;
pub mod sweep;
#[cfg(test)]
mod test_failures;
#[cfg(test)]
mod test_transitions;
mod token_gradient;
mod training;
mod unknown_names;
mod update_source;
mod workflow;

pub use checkpoints::last_checkpoint;
pub use cluster::{
    AttachedCommands, ClusterOptions, ClusterRunStatus, ClusterServer, JoinOptions, LearnerEntry,
    LearnerOptions, MissingProcess, Participant, RankPlace, Role, RunEntry, SandboxMachineOptions,
    SandboxStatus, Sandboxes, ServerAddress, ServerConfig, TOKEN_VARIABLE, WorkerOptions, WorkerStatus,
    cluster_status, learn, run_jobs, work,
};
pub use device::{DevicePreference, select_device};
pub use diagnostics::Diagnostics;
pub use dtype::model_dtype;
pub use error::Error;
pub use error::cluster::ClusterError;
pub use error::cuda::CudaUnavailable;
pub use error::locate::{LocateError, MissingData};
pub use error::plugin::PluginError;
pub use error::repeat::RepeatError;
pub use error::repetition::Repetition;
pub use error::stored::InvalidWorkflow;
pub use generation::{ControlError, RuntimeAdapters, RuntimeControl, is_hosted};
pub use host::{Embedded, Host, build_engine, plugin_engine};
pub use memory::{Bytes, MachineMemory, MemoryEstimate};
pub use open_run::open_run;
pub use permissions::{
    Access, AccessKind, InvalidHost, InvalidVariable, ListedValue, PermissionRequest, Permissions,
    SharedPermissions, flags, one_line, split_list,
};
pub use pl_model::Tokenizer;
pub use pl_model::libtorch::keep_freed_memory;
pub use player::{PlayedEpisode, Player};
pub use plugins::PluginCatalog;
pub use progress::{NoProgress, Progress};
pub use run_tokenizers::RunTokenizers;
pub use session::{Session, SessionOptions, SessionPolicy};
pub use stop_request::StopRequest;
pub use stored::StoredWorkflow;
pub use token_gradient::{TokenGradient, token_gradient};
pub use training::{
    LevelState, LoopState, ResumeOptions, RunEnding, RunOptions, ScenarioCursor, StepAhead, TrainingRun,
};
pub use unknown_names::unknown_names;
pub use workflow::CheckedWorkflow;
