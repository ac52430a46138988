//! A replay is compared with its recording: every difference is found and named.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use pl_dsl::workflow::{Rollout, Target};
use pl_plugin::call_log::{CallLog, Event, HttpRecorder, HttpRequest, HttpResponse};
use pl_plugin::{Completion, Outcome, Part, PromptRequest, Snapshot, Task, Turn};
use pl_rollout::{
    Agent, AgentRuntime, Agreement, DisabledGenerator, Environment, Episode, EpisodeSetup, EventKind, Fault,
    ReplayResult, RolloutPlan, Trace, replay,
};
use pl_sandbox::{Job, Sandbox, Verdict};

use crate::common::{self, Action, Script, World, fail_first, line, plan, play, play_on_two};

const MODES: [Rollout; 2] = [Rollout::Flat, Rollout::Tree];

fn script() -> Script {
    Script { names_copy: false, ..Script::default() }
}

fn setup(script: Script) -> Arc<EpisodeSetup> {
    World::new(script).setup(2, line(2, &[&[0], &[1]], Target::Node(0)))
}

fn replay_alone(setup: &EpisodeSetup, trace: &Trace) -> ReplayResult {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(replay(&EpisodeSetup { generator: Arc::new(DisabledGenerator), ..setup.clone() }, trace))
}

/// The rendering of the first difference.
fn difference(setup: &EpisodeSetup, trace: &Trace) -> String {
    match replay_alone(setup, trace).agreement {
        Agreement::Differs(difference) => difference
            .show(|_, tokens| tokens.iter().map(|&token| char::from(token as u8)).collect::<String>()),
        other => panic!("{other:?}"),
    }
}

fn recorded(mode: Rollout) -> Trace {
    play(&setup(script()), &plan(mode, 1, 2)).unwrap().traces.remove(0)
}

#[test]
fn every_kind_of_event_that_was_tampered_with_is_found() {
    for mode in MODES {
        let whole = recorded(mode);
        assert_eq!(replay_alone(&setup(script()), &whole).agreement, Agreement::Full);
        let mut kinds = 0;
        for index in 0..whole.events.len() {
            let mut trace = whole.clone();
            let expected = match &mut trace.events[index].kind {
                EventKind::Prompted { prompt, .. } => {
                    prompt[2] += 1;
                    "token 2 of the prompt differs"
                }
                EventKind::Action(action) => {
                    action.push(' ');
                    "the action differs"
                }
                EventKind::Outcome(outcome) => {
                    outcome.facts.insert("odd".to_owned(), "never".into());
                    "env.odd differs"
                }
                EventKind::Scores(scores) => {
                    scores.local[0].reward += 0.125;
                    "the reward of agent"
                }
                EventKind::Chosen(branch) => {
                    *branch += 1;
                    "the candidate that the tree continues from differs"
                }
                // Another text gives another action, or none.
                EventKind::Completion { text, .. } => {
                    text.insert(0, '1');
                    "the action differs"
                }
                // A plugin may change its log lines.
                EventKind::CallLog { events, .. } => {
                    events.clear();
                    assert_eq!(replay_alone(&setup(script()), &trace).agreement, Agreement::Full);
                    continue;
                }
                EventKind::Skipped
                | EventKind::Drawing(_)
                | EventKind::ToolResults(_)
                | EventKind::PromptTooLong { .. }
                | EventKind::Fault { .. } => {
                    panic!("{:?}", trace.events[index])
                }
            };
            kinds += 1;
            let shown = difference(&setup(script()), &trace);
            assert!(shown.contains(expected), "{mode:?}, event {index}: {shown}");
            assert!(shown.starts_with("episode 3.0.0#0, task task:0, node visit "), "{shown}");
        }
        assert!(kinds > 12, "{mode:?}: {kinds}");
    }
}

#[test]
fn drawings_are_recorded_at_the_start_and_after_each_step_and_change_nothing_else() {
    for mode in MODES {
        let plan = plan(mode, 1, 2);
        let plain = play(&setup(script()), &plan).unwrap();
        let drawing = EpisodeSetup { drawings: true, ..EpisodeSetup::clone(&setup(script())) };
        let batch = play(&Arc::new(drawing), &plan).unwrap();
        assert_eq!(batch.transitions, plain.transitions);
        let trace = &batch.traces[0];
        let is_drawing = |kind: &EventKind| matches!(kind, EventKind::Drawing(_));
        let Some(EventKind::Drawing(first)) = trace.events.first().map(|event| &event.kind) else { panic!() };
        assert_eq!(first, "<svg>0 steps</svg>");
        let mut steps = 0;
        for pair in trace.events.windows(3) {
            if let [_, scored, drawn] = pair
                && matches!(scored.kind, EventKind::Scores(_))
            {
                assert!(is_drawing(&drawn.kind) && drawn.position == scored.position, "{drawn:?}");
                steps += 1;
            }
        }
        assert!(steps > 2);
        let rest = trace.events.iter().filter(|event| !is_drawing(&event.kind));
        assert!(rest.eq(&plain.traces[0].events));
        // A replay draws nothing, and misses nothing.
        assert_eq!(replay_alone(&setup(script()), trace).agreement, Agreement::Full);
    }
}

#[test]
fn a_recording_that_is_too_short_or_too_long_is_found() {
    for mode in MODES {
        let whole = recorded(mode);
        let mut short = whole.clone();
        short.events.pop();
        assert!(difference(&setup(script()), &short).contains("recorded  the episode is over"));
        let mut long = whole.clone();
        long.events.push(whole.events[1].clone());
        assert!(difference(&setup(script()), &long).contains("now       the episode is over"));
    }
}

#[test]
fn an_environment_that_behaves_otherwise_is_found_at_the_first_difference() {
    for mode in MODES {
        let whole = recorded(mode);
        let other = Script {
            // Nothing changes before the third step.
            apply: Arc::new(|state| Ok((state.actions.len() == 3, false))),
            ..script()
        };
        let shown = difference(&setup(other), &whole);
        assert!(shown.contains("node visit 2") && shown.contains("`done` of the outcome differs"), "{shown}");
        let trapping =
            fail_first(u32::MAX, "apply", |state: &common::State| state.actions.len() == 2, (false, false));
        let shown = difference(&setup(Script { apply: trapping, ..script() }), &whole);
        assert!(
            shown.contains("node visit 1") && shown.contains("now       apply fails: it trapped"),
            "{shown}"
        );
    }
}

#[test]
fn an_attempt_that_failed_fails_again_at_the_same_place() {
    for mode in MODES {
        let parse =
            |text: &String| if text.starts_with('7') { Err(Fault::new("parse", "seven")) } else { Ok(()) };
        let fails = || Script { parse: Arc::new(parse), ..script() };
        let batch = play(&setup(fails()), &plan(mode, 6, 3)).unwrap();
        assert!(!batch.failures.is_empty());
        for trace in &batch.traces {
            let replayed = replay_alone(&setup(fails()), trace);
            assert_eq!(replayed.agreement, Agreement::Full);
            let failure = replayed.attempt.failure.map(|failure| failure.describe());
            assert_eq!(failure, trace.end.failure);
        }
        // Failures name the attempts that have them.
        for failure in &batch.failures {
            let matching: Vec<&Trace> =
                batch.traces.iter().filter(|trace| failure.episode.matches(&trace.key)).collect();
            assert_eq!(matching.len(), 1);
            assert!(matching[0].events.iter().any(|event| matches!(event.kind, EventKind::Fault { .. })));
        }
    }
}

#[test]
fn an_episode_that_a_clock_ended_is_compared_up_to_there() {
    for mode in MODES {
        let timeout = Fault { reproducible: false, ..Fault::new("apply", "out of time") };
        let calls = AtomicU32::new(0);
        let apply = Arc::new(move |_: &common::State| match calls.fetch_add(1, Ordering::Relaxed) {
            1 => Err(timeout.clone()),
            _ => Ok((false, false)),
        });
        let batch = play(&setup(Script { apply, ..script() }), &plan(mode, 1, 1)).unwrap();
        let first = &batch.traces[0];
        assert_eq!(replay_alone(&setup(script()), first).agreement, Agreement::UpToTimeout, "{mode:?}");
    }
}

/// An environment that sends every joint action to a sandbox before it applies it.
struct SandboxedEnvironment {
    inner: Arc<dyn Environment>,
    sandbox: Arc<CountingSandbox>,
    /// Prefix of the jobs' source.
    prefix: &'static str,
}

struct SandboxedEpisode {
    inner: Box<dyn Episode>,
    call_log: CallLog,
    sandbox: Arc<CountingSandbox>,
    prefix: &'static str,
}

/// A sandbox whose verdicts all differ: only a recording can reproduce them.
#[derive(Default)]
struct CountingSandbox(AtomicU32);

#[async_trait]
impl Sandbox for CountingSandbox {
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict> {
        let verdict = |_| {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            Verdict { stdout: number.to_string(), reproducible: true, ..Verdict::default() }
        };
        jobs.iter().map(verdict).collect()
    }
}

impl SandboxedEnvironment {
    fn sandboxed(&self, inner: Box<dyn Episode>, call_log: &CallLog) -> Box<dyn Episode> {
        let (sandbox, prefix) = (Arc::clone(&self.sandbox), self.prefix);
        Box::new(SandboxedEpisode { inner, call_log: call_log.clone(), sandbox, prefix })
    }
}

#[async_trait]
impl Environment for SandboxedEnvironment {
    async fn start(
        &self,
        task: &Task,
        seed: u64,
        stream: [u8; 32],
        call_log: &CallLog,
    ) -> Result<Box<dyn Episode>, Fault> {
        Ok(self.sandboxed(self.inner.start(task, seed, stream, call_log).await?, call_log))
    }

    async fn restore(&self, snapshot: &Snapshot, call_log: &CallLog) -> Result<Box<dyn Episode>, Fault> {
        Ok(self.sandboxed(self.inner.restore(snapshot, call_log).await?, call_log))
    }
}

#[async_trait]
impl Episode for SandboxedEpisode {
    async fn view(&mut self, agent: &str) -> Result<String, Fault> {
        self.inner.view(agent).await
    }

    async fn apply(&mut self, actions: &[Action]) -> Result<Outcome, Fault> {
        let source = format!("{}{actions:?}", self.prefix);
        let verdicts =
            self.call_log.execute(self.sandbox.as_ref(), vec![Job { source, ..Job::default() }]).await;
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
fn recorded_verdicts_are_returned_again_and_no_code_runs() {
    for mode in MODES {
        let sandboxed = |sandbox: &Arc<CountingSandbox>, prefix| {
            let setup = World::with_jitter(script(), 3).setup(2, line(2, &[&[0], &[1]], Target::Node(0)));
            let inner = Arc::clone(&setup.environment);
            let environment = Arc::new(SandboxedEnvironment { inner, sandbox: Arc::clone(sandbox), prefix });
            Arc::new(EpisodeSetup { environment, ..(*setup).clone() })
        };
        let sandbox = Arc::new(CountingSandbox::default());
        let batch =
            play_on_two(&sandboxed(&sandbox, ""), &RolloutPlan { in_flight: 4, ..plan(mode, 3, 3) }).unwrap();
        let ran = sandbox.0.load(Ordering::Relaxed);
        assert!(ran >= 3 * 3 * 4);
        for trace in &batch.traces {
            assert_eq!(replay_alone(&sandboxed(&sandbox, ""), trace).agreement, Agreement::Full);
            let shown = difference(&sandboxed(&sandbox, "import os; "), trace);
            assert!(
                shown.contains("the hash of the jobs that `apply` sends to the sandbox differs"),
                "{shown}"
            );
        }
        assert_eq!(sandbox.0.load(Ordering::Relaxed), ran);

        // A sandbox call that the recording does not have.
        let mut trace = batch.traces[0].clone();
        for event in &mut trace.events {
            if let EventKind::CallLog { events, .. } = &mut event.kind {
                events.retain(|event| !matches!(event, Event::Sandbox { .. }));
            }
        }
        let shown = difference(&sandboxed(&sandbox, ""), &trace);
        assert!(shown.contains("now       `apply` sends jobs to the sandbox"), "{shown}");
    }
}

/// An agent that makes an HTTP request in each call and includes the response in its result.
struct RequestingAgent {
    inner: Arc<dyn Agent>,
    /// Number of requests to the host. Each response differs: only a recording can reproduce it.
    host: Arc<AtomicU32>,
    /// Path and body of the requests.
    request: (&'static str, &'static str),
}

impl RequestingAgent {
    fn request(&self, call_log: &CallLog) -> Result<u32, Fault> {
        let (path, body) = self.request;
        let request = HttpRequest {
            method: "POST".to_owned(),
            uri: format!("http://localhost:1/{path}"),
            headers: Vec::new(),
            body: body.as_bytes().to_vec().into(),
        };
        let number = call_log.begin(&request.method, &request.uri);
        let answer = call_log.replay(number, &request).unwrap_or_else(|| {
            let count = self.host.fetch_add(1, Ordering::Relaxed);
            Ok(HttpResponse { status: 200, headers: Vec::new(), body: count.to_string().into() })
        });
        call_log.finish(number, &request, &answer);
        let answer = answer.map_err(|failure| Fault::new("request", failure))?;
        Ok(std::str::from_utf8(&answer.body).unwrap().parse().unwrap())
    }
}

#[async_trait]
impl Agent for RequestingAgent {
    async fn prompt(
        &self,
        view: &str,
        turn: &Turn,
        call_log: &CallLog,
    ) -> Result<Option<PromptRequest>, Fault> {
        let response = self.request(call_log)?;
        let mut request = self.inner.prompt(view, turn, call_log).await?;
        if let Some(message) = request.as_mut().and_then(|request| request.messages.first_mut()) {
            message.parts.insert(0, Part::Text(format!("The host returned {response}. ")));
        }
        Ok(request)
    }

    async fn parse(&self, view: &str, completion: &Completion, call_log: &CallLog) -> Result<String, Fault> {
        let response = self.request(call_log)?;
        let action = self.inner.parse(view, completion, call_log).await?;
        Ok(action.replacen('{', &format!("{{\"response\": {response}, "), 1))
    }
}

#[test]
fn recorded_http_responses_are_returned_again_and_no_request_is_sent() {
    for mode in MODES {
        let requesting = |host: &Arc<AtomicU32>, request| {
            let setup = World::with_jitter(script(), 3).setup(2, line(2, &[&[0], &[1]], Target::Node(0)));
            let requesting = |runtime: &AgentRuntime| AgentRuntime {
                agent: Arc::new(RequestingAgent {
                    inner: Arc::clone(&runtime.agent),
                    host: Arc::clone(host),
                    request,
                }),
                ..runtime.clone()
            };
            let agents = setup.agents.iter().map(requesting).collect();
            Arc::new(EpisodeSetup { agents, ..(*setup).clone() })
        };
        let host = Arc::new(AtomicU32::new(0));
        let usual = ("now?api_key=s3cret", "");
        let batch = play_on_two(&requesting(&host, usual), &RolloutPlan { in_flight: 4, ..plan(mode, 3, 3) })
            .unwrap();
        let requests = host.load(Ordering::Relaxed);
        assert!(requests >= 2 * 3 * 4);
        assert!(
            batch.episodes.iter().all(|episode| !episode.reproducible),
            "HTTP responses are not reproducible"
        );
        for trace in &batch.traces {
            // As written to disk.
            let trace: Trace = serde_json::from_str(&serde_json::to_string(trace).unwrap()).unwrap();
            assert_eq!(replay_alone(&requesting(&host, usual), &trace).agreement, Agreement::Full);
            let text = serde_json::to_string(&trace).unwrap();
            assert!(text.contains("now?api_key=REDACTED") && !text.contains("s3cret"), "{text}");
            // As an earlier version has recorded it.
            let with_key: Trace = serde_json::from_str(&text.replace("REDACTED", "s3cret")).unwrap();
            assert_eq!(replay_alone(&requesting(&host, usual), &with_key).agreement, Agreement::Full);
            // The hash is that of the whole address.
            let shown = difference(&requesting(&host, ("now?api_key=other", "")), &trace);
            assert!(shown.contains("the hash of the request"), "{shown}");
            let shown = difference(&requesting(&host, ("then", "")), &trace);
            assert!(shown.contains("the HTTP request of `prompt` differs"), "{shown}");
            assert!(shown.contains("now       POST http://localhost:1/then"), "{shown}");
            let shown = difference(&requesting(&host, ("now?api_key=s3cret", "more")), &trace);
            let expected =
                "the hash of the request POST http://localhost:1/now?api_key=REDACTED of `prompt` differs";
            assert!(shown.contains(expected), "{shown}");
        }
        assert_eq!(host.load(Ordering::Relaxed), requests, "a replay sent a request");
    }
}
