//! The engine's thread: takes requests in, keeps a batch of sequences going, hands completions out.
//!
//! Everything that runs is a [`Sequence`] that catches up: of its tokens, some are in the cache, and each step
//! takes in more of them until the logits after the last are there. A prompt catches up over several steps beside
//! completions that take in one token each; a completion that lost its blocks catches up the same way.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};

use tokio::sync::oneshot;

use crate::blocks::{BLOCK, Table};
use crate::completing::Completing;
use crate::draw::{Draw, Drawn, Pick};
use crate::engine::{Counters, EngineConfig, Message};
use crate::executor::{Batch, Executor, Segment};
use crate::policies::{Policies, Seat};
use crate::sequence::{Goal, Outcome, Sequence, Waiting, common};
use crate::{Completion, Error, Request};

/// Tokens of prompts that one step takes in: enough for matrix products to run at full speed, few enough that
/// completions under way don't wait long.
const ROWS: usize = 256;

/// A request until all of its completions are there.
struct Job<E: Executor> {
    request: Request,
    reply: Reply,
    seat: Seat<E>,
    completions: Vec<Option<Completion>>,
}

enum Reply {
    Completions(oneshot::Sender<Result<Vec<Completion>, Error>>),
    Scores(oneshot::Sender<Result<Vec<f32>, Error>>),
}

impl Reply {
    fn is_closed(&self) -> bool {
        match self {
            Self::Completions(sender) => sender.is_closed(),
            Self::Scores(sender) => sender.is_closed(),
        }
    }

    /// Whoever went away wants no answer.
    fn fail(self, error: Error) {
        match self {
            Self::Completions(sender) => drop(sender.send(Err(error))),
            Self::Scores(sender) => drop(sender.send(Err(error))),
        }
    }
}

pub(crate) struct Worker<E: Executor> {
    executor: E,
    policies: Policies<E>,
    config: EngineConfig,
    counters: Arc<Counters>,
    receiver: Receiver<Message>,
    jobs: HashMap<u64, Job<E>>,
    next_job: u64,
    waiting: VecDeque<Waiting<E>>,
    /// Oldest first.
    running: Vec<Sequence<E>>,
}

impl<E: Executor> Worker<E> {
    pub(crate) fn new(
        executor: E,
        policies: Policies<E>,
        config: EngineConfig,
        counters: Arc<Counters>,
        receiver: Receiver<Message>,
    ) -> Self {
        Self {
            executor,
            policies,
            config,
            counters,
            receiver,
            jobs: HashMap::new(),
            next_job: 0,
            waiting: VecDeque::new(),
            running: Vec::new(),
        }
    }

    /// Serves until the last handle is gone.
    pub(crate) fn run(mut self) {
        let _no_grad = tch::no_grad_guard();
        while self.listen() {
            self.drop_cancelled();
            self.admit();
            self.advance();
        }
    }

    /// Takes in what has come, waiting when there is nothing else to do. False: all handles are gone.
    fn listen(&mut self) -> bool {
        if self.waiting.is_empty() && self.running.is_empty() {
            match self.receiver.recv() {
                Ok(message) => self.take(message),
                Err(_) => return false,
            }
        }
        loop {
            match self.receiver.try_recv() {
                Ok(message) => self.take(message),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Publish { policy, update, version, reply } => {
                let published = catch_unwind(AssertUnwindSafe(|| {
                    self.policies.publish(&self.executor, policy, update, version)
                }));
                // A publisher that went away wants no answer.
                let _ = reply.send(published.unwrap_or_else(|panic| Err(Error::Setup(what(&*panic)))));
            }
            Message::Generate { request, reply } => {
                let checked = self.check(&request);
                let count = request.seeds.len();
                if let Some(job) = self.open(checked, request, Reply::Completions(reply), count) {
                    self.waiting.push_back(Waiting::Seeds { job, seeds: 0..count });
                }
            }
            Message::Score { request, targets, reply } => {
                let checked = self.check(&request);
                if let Some(job) = self.open(checked, request, Reply::Scores(reply), 0) {
                    self.wait_for_scores(job, targets);
                }
            }
        }
    }

    /// Enters a job that was checked.
    fn open(
        &mut self,
        checked: Result<Seat<E>, Error>,
        request: Request,
        reply: Reply,
        completions: usize,
    ) -> Option<u64> {
        match checked {
            Ok(seat) => {
                let job = self.next_job;
                self.next_job += 1;
                let completions = (0..completions).map(|_| None).collect();
                self.jobs.insert(job, Job { request, reply, seat, completions });
                Some(job)
            }
            Err(error) => {
                reply.fail(error);
                None
            }
        }
    }

    fn wait_for_scores(&mut self, id: u64, targets: Arc<[u32]>) {
        let Some(job) = self.jobs.get(&id) else { return };
        let mut tokens = job.request.prompt.to_vec();
        let from = tokens.len();
        // The last token predicts nothing that was asked for.
        tokens.extend_from_slice(&targets[..targets.len().saturating_sub(1)]);
        self.waiting.push_back(Waiting::Paused(Sequence {
            job: id,
            seat: job.seat.clone(),
            table: Table::default(),
            tokens,
            computed: 0,
            goal: Goal::Score { from, targets, logprobs: Vec::new() },
        }));
    }

    fn check(&self, request: &Request) -> Result<Seat<E>, Error> {
        let policy = request.policy;
        let fail = |reason: String| Err(Error::Request { policy, reason });
        let Some(seat) = self.policies.seat(policy) else {
            return fail("there is no such policy".into());
        };
        let config = &seat.config;
        let length = request.prompt.len();
        if length == 0 {
            return fail("the prompt is empty".into());
        }
        if length >= config.max_positions {
            return fail(format!(
                "the prompt has {length} tokens, but the model takes {} with the completion; shorten the prompt",
                config.max_positions
            ));
        }
        let outside = |id: &&u32| i64::from(**id) >= config.vocab;
        if let Some(id) = request.prompt.iter().chain(&*request.stop_ids).find(outside) {
            return fail(format!("token {id} is outside the model's vocabulary of {}", config.vocab));
        }
        if let Some(fault) = request.sampling.fault(config.vocab as usize) {
            return fail(fault);
        }
        if request.max_tokens == 0 {
            return fail("`max_tokens` is 0; it must be at least 1".into());
        }
        if request.seeds.is_empty() {
            return fail("it has no seeds, so it asks for nothing".into());
        }
        let most = config.max_positions.min(length.saturating_add(request.max_tokens as usize));
        let home = &self.policies.bases[seat.base];
        let mebibytes = |blocks: usize| (blocks * home.block_bytes).div_ceil(1 << 20);
        if most.div_ceil(BLOCK) > home.blocks.limit() {
            return fail(format!(
                "{most} tokens of prompt and completion need {} MiB of keys and values, but there are {}; raise \
                 `kv_cache` or lower `max_tokens`",
                mebibytes(most.div_ceil(BLOCK)),
                mebibytes(home.blocks.limit()),
            ));
        }
        Ok(seat)
    }

    /// Frees what requests hold that nobody waits for any more.
    fn drop_cancelled(&mut self) {
        self.jobs.retain(|_, job| !job.reply.is_closed());
        let jobs = &self.jobs;
        self.waiting.retain(|waiting| match waiting {
            Waiting::Seeds { job, .. } => jobs.contains_key(job),
            Waiting::Paused(sequence) => jobs.contains_key(&sequence.job),
        });
        for sequence in std::mem::take(&mut self.running) {
            if self.jobs.contains_key(&sequence.job) {
                self.running.push(sequence);
            } else {
                self.leave(sequence);
            }
        }
    }

    /// Gives free slots and room to what is in line.
    fn admit(&mut self) {
        let mut used: usize = self.running.iter().map(|sequence| sequence.goal.slots()).sum();
        let mut later = VecDeque::new();
        while let Some(waiting) = self.waiting.pop_front() {
            if used >= self.config.slots {
                later.push_back(waiting);
                break;
            }
            match self.start(waiting, self.config.slots - used) {
                Started::Running(slots) => used += slots,
                // Its beginning is being computed: others may go first.
                Started::Behind(waiting) => later.push_back(waiting),
                Started::NoRoom(waiting) => {
                    later.push_back(waiting);
                    break;
                }
                Started::Gone => {}
            }
        }
        later.append(&mut self.waiting);
        self.waiting = later;
    }

    /// Starts what waits, on at most so many slots.
    fn start(&mut self, waiting: Waiting<E>, slots: usize) -> Started<E> {
        let (mut sequence, rest) = match waiting {
            Waiting::Paused(sequence) => (sequence, None),
            Waiting::Seeds { job, seeds } => {
                let Some(open) = self.jobs.get(&job) else { return Started::Gone };
                let end = seeds.end.min(seeds.start + slots);
                let sequence = Sequence {
                    job,
                    seat: open.seat.clone(),
                    table: Table::default(),
                    tokens: open.request.prompt.to_vec(),
                    computed: 0,
                    goal: Goal::Prompt(seeds.start..end),
                };
                (sequence, (end < seeds.end).then_some(Waiting::Seeds { job, seeds: end..seeds.end }))
            }
        };
        let known = sequence.known();
        let home = &mut self.policies.bases[sequence.seat.base];
        let found = home.blocks.known(sequence.seat.identity, &sequence.tokens[..known]);
        let behind = self.running.iter().any(|other| {
            other.seat.identity == sequence.seat.identity
                && other.computed < other.tokens.len() - 1
                && common(&other.tokens, &sequence.tokens[..known - 1]) / BLOCK > found
        });
        // Room for its tokens, for a block a seed, and for the others on this base to grow.
        let others = self.running.iter().filter(|other| other.seat.base == sequence.seat.base).count();
        let needed = sequence.tokens.len() / BLOCK + 1 - found + sequence.goal.slots() - 1 + others;
        let no_room = home.blocks.available() < needed && others > 0;
        if behind || no_room {
            if let (Goal::Prompt(seeds), Some(Waiting::Seeds { seeds: rest, .. })) =
                (&mut sequence.goal, rest)
            {
                seeds.end = rest.end;
            }
            let waiting = sequence.back_in_line();
            return if behind { Started::Behind(waiting) } else { Started::NoRoom(waiting) };
        }
        sequence.table = home.blocks.take_up(sequence.seat.identity, &sequence.tokens[..known]);
        sequence.computed = sequence.table.blocks.len() * BLOCK;
        let slots = sequence.goal.slots();
        self.running.push(sequence);
        if let Some(rest) = rest {
            self.waiting.push_front(rest);
        }
        Started::Running(slots)
    }

    /// One step for every sequence, as far as rows reach.
    fn advance(&mut self) {
        let takes = self.plan();
        let mut order: Vec<usize> = (0..self.running.len()).filter(|i| takes[*i] > 0).collect();
        // Rows of one adapter side by side, rows of one base together.
        let places: Vec<_> = self
            .running
            .iter()
            .map(|sequence| (Rc::as_ptr(&sequence.seat.weights) as usize, sequence.seat.identity))
            .collect();
        order.sort_by_key(|i| (places[*i], *i));
        let mut outcomes = Vec::new();
        for batch in order.chunk_by(|a, b| places[*a].0 == places[*b].0) {
            match self.step(batch, &takes) {
                Ok(of_batch) => outcomes.extend(of_batch),
                Err(reason) => {
                    for i in batch {
                        let Sequence { job, seat, .. } = &self.running[*i];
                        let error = Error::Failed { policy: seat.policy, reason: reason.clone() };
                        fail(&mut self.jobs, *job, error);
                    }
                }
            }
        }
        self.settle(outcomes, &takes);
    }

    /// How many tokens each sequence takes in. Sequences for which there is no room leave, the youngest first.
    fn plan(&mut self) -> Vec<usize> {
        let mut rows = ROWS;
        let mut takes: Vec<usize> = Vec::new();
        while let Some(sequence) = self.running.get(takes.len()) {
            let left = sequence.tokens.len() - sequence.computed;
            let take = if left == 1 { 1 } else { left.min(rows) };
            if self.make_room(takes.len(), take) {
                rows -= if left == 1 { 0 } else { take };
                takes.push(take);
            }
        }
        takes
    }

    /// Blocks for so many more tokens of a sequence; false when it had to leave for it.
    fn make_room(&mut self, at: usize, take: usize) -> bool {
        loop {
            let sequence = &mut self.running[at];
            let base = sequence.seat.base;
            if self.policies.bases[base].blocks.extend(&mut sequence.table, sequence.computed + take) {
                return true;
            }
            let youngest = self.running.iter().rposition(|other| other.seat.base == base).unwrap_or(at);
            self.pause(youngest.max(at));
            if youngest <= at {
                return false;
            }
        }
    }

    /// Takes a sequence's blocks. It comes back and ends as if nothing had happened.
    fn pause(&mut self, at: usize) {
        let mut sequence = self.running.remove(at);
        let table = std::mem::take(&mut sequence.table);
        self.policies.bases[sequence.seat.base].blocks.release(table);
        self.counters.pauses.fetch_add(1, Ordering::Relaxed);
        self.waiting.push_front(sequence.back_in_line());
    }

    /// Runs some sequences on the same weights; what was drawn, by sequence.
    fn step(&mut self, batch: &[usize], takes: &[usize]) -> Result<Vec<(usize, Outcome)>, String> {
        let Self { executor, policies, running, jobs, counters, .. } = self;
        let mut outcomes: Vec<(usize, Outcome)> = Vec::new();
        let mut picks: Vec<(usize, usize, Pick)> = Vec::new();
        let mut rows = 0;
        for i in batch {
            let sequence = &mut running[*i];
            let wanted = sequence.wanted(takes[*i]);
            let Some(job) = jobs.get(&sequence.job) else { continue };
            let mut outcome = Outcome { wanted, ..Outcome::default() };
            sequence.pick(&job.request, wanted, &mut outcome.fresh, |row, pick| {
                picks.push((*i, rows + row, pick));
            });
            rows += wanted;
            outcomes.push((*i, outcome));
        }
        let running = &*running;
        let Some(first) = outcomes.first() else { return Ok(outcomes) };
        let seat = &running[first.0].seat;
        let segments = outcomes.iter().map(|(i, outcome)| {
            let sequence = &running[*i];
            Segment {
                tokens: &sequence.tokens[sequence.computed..][..takes[*i]],
                position: sequence.computed,
                blocks: &sequence.table.blocks,
                adapter: sequence.seat.adapter.as_deref(),
                logits: outcome.wanted,
            }
        });
        let batch = Batch { segments: segments.collect() };
        let draws: Vec<Draw<'_>> = picks
            .iter()
            .filter_map(|(i, row, pick)| {
                let sequence = &running[*i];
                let request = &jobs.get(&sequence.job)?.request;
                let (prompt, completion) = sequence.tokens.split_at(request.prompt.len());
                let (sampling, top) = (&request.sampling, request.top_logprobs);
                Some(Draw { row: *row, sampling, prompt, completion, pick: *pick, top })
            })
            .collect();
        let cache = &mut policies.bases[seat.base].cache;
        let drawn = catch_unwind(AssertUnwindSafe(|| {
            let logits = executor.step(&seat.weights, cache, &batch)?;
            if draws.is_empty() { Ok(Vec::new()) } else { executor.draw(logits, &draws) }
        }))
        .unwrap_or_else(|panic| Err(what(&*panic)))?;
        counters.steps.fetch_add(1, Ordering::Relaxed);
        let mut drawn = drawn.into_iter();
        for (i, outcome) in &mut outcomes {
            let count = picks.iter().filter(|(of, _, _)| of == i).count();
            outcome.drawn = drawn.by_ref().take(count).collect();
        }
        Ok(outcomes)
    }

    /// Takes in what a step has brought.
    fn settle(&mut self, mut outcomes: Vec<(usize, Outcome)>, takes: &[usize]) {
        outcomes.sort_by_key(|(i, _)| *i);
        let mut outcomes = outcomes.into_iter().peekable();
        for (i, mut sequence) in std::mem::take(&mut self.running).into_iter().enumerate() {
            let Some((_, outcome)) = outcomes.next_if(|(of, _)| *of == i) else {
                // It had no turn, or failed.
                if self.jobs.contains_key(&sequence.job) {
                    self.running.push(sequence);
                } else {
                    self.leave(sequence);
                }
                continue;
            };
            if takes[i] > 1 || matches!(sequence.goal, Goal::Prompt(_)) {
                self.counters.prefilled_tokens.fetch_add(takes[i] as u64, Ordering::Relaxed);
            }
            sequence.computed += takes[i];
            let blocks = &mut self.policies.bases[sequence.seat.base].blocks;
            blocks.name(sequence.seat.identity, &mut sequence.table, &sequence.tokens, sequence.computed);
            self.proceed(sequence, outcome);
        }
    }

    /// A sequence after a step: it goes on, or it is done.
    fn proceed(&mut self, mut sequence: Sequence<E>, outcome: Outcome) {
        let Some(drawn) = outcome.drawn.into_iter().collect::<Option<Vec<Drawn>>>() else {
            let reason = "the model's outputs are not finite numbers; its weights have diverged";
            let error = Error::Failed { policy: sequence.seat.policy, reason: reason.into() };
            fail(&mut self.jobs, sequence.job, error);
            return self.leave(sequence);
        };
        match &mut sequence.goal {
            Goal::Prompt(_) if drawn.is_empty() => self.running.push(sequence),
            Goal::Prompt(_) => self.branch(sequence, outcome.fresh, drawn),
            Goal::Completion(_) => match drawn.into_iter().next() {
                Some(drawn) => self.accept(sequence, drawn),
                None => self.running.push(sequence),
            },
            Goal::Score { targets, logprobs, .. } => {
                logprobs.extend(drawn.iter().map(|drawn| drawn.logprob));
                if logprobs.len() < targets.len() {
                    return self.running.push(sequence);
                }
                let logprobs = std::mem::take(logprobs);
                if let Some(Job { reply: Reply::Scores(reply), .. }) = self.jobs.remove(&sequence.job) {
                    // Whoever went away wants no answer.
                    let _ = reply.send(Ok(logprobs));
                }
                self.leave(sequence);
            }
        }
    }

    /// A prompt has been taken in: its completions begin, each on its own copy of the last block.
    fn branch(&mut self, mut prompt: Sequence<E>, fresh: Vec<Completing>, drawn: Vec<Drawn>) {
        self.counters.prefills.fetch_add(1, Ordering::Relaxed);
        let Goal::Prompt(Range { end, .. }) = prompt.goal else { return self.leave(prompt) };
        let mut begun = fresh.into_iter().zip(drawn);
        let first = begun.next();
        for (completing, drawn) in begun {
            let seed = completing.index();
            match self.fork(&prompt) {
                Ok(Some(table)) => {
                    let goal = Goal::Completion(Box::new(completing));
                    let seat = prompt.seat.clone();
                    let tokens = prompt.tokens.clone();
                    self.accept(Sequence { table, seat, tokens, goal, ..prompt }, drawn);
                }
                Ok(None) => {
                    self.waiting.push_front(Waiting::Seeds { job: prompt.job, seeds: seed..end });
                    break;
                }
                Err(reason) => {
                    let error = Error::Failed { policy: prompt.seat.policy, reason };
                    fail(&mut self.jobs, prompt.job, error);
                    break;
                }
            }
        }
        // The first seed takes the prompt's own blocks over.
        if let Some((completing, drawn)) = first {
            prompt.goal = Goal::Completion(Box::new(completing));
            self.accept(prompt, drawn);
        }
    }

    /// A copy of a sequence's blocks; none when there is no room.
    fn fork(&mut self, sequence: &Sequence<E>) -> Result<Option<Table>, String> {
        let home = &mut self.policies.bases[sequence.seat.base];
        let mut table = home.blocks.fork(&sequence.table, sequence.computed);
        if !home.blocks.extend(&mut table, sequence.computed) {
            home.blocks.release(table);
            return Ok(None);
        }
        if let (Some(from), Some(to)) = (
            sequence.table.blocks.get(sequence.computed / BLOCK),
            table.blocks.get(sequence.computed / BLOCK),
        ) {
            self.executor.copy(&mut home.cache, *from, *to)?;
        }
        Ok(Some(table))
    }

    /// A completion gets its next token.
    fn accept(&mut self, mut sequence: Sequence<E>, drawn: Drawn) {
        self.counters.generated_tokens.fetch_add(1, Ordering::Relaxed);
        let (Some(job), Goal::Completion(completing)) =
            (self.jobs.get_mut(&sequence.job), &mut sequence.goal)
        else {
            return self.leave(sequence);
        };
        sequence.tokens.push(drawn.token);
        let tokens = &sequence.tokens[job.request.prompt.len()..];
        let tokenizer = &sequence.seat.tokenizer;
        let Some(finish) = completing.accept(tokens, drawn, tokenizer, &job.request) else {
            return self.running.push(sequence);
        };
        let index = completing.index();
        job.completions[index] =
            Some(completing.complete(tokens.to_vec(), finish, tokenizer, sequence.seat.version));
        if job.completions.iter().all(Option::is_some)
            && let Some(Job { reply: Reply::Completions(reply), completions, .. }) =
                self.jobs.remove(&sequence.job)
        {
            // Whoever went away wants no answer.
            let _ = reply.send(Ok(completions.into_iter().flatten().collect()));
        }
        self.leave(sequence);
    }

    /// Gives the blocks of a sequence that is over back.
    fn leave(&mut self, sequence: Sequence<E>) {
        self.policies.bases[sequence.seat.base].blocks.release(sequence.table);
    }
}

/// What came of an attempt to start something.
enum Started<E: Executor> {
    /// It runs, on so many slots.
    Running(usize),
    /// Another sequence is computing its beginning.
    Behind(Waiting<E>),
    /// Too few blocks are free.
    NoRoom(Waiting<E>),
    /// Nobody waits for it any more.
    Gone,
}

/// Ends a job with an error; what it still holds goes with the next round.
fn fail<E: Executor>(jobs: &mut HashMap<u64, Job<E>>, id: u64, error: Error) {
    if let Some(job) = jobs.remove(&id) {
        tracing::warn!(policy = job.seat.policy, %error, "a generation request failed");
        job.reply.fail(error);
    }
}

/// The message of a panic: tch turns libtorch's exceptions into panics.
fn what(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("an unknown failure");
    // libtorch appends its stack of C++ calls.
    text.lines().next().unwrap_or_default().to_owned()
}
