//! What plugins may ask of the host.

use std::sync::Arc;

use pl_sandbox::{Ending, Job, Sandbox, Verdict};
use pl_types::seed;
use pl_wasm::{Captured, Clock, Guest, HostError, HttpRecorder, Seed, Store};

use crate::Stream;
use crate::bindings::{log, random, retrieval, sandbox, types};
use crate::journal::{self, Channel, Journal, Spent};

/// Most jobs of one call: more than a test suite has cases, fewer than would fill the host's memory.
const MOST_JOBS: usize = 256;

/// Most characters of a log line that are kept.
const LONGEST_LINE: usize = 4096;

/// Fuel that a log line costs beside its bytes: what formatting and writing it takes. A call with the default fuel
/// may write ten thousand lines.
const LINE: u64 = 100_000;

/// Fuel that a job for the sandbox costs: enough that a call ends which hands over jobs for ever, little enough for
/// [`MOST_JOBS`] of them under the default fuel.
const JOB: u64 = 3_000_000;

/// What the host offers to environments. Agents and rewards get a sandbox that refuses.
#[derive(Clone)]
pub struct Services {
    /// Where environments run untrusted code.
    pub sandbox: Arc<dyn Sandbox>,
}

/// What a plugin's store holds.
pub(crate) struct Context {
    pub plugin: Arc<str>,
    pub item: Arc<str>,
    pub sandbox: Option<Arc<dyn Sandbox>>,
    pub stream: Stream,
    /// The function that is called.
    pub function: &'static str,
    /// Turns of its episode that are over.
    pub turns: u32,
    /// A wall clock decided a verdict that the plugin has seen.
    pub irreproducible: bool,
    /// Where what it does is noted.
    pub journal: Option<Journal>,
    /// What it logged last as a warning in this call.
    pub warned: String,
}

/// To be called when a call begins: puts WASI's clock and randomness to where they stand then, in an instance that has
/// served before and in a fresh one alike, and has its requests over HTTP noted. Each turn of an episode is later than
/// the one before by as long as a call may take; what is drawn follows from the episode's stream, the turn and the
/// function. The clock itself goes by looks: how much fuel a guest uses depends on what its allocator has done before.
pub(crate) fn begin(store: &mut Store<Context>, function: &'static str) {
    let guest = store.data_mut();
    guest.data.function = function;
    if guest.may_use_http() {
        let post = guest.data.journal.clone().map(|journal| Arc::new(journal) as Arc<dyn HttpRecorder>);
        guest.set_http_recorder(post);
    }
    let now = guest.longest_call().saturating_mul(guest.data.turns);
    guest.rewind(Clock::PerRead(now), Seed::Derived(wasi_seed));
}

fn wasi_seed(Context { stream, turns, function, .. }: &Context) -> [u8; 32] {
    seed::wasi(&stream.mark().key, *turns, function)
}

/// Most characters of a plugin's last words in an error.
const LAST_WORDS: usize = 2000;

/// To be called when a call has ended, in whatever way: notes what it took and printed. Returns its last warning (of a
/// panic, say) and its stderr.
pub(crate) fn settle(store: &mut Store<Context>) -> (String, Captured) {
    let guest = store.data_mut();
    let (stdout, stderr) = guest.take_output();
    if let Some(journal) = &guest.data.journal {
        journal.spend(Spent { fuel: guest.fuel_used(), memory: guest.memory_held() });
        for (channel, captured) in [(Channel::Stdout, &stdout), (Channel::Stderr, &stderr)] {
            if !captured.bytes.is_empty() {
                journal.print(channel, &captured.bytes);
            }
        }
    }
    guest.data.irreproducible |= guest.used_http();
    (std::mem::take(&mut guest.data.warned), stderr)
}

/// What a plugin said last, for an error: its last warning and the end of its stderr.
pub(crate) fn said_last((warned, stderr): (String, Captured)) -> String {
    let said = format!("{warned}\n{}", String::from_utf8_lossy(&stderr.bytes));
    let said = said.trim();
    let skipped = said.chars().count().saturating_sub(LAST_WORDS);
    said.chars().skip(skipped).collect()
}

impl types::Host for Guest<Context> {}

impl log::Host for Guest<Context> {
    fn write(&mut self, level: log::Level, message: String) {
        self.charge(LINE + message.len() as u64);
        let Context { plugin, item, journal, .. } = &self.data;
        let line = shorten(&message);
        let noted = match level {
            log::Level::Debug => journal::Level::Debug,
            log::Level::Info => journal::Level::Info,
            log::Level::Warn => journal::Level::Warn,
        };
        if let Some(journal) = journal {
            journal.log(noted, line);
        }
        match level {
            log::Level::Debug => tracing::debug!(target: "plugin", %plugin, %item, "{line}"),
            log::Level::Info => tracing::info!(target: "plugin", %plugin, %item, "{line}"),
            log::Level::Warn => {
                tracing::warn!(target: "plugin", %plugin, %item, "{line}");
                self.data.warned = line.to_owned();
            }
        }
    }
}

fn shorten(message: &str) -> &str {
    match message.char_indices().nth(LONGEST_LINE) {
        Some((end, _)) => &message[..end],
        None => message,
    }
}

impl random::Host for Guest<Context> {
    fn next(&mut self) -> u64 {
        self.data.stream.draw()
    }
}

impl sandbox::Host for Guest<Context> {
    async fn execute(&mut self, jobs: Vec<sandbox::Job>) -> wasmtime::Result<Vec<sandbox::Verdict>> {
        let Some(place) = self.data.sandbox.clone() else {
            let words = "it called the sandbox, which only an environment's episode may do";
            return Err(HostError(words.to_owned()).into());
        };
        if jobs.len() > MOST_JOBS {
            let words =
                format!("it handed {} jobs to the sandbox at once; {MOST_JOBS} are the most", jobs.len());
            return Err(HostError(words).into());
        }
        let count = jobs.len();
        self.charge(JOB * count as u64);
        let jobs = jobs.into_iter().map(job).collect();
        let verdicts = match &self.data.journal {
            Some(journal) => journal.execute(place.as_ref(), jobs).await,
            None => place.execute(jobs).await,
        };
        if verdicts.len() != count {
            let words = format!("the sandbox gave {} verdicts on {count} jobs", verdicts.len());
            return Err(HostError(words).into());
        }
        self.data.irreproducible |= verdicts.iter().any(|verdict| !verdict.reproducible);
        Ok(verdicts.into_iter().map(verdict).collect())
    }
}

impl retrieval::Host for Guest<Context> {
    fn retrieve(&mut self, _query: String, _k: u32) -> Result<Vec<retrieval::Passage>, String> {
        Err("no corpus is configured".to_owned())
    }
}

fn job(job: sandbox::Job) -> Job {
    let files =
        job.files.into_iter().map(|file| pl_sandbox::File { path: file.path, bytes: file.bytes }).collect();
    Job { language: job.language, source: job.source, stdin: job.stdin, files, ..Job::default() }
}

fn verdict(verdict: Verdict) -> sandbox::Verdict {
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
