//! The engine's thread: takes requests in, keeps a batch of sequences going, hands completions out.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tokio::sync::oneshot;

use crate::cache::{Keep, Prompt, PromptCache};
use crate::decode::{Row, prefill, step};
use crate::engine::{Counters, EngineConfig, Message};
use crate::policies::{Policies, Seat};
use crate::sample::Rows;
use crate::stop::StopWatch;
use crate::{Completion, Error, Finish, Request};

type Reply = oneshot::Sender<Result<Vec<Completion>, Error>>;

/// A request until all of its completions are there.
struct Job {
    request: Request,
    reply: Reply,
    seat: Seat,
    completions: Vec<Option<Completion>>,
}

/// A request that still has seeds without a slot.
struct Waiting {
    job: u64,
    /// The first seed without a slot.
    next: usize,
    prompt: Option<Rc<Prompt>>,
}

/// A completion being generated.
struct Sequence {
    job: u64,
    /// Index of its seed.
    index: usize,
    seat: Seat,
    keep: Keep,
    stream: ChaCha8Rng,
    temperature: f64,
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    stop: StopWatch,
    /// Tokens that it may have.
    limit: usize,
}

pub(crate) struct Worker {
    policies: Policies,
    config: EngineConfig,
    counters: Arc<Counters>,
    receiver: Receiver<Message>,
    jobs: HashMap<u64, Job>,
    next_job: u64,
    waiting: VecDeque<Waiting>,
    running: Vec<Sequence>,
    prompts: PromptCache,
}

impl Worker {
    pub(crate) fn new(
        policies: Policies,
        config: EngineConfig,
        counters: Arc<Counters>,
        receiver: Receiver<Message>,
    ) -> Self {
        let prompts = PromptCache::new(config.prompt_cache);
        Self {
            policies,
            config,
            counters,
            receiver,
            jobs: HashMap::new(),
            next_job: 0,
            waiting: VecDeque::new(),
            running: Vec::new(),
            prompts,
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
                let result = self.policies.publish(policy, update, version);
                self.prompts.retain(|identity| self.policies.is_current(identity));
                // A publisher that went away wants no answer.
                let _ = reply.send(result);
            }
            Message::Generate { request, reply } => match self.check(&request) {
                Ok(seat) => {
                    let completions = request.seeds.iter().map(|_| None).collect();
                    let job = self.next_job;
                    self.next_job += 1;
                    self.jobs.insert(job, Job { request, reply, seat, completions });
                    self.waiting.push_back(Waiting { job, next: 0, prompt: None });
                }
                Err(error) => {
                    let _ = reply.send(Err(error));
                }
            },
        }
    }

    fn check(&mut self, request: &Request) -> Result<Seat, Error> {
        let policy = request.policy;
        let fail = |reason: String| Err(Error::Request { policy, reason });
        let Some(seat) = self.policies.seat(policy) else {
            return fail("there is no such policy".into());
        };
        let config = &seat.set.config;
        if request.prompt.is_empty() {
            return fail("the prompt is empty".into());
        }
        if request.prompt.len() >= config.max_positions {
            return fail(format!(
                "the prompt has {} tokens, but the model takes {} with the completion; shorten the prompt",
                request.prompt.len(),
                config.max_positions
            ));
        }
        if let Some(id) = request.prompt.iter().find(|id| i64::from(**id) >= config.vocab) {
            return fail(format!("token {id} is outside the model's vocabulary of {}", config.vocab));
        }
        if !(request.temperature.is_finite() && request.temperature >= 0.0) {
            return fail(format!("the temperature is {}; it must be 0 or more", request.temperature));
        }
        if request.max_tokens == 0 {
            return fail("`max_tokens` is 0; it must be at least 1".into());
        }
        if request.seeds.is_empty() {
            return fail("it has no seeds, so it asks for nothing".into());
        }
        Ok(seat)
    }

    /// Frees what requests hold that nobody waits for any more.
    fn drop_cancelled(&mut self) {
        self.jobs.retain(|_, job| !job.reply.is_closed());
        self.waiting.retain(|waiting| self.jobs.contains_key(&waiting.job));
        self.running.retain(|sequence| self.jobs.contains_key(&sequence.job));
    }

    /// Gives free slots to requests in line.
    fn admit(&mut self) {
        while self.running.len() < self.config.slots {
            let Some(mut waiting) = self.waiting.pop_front() else { return };
            let prompt = match waiting.prompt.take() {
                Some(prompt) => prompt,
                None => match self.prompt(waiting.job) {
                    Ok(prompt) => prompt,
                    Err(error) => {
                        self.fail(waiting.job, error);
                        continue;
                    }
                },
            };
            let Some(job) = self.jobs.get(&waiting.job) else { continue };
            let free = self.config.slots - self.running.len();
            let end = job.request.seeds.len().min(waiting.next + free);
            let (id, range) = (waiting.job, waiting.next..end);
            if end < job.request.seeds.len() {
                waiting.next = end;
                waiting.prompt = Some(Rc::clone(&prompt));
                self.waiting.push_front(waiting);
            }
            if let Err(error) = self.seat(id, range, &prompt) {
                self.fail(id, error);
            }
        }
    }

    /// The prompt of a job after its pass through the model: kept from before, or made now, for every request
    /// in line that has the same.
    fn prompt(&mut self, id: u64) -> Result<Rc<Prompt>, Error> {
        let Some(job) = self.jobs.get(&id) else { return Err(Error::Stopped) };
        let key = (job.seat.identity, Arc::clone(&job.request.prompt));
        if let Some(found) = self.prompts.get(&key) {
            return Ok(found);
        }
        let made = catch_unwind(AssertUnwindSafe(|| prefill(&job.seat, &job.request.prompt)))
            .map_err(|panic| failed(job.seat.policy, &*panic))?;
        let made = Rc::new(made);
        self.counters.prefills.fetch_add(1, Ordering::Relaxed);
        self.counters.prefilled_tokens.fetch_add(key.1.len() as u64, Ordering::Relaxed);
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.prompt.is_none()) {
            let same = self
                .jobs
                .get(&waiting.job)
                .is_some_and(|other| other.seat.identity == key.0 && other.request.prompt == key.1);
            if same {
                waiting.prompt = Some(Rc::clone(&made));
            }
        }
        self.prompts.insert(key, Rc::clone(&made));
        Ok(made)
    }

    /// Starts the completions of some of a job's seeds: their first tokens come from the prompt's logits.
    fn seat(&mut self, id: u64, seeds: std::ops::Range<usize>, prompt: &Rc<Prompt>) -> Result<(), Error> {
        let Some(job) = self.jobs.get(&id) else { return Ok(()) };
        let (request, seat) = (job.request.clone(), job.seat.clone());
        let rows = Rows::new(&prompt.logits, &[request.temperature])
            .map_err(|e| Error::Failed { policy: seat.policy, reason: e.to_string() })?;
        let room = seat.set.config.max_positions - request.prompt.len();
        for index in seeds {
            let keep = catch_unwind(AssertUnwindSafe(|| prompt.keep.fork()))
                .map_err(|panic| failed(seat.policy, &*panic))?;
            let mut sequence = Sequence {
                job: id,
                index,
                seat: seat.clone(),
                keep,
                stream: ChaCha8Rng::from_seed(request.seeds[index]),
                temperature: request.temperature,
                tokens: Vec::new(),
                logprobs: Vec::new(),
                stop: StopWatch::new(&request.stop),
                limit: room.min(request.max_tokens as usize),
            };
            self.counters.generated_tokens.fetch_add(1, Ordering::Relaxed);
            match sequence.accept(&rows, 0)? {
                Some(finish) => self.finish(sequence, finish),
                None => self.running.push(sequence),
            }
        }
        Ok(())
    }

    /// One token more for every running sequence.
    fn advance(&mut self) {
        let mut left = std::mem::take(&mut self.running);
        while let Some(first) = left.first() {
            // A tile's rows share a set; in one schedule step every sequence gets its turn.
            let set = Rc::clone(&first.seat.set);
            let mut tile: Vec<Sequence> = Vec::new();
            let mut rest = Vec::new();
            for sequence in left {
                if tile.len() < self.config.tile && Rc::ptr_eq(&sequence.seat.set, &set) {
                    tile.push(sequence);
                } else {
                    rest.push(sequence);
                }
            }
            left = rest;
            self.advance_tile(tile);
        }
    }

    fn advance_tile(&mut self, mut tile: Vec<Sequence>) {
        let size = self.config.tile;
        let mut temperatures = vec![0.0; size];
        for (slot, sequence) in temperatures.iter_mut().zip(&tile) {
            *slot = sequence.temperature;
        }
        let rows = catch_unwind(AssertUnwindSafe(|| {
            let mut rows: Vec<Row<'_>> = tile
                .iter_mut()
                .map(|sequence| Row {
                    token: sequence.tokens.last().copied().unwrap_or_default(),
                    seat: &sequence.seat,
                    keep: &mut sequence.keep,
                })
                .collect();
            step(&mut rows, size).map(|logits| Rows::new(&logits, &temperatures))
        }));
        let rows = match rows {
            Ok(Some(Ok(rows))) => rows,
            Ok(None) => return,
            Ok(Some(Err(error))) => return self.fail_tile(&tile, &error.to_string()),
            Err(panic) => return self.fail_tile(&tile, &what(&*panic)),
        };
        self.counters.steps.fetch_add(1, Ordering::Relaxed);
        for (row, mut sequence) in tile.into_iter().enumerate() {
            self.counters.generated_tokens.fetch_add(1, Ordering::Relaxed);
            match sequence.accept(&rows, row) {
                Ok(None) => self.running.push(sequence),
                Ok(Some(finish)) => self.finish(sequence, finish),
                Err(error) => self.fail(sequence.job, error),
            }
        }
    }

    fn finish(&mut self, sequence: Sequence, finish: Finish) {
        let Some(job) = self.jobs.get_mut(&sequence.job) else { return };
        job.completions[sequence.index] = Some(Completion {
            text: sequence.stop.text(&sequence.seat.set.tokenizer, &sequence.tokens),
            tokens: sequence.tokens,
            logprobs: sequence.logprobs,
            finish,
            version: sequence.seat.version,
        });
        if job.completions.iter().all(Option::is_some)
            && let Some(job) = self.jobs.remove(&sequence.job)
        {
            // Whoever went away wants no answer.
            let _ = job.reply.send(Ok(job.completions.into_iter().flatten().collect()));
        }
    }

    fn fail_tile(&mut self, tile: &[Sequence], reason: &str) {
        for sequence in tile {
            let error = Error::Failed { policy: sequence.seat.policy, reason: reason.to_owned() };
            self.fail(sequence.job, error);
        }
    }

    /// Ends a job with an error; what it still holds goes with the next round.
    fn fail(&mut self, id: u64, error: Error) {
        if let Some(job) = self.jobs.remove(&id) {
            tracing::warn!(policy = job.seat.policy, %error, "a generation request failed");
            let _ = job.reply.send(Err(error));
        }
        self.running.retain(|sequence| sequence.job != id);
    }
}

impl Sequence {
    /// Draws the next token from a row; why the completion is over, when it is.
    fn accept(&mut self, rows: &Rows, row: usize) -> Result<Option<Finish>, Error> {
        let (token, logprob) =
            rows.draw(row, self.temperature, &mut self.stream).ok_or_else(|| Error::Failed {
                policy: self.seat.policy,
                reason: "the model's outputs are not finite numbers; its weights have diverged".into(),
            })?;
        self.tokens.push(token);
        self.logprobs.push(logprob);
        let tokenizer = &self.seat.set.tokenizer;
        let stopped = tokenizer.end_of_turn().contains(&token) || self.stop.push(tokenizer, token);
        Ok(if stopped {
            Some(Finish::Stop)
        } else if self.tokens.len() >= self.limit {
            Some(Finish::Length)
        } else {
            None
        })
    }
}

fn failed(policy: usize, panic: &(dyn Any + Send)) -> Error {
    Error::Failed { policy, reason: what(panic) }
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
