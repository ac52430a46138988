//! The engine's thread: receives requests, runs steps, sends completions.
//!
//! Every [`SequenceState`] is a list of tokens of which some are in the cache; each step computes more of
//! them until the logits after the last one are available. A prompt is prefilled over several steps, together
//! with completions that contribute one token each; a preempted completion is recomputed the same way.

mod ahead;
mod updates;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use pl_grammar::TokenMask;
use pl_types::GenerateError;

use crate::block_pool::{BLOCK, BlockTable};
use crate::completion::CompletionState;
use crate::config::EngineCommand;
use crate::during_update::DuringUpdate;
use crate::executor::{BatchSegment, Executor, ExecutorError, TokenBatch, caught, panic_message};
use crate::grammars::check_room;
use crate::message::{NewRequest, WorkerMessage};
use crate::policies::Policies;
use crate::requests::{OpenRequests, Reply, RequestId};
use crate::sampler::{SampleRequest, SampledToken, TokenChoice};
use crate::scheduler::{Scheduler, free_blocks};
use crate::sequence::{SequenceGoal, SequenceState, StepOutput};
use crate::sequence_weights::SequenceWeights;
use crate::stats::Counters;
use crate::validate::validate;

use self::ahead::LaunchedStep;
use self::updates::Awaiting;

pub(crate) struct Worker<E: Executor> {
    executor: E,
    policies: Policies<E>,
    counters: Arc<Counters>,
    receiver: Receiver<WorkerMessage>,
    requests: OpenRequests<E>,
    scheduler: Scheduler<E>,
    awaiting: Awaiting<E>,
    /// A step that runs while the results of the one before are applied.
    launched: Option<LaunchedStep<E>>,
    /// True between [`EngineCommand::Pause`] and [`EngineCommand::Resume`].
    paused: bool,
}

/// A batch that ran, whose tokens may not be there yet.
struct BatchRun<E: Executor> {
    /// Outputs without tokens, by index of their sequence.
    outputs: Vec<(usize, StepOutput)>,
    /// Numbers of tokens of the sequences that have any, in the order of `outputs`.
    counts: Vec<(usize, usize)>,
    /// `None` if no tokens are sampled.
    tokens: Option<E::Tokens>,
}

impl<E: Executor> Worker<E> {
    pub(crate) fn new(
        executor: E,
        policies: Policies<E>,
        slots: usize,
        counters: Arc<Counters>,
        receiver: Receiver<WorkerMessage>,
    ) -> Self {
        let scheduler = Scheduler::new(slots, executor.prefill_budget(), Arc::clone(&counters));
        Self {
            executor,
            policies,
            counters,
            receiver,
            requests: OpenRequests::new(),
            scheduler,
            awaiting: Awaiting::default(),
            launched: None,
            paused: false,
        }
    }

    /// Serves requests until the last handle is dropped.
    pub(crate) fn run(mut self) {
        let _no_grad = tch::no_grad_guard();
        while self.receive() {
            self.requests.drop_cancelled();
            self.scheduler.drop_cancelled(&self.requests, &mut self.policies);
            self.drop_cancelled_awaiting();
            if self.paused {
                continue;
            }
            let started = Instant::now();
            self.scheduler.admit(&self.requests, &mut self.policies);
            self.step();
            self.counters.count_busy(started.elapsed());
        }
    }

    /// Handles all pending messages; blocks while there is no other work. Returns false when all handles are
    /// dropped.
    fn receive(&mut self) -> bool {
        if self.paused || self.scheduler.is_idle() {
            self.finish_launched();
            match self.receiver.recv() {
                Ok(message) => self.handle(message),
                Err(_) => return false,
            }
        }
        loop {
            match self.receiver.try_recv() {
                Ok(message) => {
                    self.finish_launched();
                    self.handle(message);
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn handle(&mut self, message: WorkerMessage) {
        match message {
            WorkerMessage::Publish { policy, update, version, reply } => {
                // Fails only if the publisher is gone.
                let _ = reply.send(self.publish(policy, update, version));
            }
            WorkerMessage::Add { weights, reply } => {
                let result = catch_unwind(AssertUnwindSafe(|| self.policies.add(&self.executor, weights)))
                    .unwrap_or_else(|panic| Err(GenerateError::Setup(panic_message(&*panic))));
                // Fails only if the one who adds it is gone.
                let _ = reply.send(result);
            }
            WorkerMessage::Command { command, reply } => {
                // Fails only if the one who sent it is gone.
                let _ = reply.send(self.command(command));
            }
            WorkerMessage::Remove { policy, reply } => {
                let _ = reply.send(self.policies.remove(policy));
            }
            WorkerMessage::Generate { request, reply } => self.begin(request, Reply::Completions(reply)),
            WorkerMessage::Score { request, targets, reply } => {
                let new = NewRequest { request, during_update: DuringUpdate::Finish, grammar: None };
                if let Some(id) = self.open(new, Reply::Scores(reply), 0) {
                    self.enqueue_scoring(id, targets);
                }
            }
        }
    }

    fn command(&mut self, command: EngineCommand) -> Result<(), GenerateError> {
        match command {
            EngineCommand::Pause => self.paused = true,
            EngineCommand::Resume => self.paused = false,
            EngineCommand::KeepVersions(count) => self.policies.keep_versions(count),
            EngineCommand::ClearPrefixes => self.policies.clear_prefixes(),
            EngineCommand::Sleep => {
                self.requests.drop_cancelled();
                self.scheduler.drop_cancelled(&self.requests, &mut self.policies);
                if !self.scheduler.is_idle() {
                    let reason = "requests are in progress; pause the engine and wait for them first";
                    return Err(GenerateError::Setup(reason.into()));
                }
                self.paused = true;
                self.policies.release_caches(&self.executor);
            }
            EngineCommand::WakeUp => {
                self.policies.restore_caches(&self.executor)?;
                self.paused = false;
            }
        }
        Ok(())
    }

    /// Validates and opens a request. Returns `None` if it is invalid, after replying with the error.
    fn open(&mut self, new: NewRequest, reply: Reply, completions: usize) -> Option<RequestId> {
        let valid = validate(&self.policies, &new.request).and_then(|policy| {
            if let Some(grammar) = &new.grammar {
                check_room(&new.request, grammar, policy.config.max_positions)?;
            }
            Ok(policy)
        });
        match valid {
            Ok(policy) => Some(self.requests.open(new, policy, reply, completions)),
            Err(error) => {
                reply.fail(error);
                None
            }
        }
    }

    fn enqueue_scoring(&mut self, id: RequestId, targets: Arc<[u32]>) {
        let Some(open) = self.requests.get(id) else { return };
        let mut tokens = open.request.prompt.to_vec();
        let start = tokens.len();
        // The logits after the last target are not needed.
        tokens.extend_from_slice(&targets[..targets.len().saturating_sub(1)]);
        self.scheduler.enqueue_sequence(SequenceState {
            request: id,
            weights: SequenceWeights::new(open.policy.clone()),
            table: BlockTable::default(),
            tokens,
            computed: 0,
            goal: SequenceGoal::Score { start, targets, logprobs: Vec::new() },
        });
    }

    /// Runs one step of every scheduled sequence.
    fn step(&mut self) {
        if let Some(launched) = self.launched.take() {
            return self.go_ahead(launched);
        }
        let scheduled = self.scheduler.schedule(&mut self.policies);
        let running = &self.scheduler.running;
        let mut order: Vec<usize> = (0..running.len()).filter(|i| scheduled[*i] > 0).collect();
        // One batch per set of base weights; within it, rows of one adapter are adjacent.
        let keys: Vec<_> = running
            .iter()
            .map(|sequence| (Rc::as_ptr(&sequence.policy().weights) as usize, sequence.policy().id))
            .collect();
        order.sort_by_key(|i| (keys[*i], *i));
        let mut outputs = Vec::new();
        for batch in order.chunk_by(|a, b| keys[*a].0 == keys[*b].0) {
            let read = match self.run_batch(batch, &scheduled) {
                Ok(ran) if batch.len() == scheduled.len() => match LaunchedStep::new(ran, &scheduled, self) {
                    Ok(launched) => return self.go_ahead(launched),
                    Err(ran) => self.read_batch(ran),
                },
                Ok(ran) => self.read_batch(ran),
                Err(error) => Err(error),
            };
            match read {
                Ok(batch_outputs) => outputs.extend(batch_outputs),
                Err(error) => {
                    for i in batch {
                        self.requests.fail(self.scheduler.running[*i].request, error.to_string());
                    }
                }
            }
        }
        self.apply_outputs(outputs, &scheduled);
    }

    /// Runs the sequences at the indices `batch`, which share their base weights.
    fn run_batch(&mut self, batch: &[usize], scheduled: &[usize]) -> Result<BatchRun<E>, ExecutorError> {
        let Self { executor, policies, scheduler, requests, counters, .. } = self;
        let mut outputs: Vec<(usize, StepOutput)> = Vec::new();
        // Per token to sample: index of the sequence, row of logits, choice, tokens that its grammar allows.
        let mut choices: Vec<(usize, usize, TokenChoice, Option<TokenMask>)> = Vec::new();
        let mut rows = 0;
        for i in batch {
            let sequence = &mut scheduler.running[*i];
            let logit_count = sequence.logit_count(scheduled[*i]);
            let Some(open) = requests.get(sequence.request) else { continue };
            let mut output = StepOutput { logit_count, ..StepOutput::default() };
            let before = choices.len();
            let chosen =
                sequence.choose_tokens(open, logit_count, &mut output.started, |row, choice, mask| {
                    choices.push((*i, rows + row, choice, mask));
                });
            if let Err(error) = chosen {
                choices.truncate(before);
                requests.fail(sequence.request, error.to_string());
                continue;
            }
            rows += logit_count;
            outputs.push((*i, output));
        }
        let running = &scheduler.running;
        let counts = choices.chunk_by(|a, b| a.0 == b.0).map(|own| (own[0].0, own.len())).collect();
        let Some((first, _)) = outputs.first() else { return Ok(BatchRun { outputs, counts, tokens: None }) };
        let policy = running[*first].policy();
        let segments = outputs.iter().map(|(i, output)| {
            let sequence = &running[*i];
            BatchSegment {
                tokens: &sequence.tokens[sequence.computed..][..scheduled[*i]],
                position: sequence.computed,
                blocks: &sequence.table.blocks,
                adapter: sequence.policy().adapter.as_deref(),
                logit_count: output.logit_count,
            }
        });
        let batch = TokenBatch { segments: segments.collect(), next_tokens: None };
        let sample_requests: Vec<SampleRequest<'_>> = choices
            .iter()
            .filter_map(|(i, row, choice, mask)| {
                let sequence = &running[*i];
                let request = &requests.get(sequence.request)?.request;
                let (prompt, completion) = sequence.tokens.split_at(request.prompt.len());
                let (sampling, top) = (&request.sampling, request.top_logprobs);
                let value_head = sequence.policy().value_head.as_ref();
                let (row, choice, mask) = (*row, *choice, mask.as_ref());
                Some(SampleRequest { row, sampling, mask, prompt, completion, choice, top, value_head })
            })
            .collect();
        let cache = &mut policies.bases[policy.base].cache;
        let tokens = caught(|| {
            let logits = executor.step(&policy.weights, cache, &batch)?;
            match sample_requests.is_empty() {
                true => Ok(None),
                false => executor.sample(logits, &sample_requests).map(Some),
            }
        })?;
        let goes_on = |i: usize| scheduled[i] == 1 && matches!(running[i].goal, SequenceGoal::Decode(_));
        counters.count_pass(outputs.iter().filter(|(i, _)| goes_on(*i)).count());
        Ok(BatchRun { outputs, counts, tokens })
    }

    /// Waits for a batch's tokens. Returns the output of each sequence, by index.
    fn read_batch(&self, ran: BatchRun<E>) -> Result<Vec<(usize, StepOutput)>, ExecutorError> {
        let BatchRun { mut outputs, counts, tokens } = ran;
        let Some(tokens) = tokens else { return Ok(outputs) };
        let mut sampled = caught(|| self.executor.read(tokens))?.into_iter();
        let mut counts = counts.into_iter().peekable();
        for (i, output) in &mut outputs {
            let count = counts.next_if(|(index, _)| index == i).map_or(0, |(_, count)| count);
            output.sampled = sampled.by_ref().take(count).collect();
        }
        Ok(outputs)
    }

    /// Advances the running sequences by a step's outputs.
    fn apply_outputs(&mut self, mut outputs: Vec<(usize, StepOutput)>, scheduled: &[usize]) {
        outputs.sort_by_key(|(i, _)| *i);
        let mut outputs = outputs.into_iter().peekable();
        for (i, mut sequence) in std::mem::take(&mut self.scheduler.running).into_iter().enumerate() {
            let Some((_, output)) = outputs.next_if(|(index, _)| *index == i) else {
                // The sequence was not scheduled, or it failed.
                if self.requests.contains(sequence.request) {
                    self.scheduler.running.push(sequence);
                } else {
                    free_blocks(&mut self.policies, sequence);
                }
                continue;
            };
            if scheduled[i] > 1 || matches!(sequence.goal, SequenceGoal::Prefill(_)) {
                self.counters.prefilled_tokens.fetch_add(scheduled[i] as u64, Ordering::Relaxed);
            }
            sequence.computed += scheduled[i];
            let (base, snapshot, computed) =
                (sequence.base(), sequence.weights.first().id, sequence.computed_first());
            let SequenceState { table, tokens, .. } = &mut sequence;
            self.policies.bases[base].blocks.publish_blocks(snapshot, table, tokens, computed);
            self.advance(sequence, output);
        }
    }

    /// Continues or finishes a sequence after a step.
    fn advance(&mut self, mut sequence: SequenceState<E>, output: StepOutput) {
        let Some(sampled) = output.sampled.into_iter().collect::<Option<Vec<SampledToken>>>() else {
            let reason = "the model's outputs are not finite numbers; its weights have diverged";
            self.requests.fail(sequence.request, reason.into());
            return free_blocks(&mut self.policies, sequence);
        };
        match &mut sequence.goal {
            SequenceGoal::Prefill(_) if sampled.is_empty() => self.scheduler.running.push(sequence),
            SequenceGoal::Prefill(_) => self.start_completions(sequence, output.started, sampled),
            SequenceGoal::Decode(_) => match sampled.into_iter().next() {
                Some(token) => self.append_token(sequence, token),
                None => self.scheduler.running.push(sequence),
            },
            SequenceGoal::Score { targets, logprobs, .. } => {
                logprobs.extend(sampled.iter().map(|token| token.logprob));
                if logprobs.len() < targets.len() {
                    return self.scheduler.running.push(sequence);
                }
                self.requests.complete_scores(sequence.request, std::mem::take(logprobs));
                free_blocks(&mut self.policies, sequence);
            }
        }
    }

    /// Starts the completions of a prefilled prompt, each with a copy of the last block.
    fn start_completions(
        &mut self,
        mut prompt: SequenceState<E>,
        started: Vec<CompletionState>,
        sampled: Vec<SampledToken>,
    ) {
        self.counters.prefills.fetch_add(1, Ordering::Relaxed);
        let SequenceGoal::Prefill(ref seeds) = prompt.goal else {
            return free_blocks(&mut self.policies, prompt);
        };
        let end = seeds.end;
        if let Some(open) = self.requests.get_mut(prompt.request) {
            open.begun = true;
        }
        let mut started = started.into_iter().zip(sampled);
        let first = started.next();
        for (completion, token) in started {
            let seed = completion.seed_index();
            match self.fork_table(&prompt) {
                Ok(Some(table)) => {
                    let goal = SequenceGoal::Decode(Box::new(completion));
                    let weights = prompt.weights.clone();
                    let tokens = prompt.tokens.clone();
                    self.append_token(SequenceState { table, weights, tokens, goal, ..prompt }, token);
                }
                Ok(None) => {
                    self.scheduler.requeue_seeds(prompt.request, seed..end);
                    break;
                }
                Err(error) => {
                    self.requests.fail(prompt.request, error.to_string());
                    break;
                }
            }
        }
        // The first completion takes over the prompt's own blocks.
        if let Some((completion, token)) = first {
            prompt.goal = SequenceGoal::Decode(Box::new(completion));
            self.append_token(prompt, token);
        }
    }

    /// Copies a sequence's block table: shares its full blocks and copies the last one. Returns `None` if no
    /// block is available.
    fn fork_table(&mut self, sequence: &SequenceState<E>) -> Result<Option<BlockTable>, ExecutorError> {
        let base = &mut self.policies.bases[sequence.base()];
        let mut table = base.blocks.fork(&sequence.table, sequence.computed);
        if !base.blocks.allocate(&mut table, sequence.computed) {
            base.blocks.free(table);
            return Ok(None);
        }
        let last = sequence.computed / BLOCK;
        if let (Some(from), Some(to)) = (sequence.table.blocks.get(last), table.blocks.get(last)) {
            self.executor.copy_block(&mut base.cache, *from, *to)?;
        }
        Ok(Some(table))
    }

    /// Appends a sampled token to a completion, and finishes the completion if it was the last.
    fn append_token(&mut self, mut sequence: SequenceState<E>, sampled: SampledToken) {
        self.counters.generated_tokens.fetch_add(1, Ordering::Relaxed);
        let (Some(open), SequenceGoal::Decode(completion)) =
            (self.requests.get(sequence.request), &mut sequence.goal)
        else {
            return free_blocks(&mut self.policies, sequence);
        };
        let sampled = match completion.constrain(sampled) {
            Ok(sampled) => sampled,
            Err(error) => {
                self.requests.fail(sequence.request, error.to_string());
                return free_blocks(&mut self.policies, sequence);
            }
        };
        sequence.tokens.push(sampled.token);
        let tokens = &sequence.tokens[open.request.prompt.len()..];
        let tokenizer = &sequence.weights.first().tokenizer;
        let Some(finish) = completion.push(tokens, sampled, tokenizer, &open.request) else {
            return self.continue_sequence(sequence);
        };
        let finished = completion.finish(tokens.to_vec(), finish, tokenizer);
        self.requests.complete(sequence.request, completion.seed_index(), finished);
        free_blocks(&mut self.policies, sequence);
    }
}
