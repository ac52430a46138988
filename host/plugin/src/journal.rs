//! What a plugin does beside answering its calls: lines that it logs, what it prints, code that it has run, hosts that it
//! asks over HTTP.
//!
//! Whoever wants to know gives a handle a journal (`with_journal` of [`crate::Environment`], [`crate::Agent`],
//! [`crate::Reward`]) and takes the events out after each call, also after one that trapped. A journal that
//! [replays](Journal::replaying) answers with what was recorded: no code runs, and nobody is asked.
//!
//! What is logged and printed is bounded between two takes, so that a plugin that never stops talking costs the host
//! no memory. Verdicts and answers are always kept: a replay needs every one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pl_sandbox::{Ending, Job, Sandbox, Verdict};
use pl_types::PartHasher;
pub use pl_wasm::{HttpFailure, HttpRecorder, HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};

/// Most bytes of lines and output that are kept between two takes.
const MOST_BYTES: usize = 64 << 10;

/// Most lines and pieces of output that are kept between two takes.
const MOST_EVENTS: usize = 1000;

/// Something that a plugin did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It logged a line.
    Log {
        /// How much it matters.
        level: Level,
        /// The line.
        message: String,
    },
    /// It printed. What comes piece by piece is one event as long as nothing comes between.
    Output {
        /// Where.
        stream: Channel,
        /// Bytes that are not UTF-8 are replaced.
        text: String,
    },
    /// It had code run.
    Sandbox {
        /// BLAKE3 of the jobs, in hexadecimal.
        jobs: String,
        /// One per job. Fewer: a replay had none recorded.
        verdicts: Vec<Judged>,
    },
    /// It asked a host.
    Http {
        /// Method and address.
        request: String,
        /// BLAKE3 of the whole request, in hexadecimal. None: the guest was gone before it was whole.
        hash: Option<String>,
        /// What it was told. None: it did not wait.
        answer: Option<Result<HttpResponse, HttpFailure>>,
    },
    /// It logged or printed more than is kept.
    Cut {
        /// Lines and pieces of output left out, in whole or in part.
        events: u64,
        /// Their bytes.
        bytes: u64,
    },
}

/// What calls took, at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Fuel of one call.
    pub fuel: u64,
    /// Bytes of linear memory of the instance.
    pub memory: u64,
}

impl Spent {
    /// The larger of each.
    #[must_use]
    pub fn most(self, other: Self) -> Self {
        Self { fuel: self.fuel.max(other.fuel), memory: self.memory.max(other.memory) }
    }
}

/// How much a line of the log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// To the plugin's author.
    Debug,
    /// To whoever reads along.
    Info,
    /// To whoever runs it.
    Warn,
}

/// Where a plugin prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A verdict as plugins see it: nothing in it was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// How the job ended.
    pub ending: Ending,
    /// None where it was ended from outside.
    pub exit: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it printed there.
    pub stderr: String,
    /// False where a wall clock decided.
    pub reproducible: bool,
}

impl From<&Verdict> for Judged {
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

impl From<Judged> for Verdict {
    fn from(judged: Judged) -> Self {
        Self {
            ending: judged.ending,
            exit: judged.exit,
            stdout: judged.stdout,
            stderr: judged.stderr,
            reproducible: judged.reproducible,
            ..Self::default()
        }
    }
}

/// What a replay answers with.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// A call of the sandbox each.
    pub verdicts: VecDeque<Vec<Judged>>,
    /// A request over HTTP each.
    pub http: VecDeque<Option<Result<HttpResponse, HttpFailure>>>,
}

impl Answers {
    /// Those that were noted.
    pub fn extend<'e>(&mut self, events: impl IntoIterator<Item = &'e Event>) {
        for event in events {
            match event {
                Event::Sandbox { verdicts, .. } => self.verdicts.push_back(verdicts.clone()),
                Event::Http { answer, .. } => self.http.push_back(answer.clone()),
                Event::Log { .. } | Event::Output { .. } | Event::Cut { .. } => {}
            }
        }
    }
}

/// Where events are noted. Clones share one list.
#[derive(Debug, Clone, Default)]
pub struct Journal(Arc<Mutex<Notes>>);

#[derive(Debug, Default)]
struct Notes {
    events: Vec<Noted>,
    /// Lines and pieces of output in `events`, and their bytes.
    kept: (usize, usize),
    /// The same of what was left out.
    cut: (u64, u64),
    /// Of the calls since the last take.
    spent: Spent,
    /// Requests over HTTP that were sent, ever.
    sent: usize,
    /// What a replay answers with.
    recorded: Option<Answers>,
}

/// An event in the making: output comes in pieces that may end within a character.
#[derive(Debug)]
enum Noted {
    Event(Event),
    Output(Channel, Vec<u8>),
    Http(Exchange),
}

/// A request under way.
#[derive(Debug)]
struct Exchange {
    /// How many were sent before it.
    number: usize,
    request: String,
    hash: Option<String>,
    /// What a replay has for it.
    recorded: Option<Result<HttpResponse, HttpFailure>>,
    answer: Option<Result<HttpResponse, HttpFailure>>,
}

impl Journal {
    /// A journal under which the sandbox's calls and requests over HTTP get these answers, each kind in its order.
    /// Nothing runs, and nobody is asked.
    pub fn replaying(answers: Answers) -> Self {
        Self(Arc::new(Mutex::new(Notes { recorded: Some(answers), ..Notes::default() })))
    }

    /// Notes a line of the log.
    pub fn log(&self, level: Level, message: &str) {
        let mut notes = self.notes();
        let Some(room) = notes.room(message.len(), 1) else { return };
        let message = message[..message.floor_char_boundary(room)].to_owned();
        notes.events.push(Noted::Event(Event::Log { level, message }));
    }

    /// Notes what was printed.
    pub fn print(&self, channel: Channel, bytes: &[u8]) {
        let mut notes = self.notes();
        let goes_on = matches!(notes.events.last(), Some(Noted::Output(last, _)) if *last == channel);
        let Some(room) = notes.room(bytes.len(), usize::from(!goes_on)) else { return };
        let bytes = &bytes[..room];
        match notes.events.last_mut() {
            Some(Noted::Output(_, printed)) if goes_on => printed.extend_from_slice(bytes),
            _ => notes.events.push(Noted::Output(channel, bytes.to_vec())),
        }
    }

    /// Runs jobs at `place`, or answers as it was recorded, and notes the verdicts. What was never recorded has none.
    pub async fn execute(&self, place: &dyn Sandbox, jobs: Vec<Job>) -> Vec<Verdict> {
        let hash = hash(&jobs);
        let recorded =
            self.notes().recorded.as_mut().map(|answers| answers.verdicts.pop_front().unwrap_or_default());
        let verdicts = match recorded {
            Some(judged) => judged.into_iter().map(Verdict::from).collect(),
            None => place.execute(jobs).await,
        };
        let event = Event::Sandbox { jobs: hash, verdicts: verdicts.iter().map(Judged::from).collect() };
        self.notes().events.push(Noted::Event(event));
        verdicts
    }

    pub(crate) fn spend(&self, spent: Spent) {
        let mut notes = self.notes();
        notes.spent = notes.spent.most(spent);
    }

    /// The most that a call took since this was last asked.
    pub fn take_spent(&self) -> Spent {
        std::mem::take(&mut self.notes().spent)
    }

    /// Everything noted since the last take, in order.
    pub fn take(&self) -> Vec<Event> {
        let mut notes = self.notes();
        let cut = std::mem::take(&mut notes.cut);
        notes.kept = (0, 0);
        let mut events: Vec<Event> = std::mem::take(&mut notes.events)
            .into_iter()
            .map(|noted| match noted {
                Noted::Event(event) => event,
                Noted::Output(stream, bytes) => {
                    Event::Output { stream, text: String::from_utf8_lossy(&bytes).into_owned() }
                }
                Noted::Http(Exchange { request, hash, answer, .. }) => Event::Http { request, hash, answer },
            })
            .collect();
        if cut.0 > 0 {
            events.push(Event::Cut { events: cut.0, bytes: cut.1 });
        }
        events
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpRecorder for Journal {
    fn begin(&self, method: &str, uri: &str) -> usize {
        let mut notes = self.notes();
        let number = notes.sent;
        notes.sent += 1;
        let recorded = notes
            .recorded
            .as_mut()
            .map(|answers| answers.http.pop_front().flatten().unwrap_or(Err(HttpFailure::Unrecorded)));
        let request = format!("{method} {uri}");
        notes.events.push(Noted::Http(Exchange { number, request, hash: None, recorded, answer: None }));
        number
    }

    fn replay(&self, number: usize, _: &HttpRequest) -> Option<Result<HttpResponse, HttpFailure>> {
        self.notes().exchange(number)?.recorded.take()
    }

    fn finish(&self, number: usize, request: &HttpRequest, answer: &Result<HttpResponse, HttpFailure>) {
        // Where the call is over, nobody waits for it any more.
        if let Some(exchange) = self.notes().exchange(number) {
            exchange.hash = Some(hash_of(request));
            exchange.answer = Some(answer.clone());
        }
    }
}

impl Notes {
    /// A request that was sent since the last take.
    fn exchange(&mut self, number: usize) -> Option<&mut Exchange> {
        self.events.iter_mut().find_map(|noted| match noted {
            Noted::Http(exchange) if exchange.number == number => Some(exchange),
            _ => None,
        })
    }

    /// How many of `bytes` may be kept, which begin `events` new events; what may not counts as cut. None: nothing.
    fn room(&mut self, bytes: usize, events: usize) -> Option<usize> {
        let (noted, held) = self.kept;
        let full = noted + events > MOST_EVENTS;
        let room = if full { 0 } else { bytes.min(MOST_BYTES - held) };
        let left_out = full || (room == 0 && bytes > 0);
        if left_out || room < bytes {
            self.cut.0 += 1;
            self.cut.1 += (bytes - room) as u64;
        }
        if left_out {
            return None;
        }
        self.kept = (noted + events, held + room);
        Some(room)
    }
}

/// Content hash of a batch of jobs: equal for equal jobs.
fn hash(jobs: &[Job]) -> String {
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

/// Content hash of a request: equal for equal requests.
fn hash_of(request: &HttpRequest) -> String {
    let HttpRequest { method, uri, headers, body } = request;
    let hasher = PartHasher::content().text(method).text(uri).bytes(body);
    let hasher = headers.iter().fold(hasher, |hasher, (name, value)| hasher.text(name).text(value));
    hasher.hex()
}

#[cfg(test)]
mod tests {
    use pl_sandbox::DeniedSandbox;

    use super::*;

    #[test]
    fn output_in_pieces_is_one_event_even_where_a_piece_ends_within_a_character() {
        let journal = Journal::default();
        let crab = "🦀".as_bytes();
        journal.print(Channel::Stdout, b"a ");
        journal.print(Channel::Stdout, &crab[..1]);
        journal.print(Channel::Stdout, &crab[1..]);
        journal.log(Level::Warn, "");
        journal.print(Channel::Stderr, b"\xff");
        let output = |stream, text: &str| Event::Output { stream, text: text.to_owned() };
        let expected = [
            output(Channel::Stdout, "a 🦀"),
            Event::Log { level: Level::Warn, message: String::new() },
            output(Channel::Stderr, "\u{fffd}"),
        ];
        assert_eq!(journal.clone().take(), expected);
        assert_eq!(journal.take(), []);
    }

    #[test]
    fn what_is_logged_without_end_is_cut_and_counted() {
        let journal = Journal::default();
        (0..5000).for_each(|_| journal.log(Level::Info, "ten bytes!"));
        let events = journal.take();
        assert_eq!(events.len(), MOST_EVENTS + 1);
        assert_eq!(events.last(), Some(&Event::Cut { events: 4000, bytes: 40_000 }));

        journal.log(Level::Info, &"ö".repeat(MOST_BYTES));
        journal.print(Channel::Stdout, b"more");
        let events = journal.take();
        let [Event::Log { message, .. }, cut] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(message.len(), MOST_BYTES);
        assert_eq!(cut, &Event::Cut { events: 2, bytes: MOST_BYTES as u64 + 4 });
    }

    #[test]
    fn a_replay_answers_in_order_and_runs_nothing() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let judged = |stdout: &str| Judged {
            ending: Ending::Ok,
            exit: Some(0),
            stdout: stdout.to_owned(),
            stderr: String::new(),
            reproducible: true,
        };
        let jobs = |source: &str| vec![Job { source: source.to_owned(), ..Job::default() }];
        let verdicts = [vec![judged("1")], vec![judged("2")]].into();
        let journal = Journal::replaying(Answers { verdicts, ..Answers::default() });
        let said: Vec<Vec<Verdict>> = ["a", "b", "a"]
            .map(|source| runtime.block_on(journal.execute(&DeniedSandbox(String::new()), jobs(source))))
            .into();
        assert_eq!(said[0][0].stdout, "1");
        assert_eq!(said[1][0].stdout, "2");
        assert!(said[2].is_empty());
        let hashes: Vec<String> = journal
            .take()
            .into_iter()
            .map(|event| match event {
                Event::Sandbox { jobs, .. } => jobs,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_ne!(hashes[0], hashes[1]);
        assert_eq!(hashes[0], hashes[2]);
    }
}
