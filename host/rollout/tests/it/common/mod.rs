//! A scripted setup: an environment, agents, a reward and a model that keep their state in memory, follow a
//! test's script, and log their calls.
//!
//! The environment remembers every action and shows all of them in its views; the model's tokens, log-probs
//! and digit depend on the seed of the completion alone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use pl_dsl::workflow::{Condition, Edge, LongPrompt, Node, Rollout, Target, Turns};
use pl_plugin::call_log::{CallLog, Level};
use pl_plugin::{
    AgentScore, DrawingForm, Message, Outcome, Part, PromptRequest, RandomStream, Role, Scores, Snapshot,
    Task, Tool, ToolCall, Turn,
};
use pl_rollout::{
    Agent, AgentRuntime, Environment, Episode, EpisodeSetup, Error, Fault, PromptEncoder, Reward,
    RolloutBatch, RolloutPlan, play_batch,
};
use pl_types::{Completion, Finish, Generate, GenerateError, Group, Phase, Request, Sampling, Transition};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::yield_now;

pub type Action = (String, String);

/// State of the environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub task: String,
    /// One number per step, drawn from the episode's random stream.
    pub drawn: Vec<u64>,
    /// Joint actions in order.
    pub actions: Vec<Vec<Action>>,
}

impl State {
    /// The number in an agent's last action.
    pub fn last(&self, agent: usize) -> Option<u64> {
        let joint = self.actions.last()?;
        joint.iter().find(|(name, _)| *name == agent_name(agent)).map(|(_, action)| digit(action))
    }
}

/// Evidence for the reward: the state after the step, and the copy that it was played on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    pub copy: u32,
    pub state: State,
}

/// A call to a copy of the environment or to the reward.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Applied { copy: u32, before: State, actions: Vec<Action> },
    Scored { actions: Vec<Action>, evidence: Evidence },
}

/// A decision of a script.
type Rule<In, Out> = Arc<dyn Fn(&In) -> Out + Send + Sync>;

/// The decisions of a test.
#[derive(Clone)]
pub struct Script {
    pub start: Rule<Task, Result<(), Fault>>,
    /// `done` and `truncated`, by the state after the actions.
    pub apply: Rule<State, Result<(bool, bool), Fault>>,
    /// True if the agent skips the turn.
    pub skip: Rule<Turn, bool>,
    /// Fault by the text of the completion.
    pub parse: Rule<String, Result<(), Fault>>,
    /// Tools that every agent offers to the model.
    pub tools: Vec<Tool>,
    /// Results of tool calls.
    pub call_tools: Rule<Vec<ToolCall>, Result<Option<Vec<String>>, Fault>>,
    /// True if the evidence names the copy that was played on; it then differs from one batch to the next.
    pub names_copy: bool,
    /// True if a wall clock decides something in this function of the environment (`start`, `view`, `apply`,
    /// `snapshot`).
    pub uses_clock: Rule<&'static str, bool>,
    /// Team part, by the state after the step. Each agent's local part is a tenth of its number.
    pub team: Rule<State, f64>,
}

impl Default for Script {
    /// Nothing fails or ends, no agent skips, and the team earns the sum of the last joint action.
    fn default() -> Script {
        Script {
            start: Arc::new(|_| Ok(())),
            apply: Arc::new(|_| Ok((false, false))),
            skip: Arc::new(|_| false),
            parse: Arc::new(|_| Ok(())),
            tools: Vec::new(),
            call_tools: Arc::new(|_| Ok(None)),
            names_copy: true,
            uses_clock: Arc::new(|_| false),
            team: Arc::new(|state| {
                let last = state.actions.last().map_or(&[][..], Vec::as_slice);
                last.iter().map(|(_, action)| digit(action) as f64).sum()
            }),
        }
    }
}

/// The scripted components, with a log of their calls.
pub struct World {
    script: Script,
    copies: AtomicU32,
    pub events: Mutex<Vec<Event>>,
    /// Every completion, by its seed.
    pub completions: Mutex<HashMap<[u8; 32], Completion>>,
    /// The requests for them.
    pub requests: Mutex<Vec<Request>>,
    /// Varies the time of each completion; 0 for none.
    jitter: u8,
}

struct Running {
    world: Arc<World>,
    number: u32,
    state: State,
    stream: RandomStream,
    reproducible: bool,
}

pub fn agent_name(agent: usize) -> String {
    format!("agent{agent}")
}

/// The number that an action stands for.
pub fn digit(action: &str) -> u64 {
    serde_json::from_str::<serde_json::Value>(action).unwrap()["number"].as_u64().unwrap()
}

/// The state that a prompt shows.
pub fn shown_state(prompt: &[u32]) -> State {
    let bytes: Vec<u8> = prompt.iter().map(|&token| token as u8).collect();
    let text = String::from_utf8(bytes).unwrap();
    serde_json::from_str(text.split_once('\n').unwrap().1).unwrap()
}

impl World {
    pub fn new(script: Script) -> Arc<World> {
        World::with_jitter(script, 0)
    }

    pub fn with_jitter(script: Script, jitter: u8) -> Arc<World> {
        Arc::new(World {
            script,
            copies: AtomicU32::new(0),
            events: Mutex::default(),
            completions: Mutex::default(),
            requests: Mutex::default(),
            jitter,
        })
    }

    pub fn setup(self: &Arc<World>, agents: usize, turns: Turns) -> Arc<EpisodeSetup> {
        let runtime = |index| AgentRuntime {
            name: agent_name(index),
            number: index as u32,
            agent: Arc::clone(self) as Arc<dyn Agent>,
            encoder: Arc::new(Bytes { context: None }),
            policy: index,
            sampling: Sampling::with_temperature(0.5 + index as f64),
            max_tokens: 8,
            stop: Vec::new(),
            long_prompt: LongPrompt::End,
            tool_rounds: 3,
            bootstraps: false,
        };
        Arc::new(EpisodeSetup {
            scenario: None,
            design: None,
            environment: Arc::new(Shared(Arc::clone(self))),
            agents: (0..agents).map(runtime).collect(),
            reward: Arc::clone(self) as Arc<dyn Reward>,
            team_weight: 1.0,
            local_weight: 0.5,
            scores_end: false,
            drawings: false,
            fault_penalty: None,
            turns,
            generator: Arc::clone(self) as Arc<dyn Generate>,
            observer: None,
        })
    }

    /// The tokens of every completion.
    pub fn completion_tokens(&self) -> HashSet<Vec<u32>> {
        self.completions.lock().unwrap().values().map(|completion| completion.tokens.clone()).collect()
    }

    fn copy(self: &Arc<World>, state: State, stream: RandomStream, reproducible: bool) -> Box<dyn Episode> {
        let number = self.copies.fetch_add(1, Ordering::Relaxed);
        Box::new(Running { world: Arc::clone(self), number, state, stream, reproducible })
    }
}

/// The world as an environment: copies keep it alive.
struct Shared(Arc<World>);

#[async_trait]
impl Environment for Shared {
    async fn start(
        &self,
        task: &Task,
        _seed: u64,
        stream: [u8; 32],
        _call_log: &CallLog,
    ) -> Result<Box<dyn Episode>, Fault> {
        (self.0.script.start)(task)?;
        let state = State { task: task.id.clone(), drawn: Vec::new(), actions: Vec::new() };
        Ok(self.0.copy(state, RandomStream::new(stream), !(self.0.script.uses_clock)(&"start")))
    }

    async fn restore(&self, snapshot: &Snapshot, _call_log: &CallLog) -> Result<Box<dyn Episode>, Fault> {
        let state = serde_json::from_slice(&snapshot.bytes).unwrap();
        // Like a plugin's copy: the flag is not part of a snapshot.
        Ok(self.0.copy(state, RandomStream::from_position(&snapshot.stream), true))
    }
}

impl Running {
    fn use_clock(&mut self, function: &'static str) {
        self.reproducible &= !(self.world.script.uses_clock)(&function);
    }
}

#[async_trait]
impl Episode for Running {
    async fn view(&mut self, _agent: &str) -> Result<String, Fault> {
        self.use_clock("view");
        Ok(serde_json::to_string(&self.state).unwrap())
    }

    async fn apply(&mut self, actions: &[Action]) -> Result<Outcome, Fault> {
        self.use_clock("apply");
        let before = self.state.clone();
        self.state.actions.push(actions.to_vec());
        self.state.drawn.push(self.stream.next_u64());
        let applied = Event::Applied { copy: self.number, before, actions: actions.to_vec() };
        self.world.events.lock().unwrap().push(applied);
        let (done, truncated) = (self.world.script.apply)(&self.state)?;
        let odd = actions.iter().map(|(_, action)| digit(action)).sum::<u64>() % 2 == 1;
        let copy = if self.world.script.names_copy { self.number } else { 0 };
        let evidence = Evidence { copy, state: self.state.clone() };
        Ok(Outcome {
            done,
            truncated,
            facts: json!({ "odd": odd }).as_object().cloned().unwrap(),
            evidence: serde_json::to_string(&evidence).unwrap(),
        })
    }

    async fn draw(&mut self, form: DrawingForm) -> Result<Option<String>, Fault> {
        let steps = self.state.actions.len();
        Ok(Some(match form {
            DrawingForm::Svg => format!("<svg>{steps} steps</svg>"),
            DrawingForm::Text => format!("{steps} steps"),
        }))
    }

    async fn snapshot(&mut self) -> Result<Snapshot, Fault> {
        self.use_clock("snapshot");
        Ok(Snapshot {
            bytes: serde_json::to_vec(&self.state).unwrap().into(),
            stream: self.stream.position(),
            turns: 0,
        })
    }

    fn reproducible(&self) -> bool {
        self.reproducible
    }
}

#[async_trait]
impl Agent for World {
    async fn prompt(
        &self,
        view: &str,
        turn: &Turn,
        call_log: &CallLog,
    ) -> Result<Option<PromptRequest>, Fault> {
        call_log.log(Level::Info, &format!("prompt of visit {}", turn.visit));
        if (self.script.skip)(turn) {
            return Ok(None);
        }
        let parts = vec![Part::Text(format!("{} {}\n{view}", turn.agent, turn.visit))];
        Ok(Some(PromptRequest {
            messages: vec![Message { role: Role::User, parts }],
            tools: self.script.tools.clone(),
            stop: vec!["\n".to_owned()],
        }))
    }

    async fn call_tools(
        &self,
        _view: &str,
        calls: &[ToolCall],
        call_log: &CallLog,
    ) -> Result<Option<Vec<String>>, Fault> {
        call_log.log(Level::Info, &format!("{} tool calls", calls.len()));
        (self.script.call_tools)(&calls.to_vec())
    }

    async fn parse(
        &self,
        _view: &str,
        completion: &pl_plugin::Completion,
        _: &CallLog,
    ) -> Result<String, Fault> {
        (self.script.parse)(&completion.text)?;
        let number: u64 = completion.text.split(' ').next().unwrap().parse().unwrap();
        Ok(json!({ "number": number }).to_string())
    }
}

#[async_trait]
impl Reward for World {
    async fn score(
        &self,
        _task: &Task,
        actions: &[Action],
        outcome: &Outcome,
        _: &CallLog,
    ) -> Result<Scores, Fault> {
        let evidence: Evidence = serde_json::from_str(&outcome.evidence).unwrap();
        let team = (self.script.team)(&evidence.state);
        let scored = Event::Scored { actions: actions.to_vec(), evidence };
        self.events.lock().unwrap().push(scored);
        let local = actions.iter().map(|(agent, action)| AgentScore {
            agent: agent.clone(),
            reward: digit(action) as f64 / 10.0,
            success: digit(action) > 4,
        });
        Ok(Scores { team, local: local.collect(), success: team > 4.0 })
    }
}

/// An encoder with a token per byte, of the messages and then of the tools' names. Even numbers are tool calls.
pub struct Bytes {
    pub context: Option<usize>,
}

impl PromptEncoder for Bytes {
    fn encode(&self, _: usize, messages: &[Message], tools: &[Tool]) -> Result<Vec<u32>, Fault> {
        let text = messages.iter().flat_map(|message| &message.parts).map(|part| match part {
            Part::Text(text) => text.as_str(),
            other => panic!("{other:?}"),
        });
        let tools = tools.iter().map(|tool| tool.name.as_str());
        Ok(text.chain(tools).flat_map(str::bytes).map(u32::from).collect())
    }

    fn tool_calls(&self, _: usize, text: &str) -> Vec<ToolCall> {
        let number: u64 = text.split(' ').next().unwrap().parse().unwrap();
        let call = || ToolCall { name: "look".to_owned(), arguments: json!({ "at": number }).to_string() };
        (number.is_multiple_of(2)).then(call).into_iter().collect()
    }

    fn context(&self, _: usize) -> Option<usize> {
        self.context
    }
}

#[async_trait]
impl Generate for World {
    async fn generate(&self, request: Request) -> Result<Vec<Completion>, GenerateError> {
        let completion = |seed: &[u8; 32]| {
            // All of the seed, so that no two completions are equal.
            let tokens = seed.chunks(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
            Completion {
                tokens: tokens.collect(),
                logprobs: seed.chunks(4).map(|four| -f32::from(four[0]) / 7.0 - f32::MIN_POSITIVE).collect(),
                text: format!("{} ζ🦀", seed[0] % 10),
                support: None,
                values: None,
                top: Vec::new(),
                finish: Finish::Stop,
                version: request.policy as u64 + 40,
                version_changes: Vec::new(),
            }
        };
        let completions: Vec<Completion> = request.seeds.iter().map(completion).collect();
        let wait = request.seeds.iter().fold(self.jitter, |sum, seed| sum.wrapping_mul(31) ^ seed[1]) % 24;
        self.completions.lock().unwrap().extend(request.seeds.iter().copied().zip(completions.clone()));
        self.requests.lock().unwrap().push(request);
        if self.jitter > 0 {
            for _ in 0..wait {
                yield_now().await;
            }
        }
        Ok(completions)
    }
}

fn edge(to: Target) -> Edge {
    Edge { to, when: None }
}

/// A chain of nodes, the last of which leads to `then`.
pub fn line(max: u32, nodes: &[&[usize]], then: Target) -> Turns {
    let next = |index: usize| if index + 1 < nodes.len() { Target::Node(index + 1) } else { then };
    let node = |(index, agents): (usize, &&[usize])| Node {
        agents: agents.to_vec(),
        edges: vec![edge(next(index))],
    };
    Turns { max, start: vec![edge(Target::Node(0))], nodes: nodes.iter().enumerate().map(node).collect() }
}

/// An edge that is taken if the sum of the numbers of the last joint action is odd.
pub fn when_odd(to: Target) -> Edge {
    Edge { to, when: Some(Condition::Fact("odd".to_owned())) }
}

pub fn plan(mode: Rollout, tasks: u32, samples: u32) -> RolloutPlan {
    let task = |n| Arc::new(Task { id: format!("task:{n}"), data: "{}".to_owned() });
    RolloutPlan {
        first_task: 0,
        seed: 7,
        phase: Phase::Train,
        step: 3,
        tasks: (0..tasks).map(task).collect(),
        mode,
        samples,
        first_sample: 0,
        in_flight: 1,
        versions: vec![40, 41, 42, 43].into(),
    }
}

/// Plays on one thread.
pub fn play(setup: &Arc<EpisodeSetup>, plan: &RolloutPlan) -> Result<RolloutBatch, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(play_batch(setup.clone(), plan, |_| {}))?.with_episodes(plan.step)
}

/// Plays on two threads.
pub fn play_on_two(setup: &Arc<EpisodeSetup>, plan: &RolloutPlan) -> Result<RolloutBatch, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(play_batch(setup.clone(), plan, |_| {}))?.with_episodes(plan.step)
}

pub fn groups(transitions: &[Transition]) -> BTreeMap<Group, Vec<&Transition>> {
    let mut groups: BTreeMap<Group, Vec<&Transition>> = BTreeMap::new();
    for transition in transitions {
        groups.entry(transition.group.clone()).or_default().push(transition);
    }
    groups
}

/// A rule that fails the first `count` times that `when` holds, and returns `otherwise` after that.
pub fn fail_first<In, Out: Clone + Send + Sync + 'static>(
    count: u32,
    stage: &'static str,
    when: impl Fn(&In) -> bool + Send + Sync + 'static,
    otherwise: Out,
) -> Rule<In, Result<Out, Fault>> {
    let failed = AtomicU32::new(0);
    Arc::new(move |input| {
        if when(input) && failed.fetch_add(1, Ordering::Relaxed) < count {
            return Err(Fault::new(stage, "it trapped"));
        }
        Ok(otherwise.clone())
    })
}
