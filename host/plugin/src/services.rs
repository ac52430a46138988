//! Host functions that plugins may call.

use std::sync::Arc;
use std::time::Instant;

use pl_sandbox::{Ending, Job, Sandbox, Verdict};
use pl_types::{AnswerQuestions, Question, QuestionMessage, QuestionRole, seed};
use pl_wasm::{Captured, Clock, DeniedRequests, Guest, HostError, HttpRecorder, MachineError, Seed, Store};

use crate::bindings::{log, policies, random, retrieval, sandbox, types};
use crate::call_log::{self, CallLog, Channel, ResourceUsage};
use crate::corpora::Corpora;
use crate::plugin_log::{self, Admission, PluginLog};
use crate::random::RandomStream;

/// Limit of the jobs in one call: more than the cases of a test suite, few enough for the host's memory.
const MAX_JOBS: usize = 256;

/// Limit of a log line, in characters.
const MAX_LINE_CHARS: usize = 4096;

/// Fuel for a log line in addition to its bytes, about the cost of formatting and writing it. A call with the
/// default fuel may write twenty thousand lines.
const LOG_LINE_FUEL: u64 = 100_000;

/// Fuel for a job of the sandbox in addition to its bytes: enough to end a call that submits jobs in an endless
/// loop, little enough for [`MAX_JOBS`] jobs under the default fuel.
const JOB_FUEL: u64 = 3_000_000;

/// Fuel for a file of a job in addition to its bytes: the host makes a few allocations for it.
const FILE_FUEL: u64 = 1_000;

/// Limit of the passages that one call retrieves.
const MAX_PASSAGES: u32 = 100;

/// Limit of a query, in bytes: longer than any question, and short enough to be searched at once.
const MAX_QUERY: usize = 16 << 10;

/// Limit of the passages that one call returns, in bytes.
const MAX_RETRIEVED: usize = 4 << 20;

/// Fuel for a query: enough to end a call that searches in an endless loop, and little enough for hundreds of
/// queries under the default fuel.
const QUERY_FUEL: u64 = 3_000_000;

/// Limit of the messages of one question to a policy, and of their bytes.
const MAX_QUESTION: (usize, usize) = (64, 256 << 10);

/// Limit of the tokens of an answer to a question.
const MAX_ANSWER_TOKENS: u32 = 8192;

/// Fuel for a question to a policy: enough to end a call that asks in an endless loop, and little enough for a
/// hundred questions under the default fuel.
const QUESTION_FUEL: u64 = 10_000_000;

/// Services of the host for environments and the tools of agents. No other call may use them.
#[derive(Clone)]
pub struct Services {
    /// Sandbox that runs untrusted code.
    pub sandbox: Arc<dyn Sandbox>,
    /// Corpora that may be searched.
    pub corpora: Corpora,
}

/// Data of a plugin's store.
pub(crate) struct Context {
    pub plugin: Arc<str>,
    pub item: Arc<str>,
    /// `None` outside of an environment's episode and of an agent's tools.
    pub services: Option<Services>,
    /// Policies that a reward may ask. `None` for all other items, and without a grant.
    pub policies: Option<Arc<dyn AnswerQuestions>>,
    pub stream: RandomStream,
    /// Current function of the contract.
    pub function: &'static str,
    /// Number of finished turns of the episode.
    pub turns: u32,
    /// `true` if the plugin has seen a verdict that depends on a wall clock, a passage that depends on a server, or used
    /// HTTP.
    pub irreproducible: bool,
    /// Record of the side effects.
    pub call_log: Option<CallLog>,
    /// Last warning that was logged in this call.
    pub last_warning: String,
    /// Log of all instances of the plugin.
    pub log: Arc<PluginLog>,
}

impl Context {
    /// Returns the services of an environment's episode or of an agent's tools. `called` is the one that the plugin
    /// calls.
    ///
    /// # Errors
    /// [`HostError`] in all other calls.
    fn episode_services(&self, called: &str) -> Result<Services, HostError> {
        let unavailable = || {
            HostError(format!(
                "the plugin called {called}, which is only available to an environment's episode and to an agent's tools"
            ))
        };
        self.services.clone().ok_or_else(unavailable)
    }
}

/// Prepares a store for a call: sets WASI's clock and randomness to the same state in reused and in fresh
/// instances, and connects the HTTP recorder. The clock advances per turn by the longest duration of a call;
/// the random numbers depend on the episode's stream, the turn and the function. Within a call the clock
/// advances per read and not by fuel, because a guest's fuel use depends on the history of its allocator.
pub(crate) fn begin_call(store: &mut Store<Context>, function: &'static str) {
    let guest = store.data_mut();
    guest.data.function = function;
    if guest.may_use_http() {
        let recorder =
            guest.data.call_log.clone().map(|call_log| Arc::new(call_log) as Arc<dyn HttpRecorder>);
        guest.set_http_recorder(recorder);
    }
    let now = guest.longest_call().saturating_mul(guest.data.turns);
    guest.rewind(Clock::PerRead(now), Seed::Derived(wasi_seed));
}

fn wasi_seed(Context { stream, turns, function, .. }: &Context) -> [u8; 32] {
    seed::wasi(&stream.position().key, *turns, function)
}

/// Limit of a plugin's output in an error, in characters.
const MAX_OUTPUT_CHARS: usize = 2000;

/// Finishes a call, also one that failed: records its resource usage and output. Returns its last warning
/// (for example a panic message) and its stderr.
pub(crate) fn end_call(store: &mut Store<Context>) -> (String, Captured) {
    let guest = store.data_mut();
    let (stdout, stderr) = guest.take_output();
    if let Some(call_log) = &guest.data.call_log {
        call_log.record_usage(ResourceUsage { fuel: guest.fuel_used(), memory: guest.memory_held() });
        for (channel, captured) in [(Channel::Stdout, &stdout), (Channel::Stderr, &stderr)] {
            if !captured.bytes.is_empty() {
                call_log.print(channel, &captured.bytes);
            }
        }
    }
    let denied = guest.take_denied_requests();
    let Context { plugin, item, function, log, .. } = &guest.data;
    if let Some(DeniedRequests { first, count }) = denied
        && log.is_new_denial(&first)
    {
        tracing::warn!(
            target: "plugin", %plugin, %item, function, host = first,
            "the plugin sent requests to hosts that are not granted ({count} in this call, the first of them to this host, \
             which is not reported again)"
        );
    }
    guest.data.irreproducible |= guest.used_http();
    (std::mem::take(&mut guest.data.last_warning), stderr)
}

/// Returns the output that an error shows: the last warning and the end of stderr.
pub(crate) fn last_output((warning, stderr): (String, Captured)) -> String {
    let output = format!("{warning}\n{}", String::from_utf8_lossy(&stderr.bytes));
    let output = output.trim();
    let skipped = output.chars().count().saturating_sub(MAX_OUTPUT_CHARS);
    output.chars().skip(skipped).collect()
}

impl types::Host for Guest<Context> {}

impl log::Host for Guest<Context> {
    fn write(&mut self, level: log::Level, message: String) {
        self.charge(LOG_LINE_FUEL + message.len() as u64);
        let Context { plugin, item, call_log, log, last_warning, .. } = &mut self.data;
        let line = shorten(&message);
        let recorded_level = match level {
            log::Level::Debug => call_log::Level::Debug,
            log::Level::Info => call_log::Level::Info,
            log::Level::Warn => call_log::Level::Warn,
        };
        if let Some(call_log) = call_log {
            call_log.log(recorded_level, line);
        }
        // Lines of a level that is not shown don't count.
        let is_enabled = match level {
            log::Level::Debug => tracing::enabled!(target: "plugin", tracing::Level::DEBUG),
            log::Level::Info => tracing::enabled!(target: "plugin", tracing::Level::INFO),
            log::Level::Warn => tracing::enabled!(target: "plugin", tracing::Level::WARN),
        };
        match is_enabled.then(|| log.admit(Instant::now(), line.len())) {
            Some(Admission::Shown) => match level {
                log::Level::Debug => tracing::debug!(target: "plugin", %plugin, %item, "{line}"),
                log::Level::Info => tracing::info!(target: "plugin", %plugin, %item, "{line}"),
                log::Level::Warn => tracing::warn!(target: "plugin", %plugin, %item, "{line}"),
            },
            Some(Admission::FirstDropped) => tracing::warn!(
                target: "plugin", %plugin,
                "more log lines of this plugin are dropped for up to a minute: the limits are {} lines and {} KiB",
                plugin_log::MAX_LINES, plugin_log::MAX_BYTES >> 10
            ),
            Some(Admission::Dropped) | None => {}
        }
        if level == log::Level::Warn {
            line.clone_into(last_warning);
        }
    }
}

fn shorten(message: &str) -> &str {
    match message.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => &message[..end],
        None => message,
    }
}

impl random::Host for Guest<Context> {
    fn next(&mut self) -> u64 {
        self.data.stream.next_u64()
    }
}

impl sandbox::Host for Guest<Context> {
    async fn execute(&mut self, jobs: Vec<sandbox::Job>) -> wasmtime::Result<Vec<sandbox::Verdict>> {
        let sandbox = self.data.episode_services("the sandbox")?.sandbox;
        if jobs.len() > MAX_JOBS {
            let message =
                format!("the plugin submitted {} jobs in one call; the limit is {MAX_JOBS}", jobs.len());
            return Err(HostError(message).into());
        }
        let count = jobs.len();
        self.charge(jobs.iter().map(job_fuel).sum());
        let jobs = jobs.into_iter().map(to_job).collect();
        // Jobs have their own time limit, and may have to wait for those of other episodes.
        let _exemption = self.exempt_wait();
        let verdicts = match &self.data.call_log {
            Some(call_log) => call_log.execute(sandbox.as_ref(), jobs).await,
            None => sandbox.execute(jobs).await,
        };
        if verdicts.len() != count {
            let message = format!("the sandbox returned {} verdicts for {count} jobs", verdicts.len());
            return Err(HostError(message).into());
        }
        self.data.irreproducible |= verdicts.iter().any(|verdict| !verdict.reproducible);
        if let Some(failure) = machine_failure(&verdicts) {
            return Err(failure.into());
        }
        Ok(verdicts.into_iter().map(to_contract_verdict).collect())
    }
}

impl retrieval::Host for Guest<Context> {
    async fn retrieve(
        &mut self,
        corpus: Option<String>,
        query: String,
        k: u32,
    ) -> wasmtime::Result<Result<Vec<retrieval::Passage>, String>> {
        let corpora = self.data.episode_services("`retrieve`")?.corpora;
        if k > MAX_PASSAGES {
            let message =
                format!("the plugin asked for {k} passages in one call; the limit is {MAX_PASSAGES}");
            return Err(HostError(message).into());
        }
        if query.len() > MAX_QUERY {
            let message =
                format!("the plugin sent a query of {} bytes; the limit is {MAX_QUERY}", query.len());
            return Err(HostError(message).into());
        }
        self.charge(QUERY_FUEL + corpus.as_ref().map_or(0, String::len) as u64);
        // Servers have their own time limit.
        let _exemption = self.exempt_wait();
        let call_log = self.data.call_log.clone();
        let answer = match &call_log {
            Some(call_log) => call_log.retrieve(&corpora, corpus, query, k).await,
            None => call_log::search(&corpora, corpus.as_deref(), &query, k).await,
        };
        self.data.irreproducible |= !answer.reproducible;
        let passages = match answer.passages {
            Ok(passages) => passages,
            Err(reason) => return Ok(Err(reason)),
        };
        let bytes: usize = passages.iter().map(|passage| passage.id.len() + passage.text.len()).sum();
        if bytes > MAX_RETRIEVED {
            let message =
                format!("{} passages have {bytes} bytes; the limit is {MAX_RETRIEVED}", passages.len());
            return Err(HostError(message).into());
        }
        self.charge(bytes as u64);
        Ok(Ok(passages.into_iter().map(to_contract_passage).collect()))
    }
}

impl policies::Host for Guest<Context> {
    async fn ask(
        &mut self,
        policy: String,
        messages: Vec<policies::Message>,
        max_tokens: u32,
    ) -> wasmtime::Result<Result<String, String>> {
        let refuse =
            |reason: String| Err(HostError(format!("the plugin asked policy {policy}, {reason}")).into());
        let service = self.data.policies.clone().filter(|policies| policies.has(&policy));
        let Some(service) = service else {
            let plugin = &self.data.plugin;
            return refuse(format!(
                "which its rewards may do after `grant {{ policies = [{policy}] }}` in the block of plugin {plugin}, and no \
                 other item"
            ));
        };
        let bytes: usize = messages.iter().map(|message| message.text.len()).sum();
        let (most, largest) = MAX_QUESTION;
        if messages.len() > most || bytes > largest {
            return refuse(format!(
                "with {} messages of {bytes} bytes; the limits are {most} and {largest}",
                messages.len()
            ));
        }
        self.charge(QUESTION_FUEL + bytes as u64);
        let messages = messages.into_iter().map(to_question_message).collect();
        let question = Question { policy, messages, max_tokens: max_tokens.min(MAX_ANSWER_TOKENS) };
        // Models take their time, and answer in the order of a queue.
        let _exemption = self.exempt_wait();
        let call_log = self.data.call_log.clone();
        let answer = match &call_log {
            Some(call_log) => call_log.ask(service.as_ref(), &question).await,
            None => call_log::ask(service.as_ref(), &question).await,
        };
        self.data.irreproducible |= !answer.reproducible;
        Ok(answer.text)
    }
}

fn to_question_message(message: policies::Message) -> QuestionMessage {
    let role = match message.role {
        policies::Role::System => QuestionRole::System,
        policies::Role::User => QuestionRole::User,
        policies::Role::Assistant => QuestionRole::Assistant,
    };
    QuestionMessage { role, text: message.text }
}

fn to_contract_passage(passage: pl_types::Passage) -> retrieval::Passage {
    let pl_types::Passage { id, text, score } = passage;
    retrieval::Passage { id, text, score }
}

fn job_fuel(job: &sandbox::Job) -> u64 {
    let files: usize = job.files.iter().map(|file| file.path.len() + file.bytes.len()).sum();
    let bytes = (job.language.len() + job.source.len() + job.stdin.len() + files) as u64;
    JOB_FUEL + FILE_FUEL * job.files.len() as u64 + bytes
}

fn to_job(job: sandbox::Job) -> Job {
    let files =
        job.files.into_iter().map(|file| pl_sandbox::File { path: file.path, bytes: file.bytes }).collect();
    Job { language: job.language, source: job.source, stdin: job.stdin, files, ..Job::default() }
}

/// Returns the failure of a machine that has lost a worker. It is no verdict on a program: a plugin that got it would
/// score the machine.
fn machine_failure(verdicts: &[Verdict]) -> Option<MachineError> {
    let is_lost = |verdict: &&Verdict| verdict.ending == Ending::LostWorker && !verdict.reproducible;
    let lost = verdicts.iter().find(is_lost)?;
    let reason = lost.stderr.trim().trim_start_matches("sandbox: ");
    Some(MachineError(format!("the sandbox lost a worker: {reason}")))
}

fn to_contract_verdict(verdict: Verdict) -> sandbox::Verdict {
    let ending = match verdict.ending {
        Ending::Ok => sandbox::Ending::Ok,
        Ending::Error => sandbox::Ending::Error,
        Ending::Timeout => sandbox::Ending::Timeout,
        Ending::Memory => sandbox::Ending::Memory,
        Ending::OutputLimit => sandbox::Ending::OutputLimit,
        Ending::ProcessLimit => sandbox::Ending::ProcessLimit,
        Ending::LostWorker => sandbox::Ending::LostWorker,
    };
    sandbox::Verdict { ending, exit: verdict.exit, stdout: verdict.stdout, stderr: verdict.stderr }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_and_bytes_of_a_job_are_paid_for() {
        let file = sandbox::File { path: "data.csv".to_owned(), bytes: vec![0; 1000] };
        let job = sandbox::Job {
            language: "python".to_owned(),
            source: "x".repeat(100),
            stdin: "x".repeat(10_000),
            files: vec![file],
        };
        assert_eq!(job_fuel(&job), JOB_FUEL + FILE_FUEL + 6 + 100 + 10_000 + 8 + 1000);
    }

    #[test]
    fn a_worker_that_the_machine_lost_is_no_verdict_on_a_program() {
        let verdict =
            |ending, reproducible| Verdict::from_sandbox(ending, "sandbox: the pool is full\n", reproducible);
        let failure = |verdicts: &[Verdict]| machine_failure(verdicts).map(|failure| failure.to_string());
        let lost = failure(&[verdict(Ending::Ok, true), verdict(Ending::LostWorker, false)]).unwrap();
        assert_eq!(lost, "the sandbox lost a worker: the pool is full");
        // A slow program, and one that the sandbox refuses.
        assert_eq!(failure(&[verdict(Ending::Timeout, false), verdict(Ending::LostWorker, true)]), None);
    }
}
