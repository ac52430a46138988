//! Steps that begin before the tokens of the one before are read, so that a GPU doesn't wait for the host.
//!
//! While all sequences are completions that take one token at a time, the next step is launched with the tokens where they
//! were sampled. Only then are these read, and the completions go on or end, while the device works. A completion that has ended has
//! a row in that step too, whose token is not used: the row wrote its key and value to a block that the sequence still had, before
//! any later step writes there. Prompts, messages, a full cache, and sampling that needs the host end the series; its last
//! step is read like any other.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use crate::during_update::DuringUpdate;
use crate::executor::{BatchSegment, Executor, ExecutorError, TokenBatch, caught};
use crate::requests::RequestId;
use crate::sampler::SampleRequest;
use crate::sequence::{SequenceGoal, SequenceState, StepOutput};

use super::updates::NextWeights;
use super::{BatchRun, Worker};

/// A step of completions whose tokens are not read yet.
pub(super) struct LaunchedStep<E: Executor> {
    tokens: E::Tokens,
    /// The completions that get the tokens, in their order.
    rows: Vec<CompletionKey>,
}

/// A request, and the seed of one of its completions.
type CompletionKey = (RequestId, usize);

impl<E: Executor> LaunchedStep<E> {
    /// Returns the step of a batch, or the batch itself if one of its sequences is no completion or has several rows, as one
    /// does whose keys and values are computed again. `scheduled` has the number of rows of each sequence.
    pub(super) fn new(
        ran: BatchRun<E>,
        scheduled: &[usize],
        worker: &Worker<E>,
    ) -> Result<Self, BatchRun<E>> {
        let running = &worker.scheduler.running;
        let rows: Option<Vec<_>> = ran.outputs.iter().map(|(i, _)| key(&running[*i])).collect();
        match (rows, ran) {
            (Some(rows), BatchRun { tokens: Some(tokens), outputs, .. })
                if outputs.iter().all(|(i, output)| scheduled[*i] == 1 && output.logit_count == 1) =>
            {
                Ok(Self { tokens, rows })
            }
            (_, ran) => Err(ran),
        }
    }
}

/// Returns the key of a completion. Returns `None` for another sequence.
fn key<E: Executor>(sequence: &SequenceState<E>) -> Option<CompletionKey> {
    match &sequence.goal {
        SequenceGoal::Decode(completion) => Some((sequence.request, completion.seed_index())),
        _ => None,
    }
}

impl<E: Executor> Worker<E> {
    /// Launches the step after one whose tokens are not read yet, if that can be, and applies the tokens of the earlier one.
    pub(super) fn go_ahead(&mut self, launched: LaunchedStep<E>) {
        // The launch changes neither the running sequences nor their order.
        let places = self.places(&launched.rows);
        let next = self.launch_next(&launched.tokens, &places).unwrap_or_else(|error| {
            for (request, _) in &launched.rows {
                self.requests.fail(*request, error.to_string());
            }
            None
        });
        self.finish(launched, places);
        self.launched = next;
    }

    /// Applies the tokens of a step in progress, if there is one.
    pub(super) fn finish_launched(&mut self) {
        if let Some(launched) = self.launched.take() {
            let places = self.places(&launched.rows);
            self.finish(launched, places);
        }
    }

    /// Waits for the tokens of a step and applies them to the sequences at its rows' places.
    fn finish(&mut self, LaunchedStep { tokens, rows }: LaunchedStep<E>, places: Vec<Option<usize>>) {
        let sampled = match caught(|| self.executor.read(tokens)) {
            Ok(sampled) => sampled,
            Err(error) => {
                rows.iter().for_each(|(request, _)| self.requests.fail(*request, error.to_string()));
                return;
            }
        };
        let mut scheduled = vec![0; self.scheduler.running.len()];
        let mut outputs = Vec::new();
        for (place, token) in places.into_iter().zip(sampled) {
            let Some(i) = place else { continue };
            scheduled[i] = 1;
            outputs.push((i, StepOutput { logit_count: 1, sampled: vec![token], ..StepOutput::default() }));
        }
        self.apply_outputs(outputs, &scheduled);
    }

    /// Returns the index of each completion among the running sequences, if it is there.
    fn places(&self, rows: &[CompletionKey]) -> Vec<Option<usize>> {
        let running = &self.scheduler.running;
        let all: HashMap<CompletionKey, usize> =
            running.iter().enumerate().filter_map(|(i, sequence)| Some((key(sequence)?, i))).collect();
        rows.iter().map(|row| all.get(row).copied()).collect()
    }

    /// Launches the next step before the previous step's tokens, of the sequences at `places`, are read. Returns `None` if they
    /// have to be read first, or if all completions end with them.
    fn launch_next(
        &mut self,
        tokens: &E::Tokens,
        places: &[Option<usize>],
    ) -> Result<Option<LaunchedStep<E>>, ExecutorError> {
        let running = &self.scheduler.running;
        // Rows of the launched step that are still there, with the index of their sequence.
        let present: Vec<(usize, usize)> =
            places.iter().enumerate().filter_map(|(row, place)| Some((row, (*place)?))).collect();
        let goes_ahead =
            present.len() == running.len() && present.iter().all(|(_, i)| self.keeps_weights(&running[*i]));
        let (rows, places): (Vec<usize>, Vec<usize>) =
            present.into_iter().filter(|(_, i)| !self.ends_by_length(&running[*i])).unzip();
        if !goes_ahead || rows.is_empty() {
            return Ok(None);
        }
        let Some(next_tokens) = self.executor.next_tokens(tokens, &rows)? else { return Ok(None) };

        let Self { executor, policies, scheduler, requests, counters, .. } = self;
        let mut choices = Vec::new();
        for i in &places {
            let sequence = &mut scheduler.running[*i];
            let blocks = &mut policies.bases[sequence.base()].blocks;
            if !blocks.allocate(&mut sequence.table, sequence.computed + 2) {
                return Ok(None);
            }
        }
        for i in &places {
            let sequence = &mut scheduler.running[*i];
            if let (SequenceGoal::Decode(completion), Some(open)) =
                (&mut sequence.goal, requests.get(sequence.request))
            {
                choices.push(completion.choose(&open.request.sampling));
            }
        }
        let running = &scheduler.running;
        let segments = places.iter().map(|i| {
            let sequence = &running[*i];
            BatchSegment {
                tokens: &sequence.tokens[sequence.computed..],
                position: sequence.computed + 1,
                blocks: &sequence.table.blocks,
                adapter: sequence.policy().adapter.as_deref(),
                logit_count: 1,
            }
        });
        let batch = TokenBatch { segments: segments.collect(), next_tokens: Some(next_tokens) };
        let sample_requests: Vec<SampleRequest<'_>> = places
            .iter()
            .zip(choices)
            .enumerate()
            .filter_map(|(row, (i, choice))| {
                let sampling = &requests.get(running[*i].request)?.request.sampling;
                Some(SampleRequest {
                    row,
                    sampling,
                    mask: None,
                    prompt: &[],
                    completion: &[],
                    choice,
                    top: 0,
                    value_head: running[*i].policy().value_head.as_ref(),
                })
            })
            .collect();
        let policy = running[places[0]].policy();
        let cache = &mut policies.bases[policy.base].cache;
        let tokens =
            caught(|| executor.sample(executor.step(&policy.weights, cache, &batch)?, &sample_requests))?;
        counters.count_pass(places.len());
        counters.steps_ahead.fetch_add(1, Ordering::Relaxed);
        let rows = places.iter().filter_map(|i| key(&running[*i])).collect();
        Ok(Some(LaunchedStep { tokens, rows }))
    }

    /// Returns true if the token after the next one of a completion is sampled with the weights of the next one.
    fn keeps_weights(&self, sequence: &SequenceState<E>) -> bool {
        let planned = self
            .requests
            .get(sequence.request)
            .is_none_or(|open| matches!(open.during_update, DuringUpdate::Repeat(..)));
        !planned
            && sequence.weights.end(sequence.computed).is_none()
            && matches!(self.next_weights(sequence), NextWeights::Same)
    }

    /// Returns true if the next token of a completion is its last one.
    fn ends_by_length(&self, sequence: &SequenceState<E>) -> bool {
        match &sequence.goal {
            SequenceGoal::Decode(completion) => completion.remaining() <= 1,
            _ => true,
        }
    }
}
