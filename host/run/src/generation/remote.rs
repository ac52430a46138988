//! Policies that servers generate for.

use std::sync::Arc;

use parking_lot::RwLock;
use pl_model::{Adapter, ChatTemplate, Config, StopStringMatcher, Tokenizer, Weights};
use pl_servers::{Fleet, RemoteAdapter, RemoteModel, RemoteWeights, TokenCompletion, TokenRequest};
use pl_types::{Completion, Finish, GenerateError, Request};

use crate::error::Error;

use super::failure;
use super::grammar_checks::GrammarChecks;
use super::store::{StoredAdapter, StoredWeights, WeightStore, WholeModel};

/// A policy that servers generate for.
pub(crate) struct RemotePolicy {
    config: RemotePolicyConfig,
    /// Name of a whole model on the servers. `None` for the base model, or an adapter on it.
    named: Option<Arc<str>>,
    current: RwLock<Current>,
    grammars: GrammarChecks,
}

/// Model and version that requests ask for.
#[derive(Clone)]
struct Current {
    model: RemoteModel,
    version: u64,
}

/// Parts of a policy that servers generate for.
pub(crate) struct RemotePolicyConfig {
    /// Index in the workflow.
    pub(crate) policy: usize,
    pub(crate) name: String,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// Number of token ids of its model.
    pub(crate) vocab: u32,
    /// Largest number of tokens of a prompt with its completion.
    pub(crate) max_positions: usize,
    /// Hash of the base model.
    pub(crate) base: Arc<str>,
    pub(crate) model_config: Config,
    pub(crate) template: Arc<ChatTemplate>,
    /// True if it is trained: the ids that tokens were drawn from must be returned then.
    pub(crate) trained: bool,
}

impl RemotePolicy {
    /// Creates a policy that asks for `model` until other weights are published.
    pub(crate) fn new(config: RemotePolicyConfig, model: RemoteModel, version: u64) -> Self {
        let named = match &model {
            RemoteModel::Named(name) => Some(Arc::clone(name)),
            _ => None,
        };
        let current = RwLock::new(Current { model, version });
        Self { config, named, current, grammars: GrammarChecks::default() }
    }

    /// Loads an adapter on all servers, uses it from now on, and removes the one before it. No request may be in
    /// progress.
    pub(crate) async fn publish(
        &self,
        store: &WeightStore,
        adapter: &Adapter,
        version: u64,
    ) -> Result<(), Error> {
        let StoredAdapter { name, folder, checksum } = store.write(&self.config.name, version, adapter)?;
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let base = Arc::clone(&self.config.base);
        let adapter = Arc::new(RemoteAdapter { name, folder, version, base, checksum });
        let old = self.switch(RemoteModel::Adapter(Arc::clone(&adapter)), version).await?;
        if let RemoteModel::Adapter(old) = old.model
            && old.name != adapter.name
        {
            self.config.fleet.unload_adapter(&old.name).await;
            WeightStore::remove(&old.folder);
        }
        Ok(())
    }

    /// Replaces the weights of the policy's model on all servers, and uses them from now on. No request may be in
    /// progress.
    pub(crate) async fn publish_weights(
        &self,
        store: &WeightStore,
        weights: &Weights,
        version: u64,
    ) -> Result<(), Error> {
        let before = match self.current().model {
            RemoteModel::Weights(before) => Some(before),
            _ => None,
        };
        let model = WholeModel {
            weights,
            config: &self.config.model_config,
            tokenizer: &self.config.tokenizer,
            template: &self.config.template,
        };
        let old = before.as_ref().map(|before| (before.folder.as_path(), before.checksum.as_str()));
        let stored = store.write_weights(&self.config.name, version, &model, old)?;
        let StoredWeights { folder, checksum, delta } = stored;
        let absolute = |path: std::path::PathBuf| std::path::absolute(&path).unwrap_or(path);
        let weights = Arc::new(RemoteWeights {
            name: self.named.clone().unwrap_or_else(|| self.config.name.as_str().into()),
            folder: absolute(folder),
            checksum,
            delta: delta.map(|(path, from)| (absolute(path), from)),
            version,
        });
        self.switch(RemoteModel::Weights(Arc::clone(&weights)), version).await?;
        if let Some(before) = before.filter(|before| before.folder != weights.folder) {
            WeightStore::remove(&before.folder);
        }
        Ok(())
    }

    /// Loads a model on all servers and uses it from now on. Returns the one before.
    async fn switch(&self, model: RemoteModel, version: u64) -> Result<Current, Error> {
        self.config.fleet.load(&model).await.map_err(Error::server)?;
        let mut current = self.current.write();
        Ok(std::mem::replace(&mut *current, Current { model, version }))
    }

    fn current(&self) -> Current {
        self.current.read().clone()
    }

    /// Removes the adapter of a trained policy from all servers. New weights must be published before the next
    /// request.
    pub(crate) async fn release(&self) {
        if let (RemoteModel::Adapter(adapter), true) = (self.current().model, self.config.trained) {
            self.config.fleet.unload_adapter(&adapter.name).await;
            WeightStore::remove(&adapter.folder);
        }
    }

    /// Returns true if the servers draw from a request's own seeds.
    pub(crate) fn is_reproducible(&self) -> bool {
        self.config.fleet.is_reproducible()
    }

    /// Completes a prompt as the embedded engine does.
    pub(crate) async fn generate(&self, request: Request) -> Result<Vec<Completion>, GenerateError> {
        let refuse =
            |reason: String| GenerateError::Request { policy: self.config.policy, parameter: None, reason };
        let length = request.prompt.len();
        if length == 0 {
            return Err(refuse("the prompt is empty".to_owned()));
        }
        let room = self.config.max_positions.saturating_sub(length);
        if room == 0 {
            return Err(refuse(format!(
                "the prompt has {length} tokens, but the model takes at most {} including the completion; shorten the \
                 prompt",
                self.config.max_positions
            )));
        }
        if !request.sampling.logit_bias.is_empty() {
            let reason = "`logit_bias` is not sent on to servers; leave it out".to_owned();
            return Err(GenerateError::Request {
                policy: self.config.policy,
                parameter: Some("logit_bias"),
                reason,
            });
        }
        let current = self.current();
        let stop_ids = request.stop_ids.iter().chain(self.config.tokenizer.end_of_turn()).copied();
        let sent = TokenRequest {
            model: current.model,
            prompt: Arc::clone(&request.prompt),
            seeds: request.seeds.clone(),
            max_tokens: request.max_tokens.min(u32::try_from(room).unwrap_or(u32::MAX)),
            sampling: request.sampling.clone(),
            stop: Arc::clone(&request.stop),
            stop_ids: stop_ids.collect(),
            top_logprobs: request.top_logprobs,
            vocab: self.config.vocab,
            needs_support: self.config.trained,
        };
        let sampled =
            self.config.fleet.generate(&sent).await.map_err(|error| failure(self.config.policy, error))?;
        let completions: Vec<Completion> = sampled
            .into_iter()
            .map(|completion| finish(completion, &sent, &self.config.tokenizer, current.version))
            .collect();
        if let Some(grammar) = &request.sampling.grammar {
            let failed = |reason| GenerateError::Failed { policy: self.config.policy, reason };
            self.grammars.check(grammar, &completions).map_err(|error| failed(error.to_string()))?;
        }
        for (index, completion) in completions.iter().enumerate() {
            completion.send_whole(index, request.listener.as_ref());
        }
        Ok(completions)
    }
}

/// Ends a completion at the first token that completes a stop string or ends the turn: servers may go on. Each of
/// the tokens before was drawn as if the rest had never been.
fn finish(
    sampled: TokenCompletion,
    request: &TokenRequest,
    tokenizer: &Tokenizer,
    version: u64,
) -> Completion {
    let TokenCompletion { mut tokens, mut logprobs, mut support, mut top, finish } = sampled;
    let mut matcher = StopStringMatcher::new(&request.stop);
    // The matcher needs every token, even if something else ends the completion.
    let end =
        tokens.iter().position(|token| matcher.push(tokenizer, *token) || request.stop_ids.contains(token));
    let finish = match end {
        Some(end) => {
            tokens.truncate(end + 1);
            logprobs.truncate(end + 1);
            top.truncate(end + 1);
            if let Some(support) = &mut support {
                support.truncate(end + 1);
            }
            Finish::Stop
        }
        None if tokens.len() >= request.max_tokens as usize => Finish::Length,
        None => finish,
    };
    let text = matcher.text(tokenizer, &tokens);
    let (values, version_changes) = (None, Vec::new());
    Completion { text, tokens, logprobs, support, values, top, finish, version, version_changes }
}

#[cfg(test)]
mod tests {
    use pl_model::Model;
    use pl_types::Sampling;

    use super::*;

    #[test]
    fn a_completion_ends_where_the_embedded_engine_would_end_it() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny");
        let (tokenizer, _) = Model::text(&path).unwrap();
        let tokens = tokenizer.encode("one, two. three").unwrap();
        let stopped = |stop: &[&str], stop_ids: &[u32], max_tokens: u32| {
            let request = TokenRequest {
                model: RemoteModel::Named("m".into()),
                prompt: vec![1].into(),
                seeds: vec![[0; 32]],
                max_tokens,
                sampling: Sampling::default(),
                stop: stop.iter().map(|text| (*text).to_owned()).collect(),
                stop_ids: stop_ids.into(),
                top_logprobs: 0,
                vocab: 100_000,
                needs_support: false,
            };
            let sampled = TokenCompletion {
                logprobs: vec![-1.0; tokens.len()],
                support: Some(vec![vec![0]; tokens.len()]),
                tokens: tokens.clone(),
                top: Vec::new(),
                finish: Finish::Length,
            };
            finish(sampled, &request, &tokenizer, 5)
        };
        let whole = stopped(&[], &[], tokens.len() as u32);
        assert_eq!((whole.tokens.len(), whole.finish, whole.version), (tokens.len(), Finish::Length, 5));
        let cut = stopped(&["."], &[], 50);
        assert_eq!((cut.text.as_str(), cut.finish), ("one, two", Finish::Stop));
        let decoded = tokenizer.decode(&cut.tokens, true);
        assert!(decoded.contains('.') && !decoded.contains("three"), "with the stop string: {decoded}");
        assert_eq!(cut.logprobs.len(), cut.tokens.len());
        assert_eq!(cut.support.map(|support| support.len()), Some(cut.tokens.len()));
        let turn = stopped(&[], &tokens[1..2], 50);
        assert_eq!((turn.tokens.len(), turn.finish), (2, Finish::Stop));
    }
}
