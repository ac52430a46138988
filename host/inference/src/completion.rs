//! State of a completion in progress, apart from its tokens.

use std::sync::Arc;

use pl_grammar::{CompiledGrammar, Constraint, GrammarError, TokenMask};
use pl_model::{StopStringMatcher, Tokenizer};
use pl_types::{Chunk, Completion, Finish, Request, Sampling, VersionChange};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::executor::Executor;
use crate::logits::uniform;
use crate::policies::PolicySnapshot;
use crate::sampler::{SampledToken, TokenChoice};

pub(crate) struct CompletionState {
    seed_index: usize,
    rng: ChaCha8Rng,
    logprobs: Vec<f32>,
    support: Option<Vec<Vec<u32>>>,
    top: Vec<Vec<(u32, f32)>>,
    values: Vec<f32>,
    stop: StopStringMatcher,
    /// The state within its grammar, if it has one.
    constraint: Option<Constraint>,
    /// Maximum number of tokens.
    max_tokens: usize,
    /// Tokens, and bytes of text, already sent to the listener.
    streamed: (usize, usize),
    /// Version of the weights at the first token.
    version: u64,
    version_changes: Vec<VersionChange>,
}

impl CompletionState {
    /// The completion of one of a request's seeds, which begins with the weights of `policy`.
    pub(crate) fn new<E: Executor>(
        seed_index: usize,
        request: &Request,
        grammar: Option<&Arc<CompiledGrammar>>,
        policy: &PolicySnapshot<E>,
    ) -> Self {
        let max_tokens =
            (policy.config.max_positions - request.prompt.len()).min(request.max_tokens as usize);
        Self {
            seed_index,
            rng: ChaCha8Rng::from_seed(request.seeds[seed_index]),
            logprobs: Vec::new(),
            support: request.sampling.truncates().then(Vec::new),
            top: Vec::new(),
            values: Vec::new(),
            stop: StopStringMatcher::new(&request.stop),
            constraint: grammar.map(|grammar| Constraint::new(grammar, max_tokens)),
            max_tokens,
            streamed: (0, 0),
            version: policy.version,
            version_changes: Vec::new(),
        }
    }

    pub(crate) fn seed_index(&self) -> usize {
        self.seed_index
    }

    /// Number of its tokens so far.
    pub(crate) fn token_count(&self) -> usize {
        self.logprobs.len()
    }

    /// Largest number of tokens that it still gets.
    pub(crate) fn remaining(&self) -> usize {
        self.max_tokens.saturating_sub(self.token_count())
    }

    /// Records that other weights sample the tokens after the first `count`.
    pub(crate) fn change_version(&mut self, count: usize, version: u64) {
        let token = u32::try_from(count).unwrap_or(u32::MAX);
        self.version_changes.retain(|change| change.token < token);
        self.version_changes.push(VersionChange { token, version });
    }

    /// Decides how the next token is chosen. Takes one number from the random stream unless decoding is
    /// greedy.
    pub(crate) fn choose(&mut self, sampling: &Sampling) -> TokenChoice {
        if sampling.temperature > 0.0 {
            TokenChoice::Quantile(uniform(&mut self.rng))
        } else {
            TokenChoice::Greedy
        }
    }

    /// Returns the tokens that its grammar allows next. `None` without a grammar.
    pub(crate) fn mask(&mut self) -> Result<Option<TokenMask>, GrammarError> {
        self.constraint.as_mut().map(Constraint::mask).transpose()
    }

    /// Advances its grammar by a sampled token. Returns the token that it goes on with, which is another one if the text
    /// could no longer end in time.
    pub(crate) fn constrain(&mut self, sampled: SampledToken) -> Result<SampledToken, GrammarError> {
        let Some(constraint) = &mut self.constraint else { return Ok(sampled) };
        let token = constraint.advance(sampled.token)?;
        if token == sampled.token {
            return Ok(sampled);
        }
        Ok(SampledToken {
            token,
            logprob: 0.0,
            support: Some(vec![token]),
            top: vec![(token, 0.0)],
            ..sampled
        })
    }

    /// Records the token that `tokens` now ends with. Returns why the completion is over, or `None` if it
    /// continues.
    pub(crate) fn push(
        &mut self,
        tokens: &[u32],
        sampled: SampledToken,
        tokenizer: &Tokenizer,
        request: &Request,
    ) -> Option<Finish> {
        let token = sampled.token;
        self.logprobs.push(sampled.logprob);
        self.values.extend(sampled.value);
        if let Some(support) = &mut self.support {
            support.push(sampled.support.unwrap_or_default());
        }
        if request.top_logprobs > 0 {
            self.top.push(sampled.top);
        }
        let ended = tokenizer.end_of_turn().contains(&token) || request.stop_ids.contains(&token);
        // The matcher needs every token, even if something else ends the completion.
        let finish = if self.stop.push(tokenizer, token) || ended {
            Some(Finish::Stop)
        } else if tokens.len() >= self.max_tokens {
            Some(Finish::Length)
        } else {
            None
        };
        self.stream_chunk(tokens, tokenizer, request, finish.is_some());
        finish
    }

    /// Sends new text to the listener, if there is one. Holds back text that may still change: an incomplete
    /// character, or a possible beginning of a stop string.
    fn stream_chunk(&mut self, tokens: &[u32], tokenizer: &Tokenizer, request: &Request, last: bool) {
        let Some(listener) = &request.listener else { return };
        let text = self.stop.text(tokenizer, tokens);
        let end = if last { text.len() } else { self.stop.stable_length(&text) };
        let (sent_tokens, sent_bytes) = self.streamed;
        let new = text.get(sent_bytes..end).unwrap_or_default();
        if new.is_empty() && !last {
            return;
        }
        let chunk = Chunk {
            index: self.seed_index,
            tokens: tokens[sent_tokens..].to_vec(),
            logprobs: self.logprobs[sent_tokens..].to_vec(),
            top: self.top.get(sent_tokens..).unwrap_or_default().to_vec(),
            text: new.to_owned(),
            last,
        };
        self.streamed = (tokens.len(), end.max(sent_bytes));
        // A closed listener is not an error: the completion is also returned whole.
        let _ = listener.send(chunk);
    }

    /// Builds the finished completion.
    pub(crate) fn finish(&mut self, tokens: Vec<u32>, finish: Finish, tokenizer: &Tokenizer) -> Completion {
        let values = std::mem::take(&mut self.values);
        Completion {
            text: self.stop.text(tokenizer, &tokens),
            values: (!values.is_empty()).then_some(values),
            tokens,
            logprobs: std::mem::take(&mut self.logprobs),
            support: self.support.take(),
            top: std::mem::take(&mut self.top),
            finish,
            version: self.version,
            version_changes: std::mem::take(&mut self.version_changes),
        }
    }
}
