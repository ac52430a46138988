//! Messages from the engine's handles to its thread.

use std::sync::{Arc, mpsc};

use pl_grammar::CompiledGrammar;
use pl_types::{Completion, GenerateError, Request};
use tokio::sync::oneshot;

use crate::config::{EngineCommand, PolicyWeights, WeightUpdate};
use crate::during_update::DuringUpdate;

/// Request for completions, with what its handle has prepared.
pub(crate) struct NewRequest {
    pub(crate) request: Request,
    pub(crate) during_update: DuringUpdate,
    /// The grammar of its completions.
    pub(crate) grammar: Option<Arc<CompiledGrammar>>,
}

pub(crate) enum WorkerMessage {
    Generate {
        request: NewRequest,
        reply: oneshot::Sender<Result<Vec<Completion>, GenerateError>>,
    },
    Score {
        request: Request,
        targets: Arc<[u32]>,
        reply: oneshot::Sender<Result<Vec<f32>, GenerateError>>,
    },
    Add {
        weights: PolicyWeights,
        reply: mpsc::SyncSender<Result<usize, GenerateError>>,
    },
    Remove {
        policy: usize,
        reply: mpsc::SyncSender<Result<(), GenerateError>>,
    },
    Command {
        command: EngineCommand,
        reply: mpsc::SyncSender<Result<(), GenerateError>>,
    },
    Publish {
        policy: usize,
        update: WeightUpdate,
        version: u64,
        reply: mpsc::SyncSender<Result<(), GenerateError>>,
    },
}
