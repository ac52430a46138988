//! A recording is held against what is done now: whatever differs is found, and named.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use pl_dsl::workflow::{Rollout, Target};
use pl_plugin::journal::{Event, Journal, Post, Request, Response};
use pl_plugin::{Completion, Outcome, Part, PromptRequest, Snapshot, Task, Turn};
use pl_rollout::{
    Agent, Agreement, Cast, Environment, Episode, Fault, NoModel, Plan, Player, Replayed, Trace, What, replay,
};
use pl_sandbox::{Job, Sandbox, Verdict};

use crate::common::{self, Action, Script, World, fail_first, line, plan, play, play_on_two};

const MODES: [Rollout; 2] = [Rollout::Flat, Rollout::Tree];

fn script() -> Script {
    Script { tells_copy: false, ..Script::default() }
}

fn cast(script: Script) -> Arc<Cast> {
    World::new(script).cast(2, line(2, &[&[0], &[1]], Target::Node(0)))
}

fn again(cast: &Cast, trace: &Trace) -> Replayed {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(replay(&Cast { generator: Arc::new(NoModel), ..cast.clone() }, trace))
}

/// What is said of the first difference.
fn difference(cast: &Cast, trace: &Trace) -> String {
    match again(cast, trace).agreement {
        Agreement::Differs(difference) => difference
            .show(|_, tokens| tokens.iter().map(|&token| char::from(token as u8)).collect::<String>()),
        other => panic!("{other:?}"),
    }
}

fn recorded(mode: Rollout) -> Trace {
    play(&cast(script()), &plan(mode, 1, 2)).unwrap().traces.remove(0)
}

#[test]
fn every_kind_of_entry_that_was_tampered_with_is_found() {
    for mode in MODES {
        let whole = recorded(mode);
        assert_eq!(again(&cast(script()), &whole).agreement, Agreement::Whole);
        let mut kinds = 0;
        for index in 0..whole.entries.len() {
            let mut trace = whole.clone();
            let expected = match &mut trace.entries[index].what {
                What::Asked { prompt, .. } => {
                    prompt[2] += 1;
                    "token 2 of the prompt differs"
                }
                What::Means(action) => {
                    action.push(' ');
                    "the action differs"
                }
                What::Outcome(outcome) => {
                    outcome.facts.insert("odd".to_owned(), "never".into());
                    "env.odd differs"
                }
                What::Scores(scores) => {
                    scores.local[0].reward += 0.125;
                    "the reward of agent"
                }
                What::Chosen(branch) => {
                    *branch += 1;
                    "the candidate that the tree goes on from differs"
                }
                // Another text means another action, or none.
                What::Said { text, .. } => {
                    text.insert(0, '1');
                    "the action differs"
                }
                // What plugins log is theirs to change.
                What::Did { events, .. } => {
                    events.clear();
                    assert_eq!(again(&cast(script()), &trace).agreement, Agreement::Whole);
                    continue;
                }
                What::Skipped | What::Fault { .. } => panic!("{:?}", trace.entries[index]),
            };
            kinds += 1;
            let said = difference(&cast(script()), &trace);
            assert!(said.contains(expected), "{mode:?}, entry {index}: {said}");
            assert!(said.starts_with("episode 3.0.0#0, task task:0, stop "), "{said}");
        }
        assert!(kinds > 12, "{mode:?}: {kinds}");
    }
}

#[test]
fn a_recording_that_is_too_short_or_too_long_is_found() {
    for mode in MODES {
        let whole = recorded(mode);
        let mut short = whole.clone();
        short.entries.pop();
        assert!(difference(&cast(script()), &short).contains("recorded  the episode is over"));
        let mut long = whole.clone();
        long.entries.push(whole.entries[1].clone());
        assert!(difference(&cast(script()), &long).contains("now       the episode is over"));
    }
}

#[test]
fn an_environment_that_does_otherwise_is_found_where_it_first_does() {
    for mode in MODES {
        let whole = recorded(mode);
        let other = Script {
            // Nothing is changed before the third step.
            apply: Arc::new(|state| Ok((state.did.len() == 3, false))),
            ..script()
        };
        let said = difference(&cast(other), &whole);
        assert!(said.contains("stop 2") && said.contains("`done` of the outcome differs"), "{said}");
        let trapping =
            fail_first(u32::MAX, "apply", |state: &common::State| state.did.len() == 2, (false, false));
        let said = difference(&cast(Script { apply: trapping, ..script() }), &whole);
        assert!(said.contains("stop 1") && said.contains("now       apply fails: it trapped"), "{said}");
    }
}

#[test]
fn an_attempt_that_failed_fails_again_at_the_same_place() {
    for mode in MODES {
        let parse =
            |text: &String| if text.starts_with('7') { Err(Fault::new("parse", "seven")) } else { Ok(()) };
        let fails = || Script { parse: Arc::new(parse), ..script() };
        let batch = play(&cast(fails()), &plan(mode, 6, 3)).unwrap();
        assert!(!batch.failures.is_empty());
        for trace in &batch.traces {
            let replayed = again(&cast(fails()), trace);
            assert_eq!(replayed.agreement, Agreement::Whole);
            let words = replayed.now.failure.map(|failure| failure.in_words());
            assert_eq!(words, trace.end.failure);
        }
        // Failures name the attempts that have them.
        for failure in &batch.failures {
            let of: Vec<&Trace> =
                batch.traces.iter().filter(|trace| failure.episode.names(&trace.place)).collect();
            assert_eq!(of.len(), 1);
            assert!(of[0].entries.iter().any(|entry| matches!(entry.what, What::Fault { .. })));
        }
    }
}

#[test]
fn what_a_clock_ended_is_compared_up_to_there() {
    for mode in MODES {
        let late = Fault { reproducible: false, ..Fault::new("apply", "out of time") };
        let calls = AtomicU32::new(0);
        let apply = Arc::new(move |_: &common::State| match calls.fetch_add(1, Ordering::Relaxed) {
            1 => Err(late.clone()),
            _ => Ok((false, false)),
        });
        let batch = play(&cast(Script { apply, ..script() }), &plan(mode, 1, 1)).unwrap();
        let first = &batch.traces[0];
        assert_eq!(again(&cast(script()), first).agreement, Agreement::UpToClock, "{mode:?}");
    }
}

/// An environment that has every joint action judged by a sandbox before it is applied.
struct Judging {
    inner: Arc<dyn Environment>,
    sandbox: Arc<Counting>,
    /// What the jobs begin with.
    lead: &'static str,
}

struct Judged {
    inner: Box<dyn Episode>,
    journal: Journal,
    sandbox: Arc<Counting>,
    lead: &'static str,
}

/// Each verdict is another one: only a recording can bring it back.
#[derive(Default)]
struct Counting(AtomicU32);

#[async_trait]
impl Sandbox for Counting {
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict> {
        let verdict = |_| {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            Verdict { stdout: number.to_string(), reproducible: true, ..Verdict::default() }
        };
        jobs.iter().map(verdict).collect()
    }
}

impl Judging {
    fn judged(&self, inner: Box<dyn Episode>, journal: &Journal) -> Box<dyn Episode> {
        let (sandbox, lead) = (Arc::clone(&self.sandbox), self.lead);
        Box::new(Judged { inner, journal: journal.clone(), sandbox, lead })
    }
}

#[async_trait]
impl Environment for Judging {
    async fn start(
        &self,
        task: &Task,
        seed: u64,
        stream: [u8; 32],
        journal: &Journal,
    ) -> Result<Box<dyn Episode>, Fault> {
        Ok(self.judged(self.inner.start(task, seed, stream, journal).await?, journal))
    }

    async fn restore(&self, snapshot: &Snapshot, journal: &Journal) -> Result<Box<dyn Episode>, Fault> {
        Ok(self.judged(self.inner.restore(snapshot, journal).await?, journal))
    }
}

#[async_trait]
impl Episode for Judged {
    async fn view(&mut self, agent: &str) -> Result<String, Fault> {
        self.inner.view(agent).await
    }

    async fn apply(&mut self, actions: &[Action]) -> Result<Outcome, Fault> {
        let source = format!("{}{actions:?}", self.lead);
        let verdicts =
            self.journal.execute(self.sandbox.as_ref(), vec![Job { source, ..Job::default() }]).await;
        let Some(verdict) = verdicts.first() else { return Err(Fault::new("apply", "no verdict")) };
        let mut outcome = self.inner.apply(actions).await?;
        outcome.facts.insert("number".to_owned(), verdict.stdout.clone().into());
        Ok(outcome)
    }

    async fn snapshot(&mut self) -> Result<Snapshot, Fault> {
        self.inner.snapshot().await
    }
}

#[test]
fn recorded_verdicts_are_given_again_and_nothing_runs() {
    for mode in MODES {
        let judging = |sandbox: &Arc<Counting>, lead| {
            let cast = World::with_jitter(script(), 3).cast(2, line(2, &[&[0], &[1]], Target::Node(0)));
            let inner = Arc::clone(&cast.environment);
            let environment = Arc::new(Judging { inner, sandbox: Arc::clone(sandbox), lead });
            Arc::new(Cast { environment, ..(*cast).clone() })
        };
        let sandbox = Arc::new(Counting::default());
        let batch = play_on_two(&judging(&sandbox, ""), &Plan { in_flight: 4, ..plan(mode, 3, 3) }).unwrap();
        let ran = sandbox.0.load(Ordering::Relaxed);
        assert!(ran >= 3 * 3 * 4);
        for trace in &batch.traces {
            assert_eq!(again(&judging(&sandbox, ""), trace).agreement, Agreement::Whole);
            let said = difference(&judging(&sandbox, "import os; "), trace);
            assert!(said.contains("what `apply` hands to the sandbox (by hash) differs"), "{said}");
        }
        assert_eq!(sandbox.0.load(Ordering::Relaxed), ran);

        // A call of the sandbox that the recording does not have.
        let mut trace = batch.traces[0].clone();
        for entry in &mut trace.entries {
            if let What::Did { events, .. } = &mut entry.what {
                events.retain(|event| !matches!(event, Event::Sandbox { .. }));
            }
        }
        let said = difference(&judging(&sandbox, ""), &trace);
        assert!(said.contains("now       `apply` hands jobs to the sandbox"), "{said}");
    }
}

/// An agent that asks a host before each of its answers and lets what it hears show in them.
struct Curious {
    inner: Arc<dyn Agent>,
    /// Requests that the host was ever asked. Each answer is another one: only a recording can bring it back.
    host: Arc<AtomicU32>,
    /// What the address ends with, and the body.
    asks: (&'static str, &'static str),
}

impl Curious {
    fn ask(&self, journal: &Journal) -> Result<u32, Fault> {
        let (path, body) = self.asks;
        let request = Request {
            method: "POST".to_owned(),
            uri: format!("http://localhost:1/{path}"),
            headers: Vec::new(),
            body: body.as_bytes().to_vec().into(),
        };
        let number = journal.sent(&request.method, &request.uri);
        let answer = journal.answer(number, &request).unwrap_or_else(|| {
            let heard = self.host.fetch_add(1, Ordering::Relaxed);
            Ok(Response { status: 200, headers: Vec::new(), body: heard.to_string().into() })
        });
        journal.answered(number, &request, &answer);
        let answer = answer.map_err(|failure| Fault::new("asking", failure))?;
        Ok(std::str::from_utf8(&answer.body).unwrap().parse().unwrap())
    }
}

#[async_trait]
impl Agent for Curious {
    async fn prompt(
        &self,
        view: &str,
        turn: &Turn,
        journal: &Journal,
    ) -> Result<Option<PromptRequest>, Fault> {
        let heard = self.ask(journal)?;
        let mut request = self.inner.prompt(view, turn, journal).await?;
        if let Some(message) = request.as_mut().and_then(|request| request.messages.first_mut()) {
            message.parts.insert(0, Part::Text(format!("I heard {heard}. ")));
        }
        Ok(request)
    }

    async fn parse(&self, view: &str, completion: &Completion, journal: &Journal) -> Result<String, Fault> {
        let heard = self.ask(journal)?;
        let action = self.inner.parse(view, completion, journal).await?;
        Ok(action.replacen('{', &format!("{{\"heard\": {heard}, "), 1))
    }
}

#[test]
fn recorded_answers_of_hosts_are_given_again_and_nobody_is_asked() {
    for mode in MODES {
        let curious = |host: &Arc<AtomicU32>, asks| {
            let cast = World::with_jitter(script(), 3).cast(2, line(2, &[&[0], &[1]], Target::Node(0)));
            let curious = |player: &Player| Player {
                agent: Arc::new(Curious { inner: Arc::clone(&player.agent), host: Arc::clone(host), asks }),
                ..player.clone()
            };
            let players = cast.players.iter().map(curious).collect();
            Arc::new(Cast { players, ..(*cast).clone() })
        };
        let host = Arc::new(AtomicU32::new(0));
        let usual = ("now", "");
        let batch = play_on_two(&curious(&host, usual), &Plan { in_flight: 4, ..plan(mode, 3, 3) }).unwrap();
        let asked = host.load(Ordering::Relaxed);
        assert!(asked >= 2 * 3 * 4);
        assert!(batch.episodes.iter().all(|episode| !episode.reproducible), "the world had a say in it");
        for trace in &batch.traces {
            // As it is written to disk.
            let trace: Trace = serde_json::from_str(&serde_json::to_string(trace).unwrap()).unwrap();
            assert_eq!(again(&curious(&host, usual), &trace).agreement, Agreement::Whole);
            let said = difference(&curious(&host, ("then", "")), &trace);
            assert!(said.contains("what `prompt` asks differs"), "{said}");
            assert!(said.contains("now       POST http://localhost:1/then"), "{said}");
            let said = difference(&curious(&host, ("now", "more")), &trace);
            let expected = "what `prompt` sends with POST http://localhost:1/now (by hash) differs";
            assert!(said.contains(expected), "{said}");
        }
        assert_eq!(host.load(Ordering::Relaxed), asked, "a replay asked the host");
    }
}
