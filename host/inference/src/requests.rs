//! Requests in progress.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use pl_grammar::CompiledGrammar;
use pl_types::{Completion, GenerateError, Request};
use tokio::sync::oneshot;

use crate::during_update::DuringUpdate;
use crate::executor::Executor;
use crate::message::NewRequest;
use crate::policies::{Policies, PolicySnapshot};

/// Identifies a request in progress.
pub(crate) type RequestId = u64;

/// A request that is not finished.
pub(crate) struct OpenRequest<E: Executor> {
    pub(crate) request: Request,
    /// Weights that its completions begin with.
    pub(crate) policy: PolicySnapshot<E>,
    pub(crate) during_update: DuringUpdate,
    /// True if one of its completions has begun.
    pub(crate) begun: bool,
    /// The grammar of its completions.
    pub(crate) grammar: Option<Arc<CompiledGrammar>>,
    reply: Reply,
    completions: Vec<Option<Completion>>,
}

/// The channel for a request's result. A send fails only if the requester is gone, which cancels the request.
pub(crate) enum Reply {
    Completions(oneshot::Sender<Result<Vec<Completion>, GenerateError>>),
    Scores(oneshot::Sender<Result<Vec<f32>, GenerateError>>),
}

impl Reply {
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Completions(sender) => sender.is_closed(),
            Self::Scores(sender) => sender.is_closed(),
        }
    }

    pub(crate) fn fail(self, error: GenerateError) {
        match self {
            Self::Completions(sender) => drop(sender.send(Err(error))),
            Self::Scores(sender) => drop(sender.send(Err(error))),
        }
    }
}

/// All requests in progress.
pub(crate) struct OpenRequests<E: Executor> {
    requests: HashMap<RequestId, OpenRequest<E>>,
    next_id: RequestId,
}

impl<E: Executor> OpenRequests<E> {
    pub(crate) fn new() -> Self {
        Self { requests: HashMap::new(), next_id: 0 }
    }

    pub(crate) fn get(&self, id: RequestId) -> Option<&OpenRequest<E>> {
        self.requests.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: RequestId) -> Option<&mut OpenRequest<E>> {
        self.requests.get_mut(&id)
    }

    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.requests.contains_key(&id)
    }

    /// Adds a validated request with room for `completions` completions.
    pub(crate) fn open(
        &mut self,
        NewRequest { request, during_update, grammar }: NewRequest,
        policy: PolicySnapshot<E>,
        reply: Reply,
        completions: usize,
    ) -> RequestId {
        let id = self.next_id;
        self.next_id += 1;
        let completions = (0..completions).map(|_| None).collect();
        let open = OpenRequest { request, policy, during_update, begun: false, grammar, reply, completions };
        self.requests.insert(id, open);
        id
    }

    /// Gives requests whose completions have not begun the newest weights, if these may take over.
    pub(crate) fn take_over(&mut self, policies: &Policies<E>) {
        for open in self.requests.values_mut() {
            if let (DuringUpdate::TakeOver(_), false) = (&open.during_update, open.begun)
                && let Some(newer) = policies.newer_than(open.request.policy, open.policy.version)
            {
                open.policy = newer;
            }
        }
    }

    /// Removes requests whose requester is gone.
    pub(crate) fn drop_cancelled(&mut self) {
        self.requests.retain(|_, open| !open.reply.is_closed());
    }

    /// Stores a finished completion. Replies and closes the request if it was the last one.
    pub(crate) fn complete(&mut self, id: RequestId, seed_index: usize, completion: Completion) {
        let Entry::Occupied(mut entry) = self.requests.entry(id) else { return };
        entry.get_mut().completions[seed_index] = Some(completion);
        if !entry.get().completions.iter().all(Option::is_some) {
            return;
        }
        let OpenRequest { reply, completions, .. } = entry.remove();
        if let Reply::Completions(reply) = reply {
            let _ = reply.send(Ok(completions.into_iter().flatten().collect()));
        }
    }

    /// Replies with scores and closes the request.
    pub(crate) fn complete_scores(&mut self, id: RequestId, logprobs: Vec<f32>) {
        if let Some(OpenRequest { reply: Reply::Scores(reply), .. }) = self.requests.remove(&id) {
            let _ = reply.send(Ok(logprobs));
        }
    }

    /// Replies with an error and closes the request. The next scheduling round frees its sequences.
    pub(crate) fn fail(&mut self, id: RequestId, reason: String) {
        if let Some(open) = self.requests.remove(&id) {
            let policy = open.policy.policy;
            let error = GenerateError::Failed { policy, reason };
            tracing::warn!(policy, %error, "a generation request failed");
            open.reply.fail(error);
        }
    }
}
