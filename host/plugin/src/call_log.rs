//! Recorded side effects of calls into a plugin: log lines, output, sandbox calls, queries, questions to policies and
//! HTTP requests.
//!
//! A caller passes a call log to a handle (`with_call_log` of [`crate::Environment`], [`crate::Agent`],
//! [`crate::Reward`]) and takes the events out after each call, also after one that trapped. A call log that
//! [replays](CallLog::replaying) answers with the recorded results: no code runs, no corpus is searched, and no request is sent.
//!
//! Log lines and output between two takes are limited, so that a plugin that prints without end costs the
//! host no memory. Verdicts, passages and HTTP answers are always kept, because a replay needs every one.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use pl_sandbox::{Ending, Job, Sandbox, Verdict};
use pl_types::{AnswerQuestions, PartHasher, Passage, Question, redact_address, redact_cookies};
pub use pl_wasm::{HttpFailure, HttpRecorder, HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};

use crate::corpora::Corpora;

/// Limit of the bytes of lines and output that are kept between two takes.
const MAX_BYTES: usize = 64 << 10;

/// Limit of the lines and pieces of output that are kept between two takes.
const MAX_EVENTS: usize = 1000;

/// A side effect of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A log line.
    Log {
        /// Severity of the line.
        level: Level,
        /// The line's text.
        message: String,
    },
    /// Printed output. Consecutive pieces of one channel form one event.
    Output {
        /// Channel of the output.
        stream: Channel,
        /// The text. Bytes that are not UTF-8 are replaced.
        text: String,
    },
    /// A call of the sandbox.
    Sandbox {
        /// BLAKE3 of the jobs, in hexadecimal.
        jobs: String,
        /// One verdict per job; fewer if the recording that is replayed has fewer.
        verdicts: Vec<RecordedVerdict>,
    },
    /// A search in a corpus of the environment.
    Retrieval {
        /// Name of the corpus. `None` for the environment's first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        corpus: Option<String>,
        query: String,
        /// Number of passages that were asked for.
        count: u32,
        answer: RetrievalAnswer,
    },
    /// A question to a policy.
    Question { question: Question, answer: PolicyAnswer },
    /// A request over HTTP.
    Http {
        /// Method and address, without its secrets. The hash covers those.
        request: String,
        /// BLAKE3 of the whole request without the values of its cookies, in hexadecimal. `None` if the call ended
        /// before the request was complete.
        hash: Option<String>,
        /// The answer, without the values of its cookies. `None` if the guest did not wait for it.
        answer: Option<Result<HttpResponse, HttpFailure>>,
    },
    /// Lines and output beyond the limit.
    Truncated {
        /// Lines and pieces of output left out, in whole or in part.
        events: u64,
        /// Bytes left out.
        bytes: u64,
    },
}

/// The largest use of resources by one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// Fuel of one call.
    pub fuel: u64,
    /// Linear memory of the instance, in bytes.
    pub memory: u64,
}

impl ResourceUsage {
    /// Returns the elementwise maximum.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { fuel: self.fuel.max(other.fuel), memory: self.memory.max(other.memory) }
    }
}

/// Severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Details for the plugin's author.
    Debug,
    /// General information.
    Info,
    /// A problem that the user should know about.
    Warn,
}

/// Output channel of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A verdict as plugins receive it, without measured values such as times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedVerdict {
    /// End of the job.
    pub ending: Ending,
    /// Exit code. `None` if the host ended the job.
    pub exit: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// `false` if the verdict depends on a wall clock.
    pub reproducible: bool,
}

impl From<&Verdict> for RecordedVerdict {
    fn from(verdict: &Verdict) -> Self {
        Self {
            ending: verdict.ending,
            exit: verdict.exit,
            stdout: verdict.stdout.clone(),
            stderr: verdict.stderr.clone(),
            reproducible: verdict.reproducible,
        }
    }
}

impl From<RecordedVerdict> for Verdict {
    fn from(recorded: RecordedVerdict) -> Self {
        Self {
            ending: recorded.ending,
            exit: recorded.exit,
            stdout: recorded.stdout,
            stderr: recorded.stderr,
            reproducible: recorded.reproducible,
            ..Self::default()
        }
    }
}

/// Answer to a query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetrievalAnswer {
    /// The passages, best first, or the reason why there are none.
    pub passages: Result<Vec<Passage>, String>,
    /// `false` if the answer depends on a server.
    pub reproducible: bool,
}

/// Searches in the corpus with this name, or in the first.
pub(crate) async fn search(
    corpora: &Corpora,
    corpus: Option<&str>,
    query: &str,
    count: u32,
) -> RetrievalAnswer {
    match corpora.find(corpus) {
        Ok(corpus) => RetrievalAnswer {
            passages: corpus.retrieve(query, count as usize).await.map_err(|error| error.to_string()),
            reproducible: corpus.is_reproducible(),
        },
        Err(missing) => RetrievalAnswer { passages: Err(missing.to_string()), reproducible: true },
    }
}

/// Answer of a policy to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyAnswer {
    /// The text, or the error for the plugin.
    pub text: Result<String, String>,
    /// `false` if the answer depends on a server.
    pub reproducible: bool,
}

/// Asks a policy.
pub(crate) async fn ask(policies: &dyn AnswerQuestions, question: &Question) -> PolicyAnswer {
    PolicyAnswer {
        text: policies.answer(question).await.map_err(|error| error.to_string()),
        reproducible: policies.is_reproducible(&question.policy),
    }
}

/// Recorded answers for a replay, each kind in its order.
#[derive(Debug, Clone, Default)]
pub struct ReplayAnswers {
    /// Verdicts of each call of the sandbox.
    pub verdicts: VecDeque<Vec<RecordedVerdict>>,
    /// Answer to each query.
    pub retrievals: VecDeque<RetrievalAnswer>,
    /// Answer to each question.
    pub questions: VecDeque<PolicyAnswer>,
    /// Answer to each request over HTTP.
    pub http: VecDeque<Option<Result<HttpResponse, HttpFailure>>>,
}

impl ReplayAnswers {
    /// Appends the answers among `events`.
    pub fn extend<'e>(&mut self, events: impl IntoIterator<Item = &'e Event>) {
        for event in events {
            match event {
                Event::Sandbox { verdicts, .. } => self.verdicts.push_back(verdicts.clone()),
                Event::Retrieval { answer, .. } => self.retrievals.push_back(answer.clone()),
                Event::Question { answer, .. } => self.questions.push_back(answer.clone()),
                Event::Http { answer, .. } => self.http.push_back(answer.clone()),
                Event::Log { .. } | Event::Output { .. } | Event::Truncated { .. } => {}
            }
        }
    }
}

/// A list of events that all clones share.
#[derive(Debug, Clone, Default)]
pub struct CallLog(Arc<Mutex<LogState>>);

#[derive(Debug, Default)]
struct LogState {
    events: Vec<PendingEvent>,
    /// Number of lines and pieces of output in `events`, and their bytes.
    kept: (usize, usize),
    /// Number of lines and pieces that were left out, and their bytes.
    truncated: (u64, u64),
    /// Largest use by the calls since the last take.
    usage: ResourceUsage,
    /// Number of all requests over HTTP.
    sent: usize,
    /// Recorded answers; `Some` in a replay.
    answers: Option<ReplayAnswers>,
}

/// An event that may be incomplete: pieces of output may end within a character.
#[derive(Debug)]
enum PendingEvent {
    Event(Event),
    Output(Channel, Vec<u8>),
    Http(Exchange),
}

/// A request over HTTP and its answer.
#[derive(Debug)]
struct Exchange {
    /// Index of the request.
    number: usize,
    request: String,
    hash: Option<String>,
    /// Recorded answer, in a replay.
    recorded: Option<Result<HttpResponse, HttpFailure>>,
    answer: Option<Result<HttpResponse, HttpFailure>>,
}

impl CallLog {
    /// Creates a call log that answers calls of the sandbox, queries and requests over HTTP with recorded answers,
    /// each kind in its order. No code runs, no corpus is searched, and no request is sent.
    pub fn replaying(answers: ReplayAnswers) -> Self {
        Self(Arc::new(Mutex::new(LogState { answers: Some(answers), ..LogState::default() })))
    }

    /// Records a log line.
    pub fn log(&self, level: Level, message: &str) {
        let mut state = self.0.lock();
        let Some(length) = state.reserve(message.len(), 1) else { return };
        let message = message[..message.floor_char_boundary(length)].to_owned();
        state.events.push(PendingEvent::Event(Event::Log { level, message }));
    }

    /// Records printed output.
    pub fn print(&self, channel: Channel, bytes: &[u8]) {
        let mut state = self.0.lock();
        let continues =
            matches!(state.events.last(), Some(PendingEvent::Output(last, _)) if *last == channel);
        let Some(length) = state.reserve(bytes.len(), usize::from(!continues)) else { return };
        let bytes = &bytes[..length];
        match state.events.last_mut() {
            Some(PendingEvent::Output(_, printed)) if continues => printed.extend_from_slice(bytes),
            _ => state.events.push(PendingEvent::Output(channel, bytes.to_vec())),
        }
    }

    /// Runs jobs on a sandbox, or takes the recorded verdicts in a replay, and records the verdicts. A replay
    /// returns no verdicts for a call that is not in the recording.
    pub async fn execute(&self, sandbox: &dyn Sandbox, jobs: Vec<Job>) -> Vec<Verdict> {
        let hash = hash_jobs(&jobs);
        let recorded = self.replayed(|answers| answers.verdicts.pop_front().unwrap_or_default());
        let verdicts = match recorded {
            Some(verdicts) => verdicts.into_iter().map(Verdict::from).collect(),
            None => sandbox.execute(jobs).await,
        };
        self.push(Event::Sandbox {
            jobs: hash,
            verdicts: verdicts.iter().map(RecordedVerdict::from).collect(),
        });
        verdicts
    }

    /// Searches in a corpus, or takes the recorded answer in a replay, and records it. A replay answers a query that
    /// is not in the recording with an error.
    pub(crate) async fn retrieve(
        &self,
        corpora: &Corpora,
        corpus: Option<String>,
        query: String,
        count: u32,
    ) -> RetrievalAnswer {
        let unrecorded = || RetrievalAnswer {
            passages: Err("the recording has no answer to this query".to_owned()),
            reproducible: true,
        };
        let recorded = self.replayed(|answers| answers.retrievals.pop_front().unwrap_or_else(unrecorded));
        let answer = match recorded {
            Some(answer) => answer,
            None => search(corpora, corpus.as_deref(), &query, count).await,
        };
        self.push(Event::Retrieval { corpus, query, count, answer: answer.clone() });
        answer
    }

    /// Asks a policy, or takes the recorded answer in a replay, and records it. A replay answers a question that is
    /// not in the recording with an error.
    pub(crate) async fn ask(&self, policies: &dyn AnswerQuestions, question: &Question) -> PolicyAnswer {
        let unrecorded = || PolicyAnswer {
            text: Err("the recording has no answer to this question".to_owned()),
            reproducible: true,
        };
        let recorded = self.replayed(|answers| answers.questions.pop_front().unwrap_or_else(unrecorded));
        let answer = match recorded {
            Some(answer) => answer,
            None => ask(policies, question).await,
        };
        self.push(Event::Question { question: question.clone(), answer: answer.clone() });
        answer
    }

    /// Takes a recorded answer in a replay. Returns `None` in a recording.
    fn replayed<T>(&self, take: impl FnOnce(&mut ReplayAnswers) -> T) -> Option<T> {
        self.0.lock().answers.as_mut().map(take)
    }

    fn push(&self, event: Event) {
        self.0.lock().events.push(PendingEvent::Event(event));
    }

    pub(crate) fn record_usage(&self, usage: ResourceUsage) {
        let mut state = self.0.lock();
        state.usage = state.usage.max(usage);
    }

    /// Returns the largest use by one call since the last take.
    pub fn take_usage(&self) -> ResourceUsage {
        std::mem::take(&mut self.0.lock().usage)
    }

    /// Returns the events since the last take, in order.
    pub fn take(&self) -> Vec<Event> {
        let mut state = self.0.lock();
        let truncated = std::mem::take(&mut state.truncated);
        state.kept = (0, 0);
        let mut events: Vec<Event> = std::mem::take(&mut state.events)
            .into_iter()
            .map(|event| match event {
                PendingEvent::Event(event) => event,
                PendingEvent::Output(stream, bytes) => {
                    Event::Output { stream, text: String::from_utf8_lossy(&bytes).into_owned() }
                }
                PendingEvent::Http(Exchange { request, hash, answer, .. }) => {
                    Event::Http { request, hash, answer }
                }
            })
            .collect();
        if truncated.0 > 0 {
            events.push(Event::Truncated { events: truncated.0, bytes: truncated.1 });
        }
        events
    }
}

impl HttpRecorder for CallLog {
    fn begin(&self, method: &str, uri: &str) -> usize {
        let mut state = self.0.lock();
        let number = state.sent;
        state.sent += 1;
        let recorded = state
            .answers
            .as_mut()
            .map(|answers| answers.http.pop_front().flatten().unwrap_or(Err(HttpFailure::Unrecorded)));
        let request = redact_address(&format!("{method} {uri}"));
        state.events.push(PendingEvent::Http(Exchange {
            number,
            request,
            hash: None,
            recorded,
            answer: None,
        }));
        number
    }

    fn replay(&self, number: usize, _: &HttpRequest) -> Option<Result<HttpResponse, HttpFailure>> {
        self.0.lock().exchange(number)?.recorded.take()
    }

    fn finish(&self, number: usize, request: &HttpRequest, answer: &Result<HttpResponse, HttpFailure>) {
        // Events of a call that is over may have been taken already.
        if let Some(exchange) = self.0.lock().exchange(number) {
            exchange.hash = Some(hash_request(request));
            exchange.answer = Some(answer.clone().map(without_cookies));
        }
    }
}

impl LogState {
    /// Finds a request that was sent since the last take.
    fn exchange(&mut self, number: usize) -> Option<&mut Exchange> {
        self.events.iter_mut().find_map(|event| match event {
            PendingEvent::Http(exchange) if exchange.number == number => Some(exchange),
            _ => None,
        })
    }

    /// Reserves space for `bytes` in `events` new events, and counts the rest as truncated. Returns the
    /// number of bytes to keep. Returns `None` if the events must be left out.
    fn reserve(&mut self, bytes: usize, events: usize) -> Option<usize> {
        let (kept_events, kept_bytes) = self.kept;
        let full = kept_events + events > MAX_EVENTS;
        let room = if full { 0 } else { bytes.min(MAX_BYTES - kept_bytes) };
        let left_out = full || (room == 0 && bytes > 0);
        if left_out || room < bytes {
            self.truncated.0 += 1;
            self.truncated.1 += (bytes - room) as u64;
        }
        if left_out {
            return None;
        }
        self.kept = (kept_events + events, kept_bytes + room);
        Some(room)
    }
}

/// Content hash of jobs.
fn hash_jobs(jobs: &[Job]) -> String {
    let texts = |hasher: PartHasher, list: &[String]| {
        list.iter().fold(hasher.u64(list.len() as u64), |hasher, text| hasher.text(text))
    };
    let mut hasher = PartHasher::content();
    for job in jobs {
        hasher = hasher.text(&job.language).text(&job.source).text(&job.stdin);
        hasher = hasher.u64(job.files.len() as u64);
        for file in &job.files {
            hasher = hasher.text(&file.path).bytes(&file.bytes);
        }
        for list in [&job.cases, &job.compile, &job.run, &job.output_files] {
            hasher = texts(hasher, list);
        }
    }
    hasher.hex()
}

/// Returns a response without the values of its cookies: they open sessions like passwords, and traces are passed on.
fn without_cookies(mut response: HttpResponse) -> HttpResponse {
    for (name, value) in &mut response.headers {
        *value = redact_cookies(name, value);
    }
    response
}

/// Content hash of a request, without the values of its cookies: in a replay the guest receives redacted ones and
/// sends them back.
fn hash_request(request: &HttpRequest) -> String {
    let HttpRequest { method, uri, headers, body } = request;
    let hasher = PartHasher::content().text(method).text(uri).bytes(body);
    let header = |hasher: PartHasher, (name, value): &(String, String)| {
        hasher.text(name).text(&redact_cookies(name, value))
    };
    headers.iter().fold(hasher, header).hex()
}

#[cfg(test)]
mod tests;
