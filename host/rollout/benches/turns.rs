//! Turns per second with a model that completes at once: the maths domain, the planning games, and the code domain with a
//! sandbox that answers at once, under the whole interpreter; the interpreter alone with components that do nothing. Chat
//! template and tokenizer are left out.

#![allow(clippy::expect_used, reason = "a benchmark that does not start has nothing to report")]

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use divan::Bencher;
use divan::counter::ItemsCount;
use pl_dsl::workflow::{Edge, LongPrompt, Node, Rollout, Target, Turns};
use pl_plugin::call_log::CallLog;
use pl_plugin::{
    AgentScore, Corpora, Message, Outcome, Part, Plugin, PluginSpec, PromptRequest, RandomStream, Role,
    Scores, Services, Snapshot, Task, Tool, Turn,
};
use pl_rollout::{
    Agent, AgentRuntime, Environment, Episode, EpisodeSetup, Fault, PromptEncoder, Reward, RolloutPlan,
    play_batch,
};
use pl_sandbox::{DeniedSandbox, Job, Sandbox, Verdict};
use pl_types::{Completion, Finish, Generate, GenerateError, Phase, Request, Sampling};
use pl_wasm::{Engine, EngineConfig};
use serde_json::{Map, json};
use tokio::runtime::Runtime;

/// Turns of one agent in each episode.
const TURNS: u32 = 3;
const TASKS: u32 = 64;
const SAMPLES: u32 = 4;

fn main() {
    divan::main();
}

/// A runtime with two workers, as the target assumes.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// A model that returns a fixed completion at once.
struct FixedCompletion(&'static str);

const ANSWER: &str = "Six boxes of two are \\boxed{12}.";

/// A program to a coder, a test to a tester.
const PROGRAM_AND_TEST: &str = "```python\ndef add():\n    return sum(map(int, input().split()))\nprint(add())\n```\n\
                                **Test Input:**\n```\n5 6\n```\n**Test Output:**\n```\n11\n```";

#[async_trait]
impl Generate for FixedCompletion {
    async fn generate(&self, request: Request) -> Result<Vec<Completion>, GenerateError> {
        let completion = |_: &[u8; 32]| Completion {
            tokens: (0..24).collect(),
            logprobs: vec![-0.5; 24],
            support: None,
            values: None,
            top: Vec::new(),
            text: self.0.to_owned(),
            finish: Finish::Stop,
            version: 1,
            version_changes: Vec::new(),
        };
        Ok(request.seeds.iter().map(completion).collect())
    }
}

/// An encoder that returns the lengths of the parts instead of tokens.
struct LengthEncoder;

impl PromptEncoder for LengthEncoder {
    fn encode(&self, _: usize, messages: &[Message], _: &[Tool]) -> Result<Vec<u32>, Fault> {
        let length = messages.iter().flat_map(|message| &message.parts).map(|part| match part {
            Part::Text(text) => text.len() as u32,
            Part::Image { bytes, .. } | Part::Data { bytes, .. } => bytes.len() as u32,
        });
        Ok(length.collect())
    }
}

/// An environment, an agent and a reward that do nothing.
struct Idle;

struct IdleEpisode;

fn idle_snapshot() -> Snapshot {
    Snapshot { bytes: Arc::from(&b"idle"[..]), stream: RandomStream::new([0; 32]).position(), turns: 0 }
}

#[async_trait]
impl Environment for Idle {
    async fn start(&self, _: &Task, _: u64, _: [u8; 32], _: &CallLog) -> Result<Box<dyn Episode>, Fault> {
        Ok(Box::new(IdleEpisode))
    }

    async fn restore(&self, _: &Snapshot, _: &CallLog) -> Result<Box<dyn Episode>, Fault> {
        Ok(Box::new(IdleEpisode))
    }
}

#[async_trait]
impl Episode for IdleEpisode {
    async fn view(&mut self, _: &str) -> Result<String, Fault> {
        Ok("{}".to_owned())
    }

    async fn apply(&mut self, _: &[(String, String)]) -> Result<Outcome, Fault> {
        Ok(Outcome { done: false, truncated: false, facts: Map::new(), evidence: "{}".to_owned() })
    }

    async fn snapshot(&mut self) -> Result<Snapshot, Fault> {
        Ok(idle_snapshot())
    }
}

#[async_trait]
impl Agent for Idle {
    async fn prompt(&self, _: &str, _: &Turn, _: &CallLog) -> Result<Option<PromptRequest>, Fault> {
        let messages = vec![Message { role: Role::User, parts: vec![Part::Text("What now?".to_owned())] }];
        Ok(Some(PromptRequest { messages, tools: Vec::new(), stop: Vec::new() }))
    }

    async fn parse(&self, _: &str, _: &pl_plugin::Completion, _: &CallLog) -> Result<String, Fault> {
        Ok("{}".to_owned())
    }
}

#[async_trait]
impl Reward for Idle {
    async fn score(
        &self,
        _: &Task,
        actions: &[(String, String)],
        _: &Outcome,
        _: &CallLog,
    ) -> Result<Scores, Fault> {
        let own =
            |(agent, _): &(String, String)| AgentScore { agent: agent.clone(), reward: 1.0, success: true };
        Ok(Scores { team: 1.0, local: actions.iter().map(own).collect(), success: true })
    }
}

fn setup(
    environment: Arc<dyn Environment>,
    agents: Vec<(&str, Arc<dyn Agent>)>,
    reward: Arc<dyn Reward>,
    completion: &'static str,
) -> Arc<EpisodeSetup> {
    let count = agents.len();
    let runtime = |(number, (name, agent)): (usize, (&str, Arc<dyn Agent>))| AgentRuntime {
        name: name.to_owned(),
        number: number as u32,
        agent,
        encoder: Arc::new(LengthEncoder),
        policy: 0,
        sampling: Sampling::default(),
        max_tokens: 64,
        stop: Vec::new(),
        long_prompt: LongPrompt::End,
        tool_rounds: 0,
        bootstraps: false,
    };
    // Each agent's node leads to the next one's.
    let next = |node: usize| vec![Edge { to: Target::Node(node % count), when: None }];
    let nodes = (0..count).map(|agent| Node { agents: vec![agent], edges: next(agent + 1) }).collect();
    Arc::new(EpisodeSetup {
        scenario: None,
        design: None,
        environment,
        agents: agents.into_iter().enumerate().map(runtime).collect(),
        reward,
        team_weight: 1.0,
        local_weight: 1.0,
        scores_end: false,
        drawings: false,
        fault_penalty: None,
        turns: Turns { max: TURNS, start: next(0), nodes },
        generator: Arc::new(FixedCompletion(completion)),
        observer: None,
    })
}

/// Compiles a plugin of this workspace.
fn load(runtime: &Runtime, name: &str, component: &str) -> Plugin {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins");
    let bytes = std::fs::read(folder.join(component)).expect("`cargo xtask setup` builds it");
    let config = EngineConfig::plugins().cache_dir(env!("CARGO_TARGET_TMPDIR"));
    let engine = Engine::new(config).expect("an engine");
    runtime.block_on(Plugin::load(&engine, PluginSpec::new(name), &bytes)).expect("the plugin")
}

/// Services for domains that run no code.
fn services() -> Services {
    Services {
        sandbox: Arc::new(DeniedSandbox("benchmarks run no code".to_owned())),
        corpora: Corpora::default(),
    }
}

/// The maths domain, compiled, with its first tasks.
struct Maths {
    environment: pl_plugin::Environment,
    agent: pl_plugin::Agent,
    reward: pl_plugin::Reward,
    tasks: Vec<Arc<Task>>,
}

impl Maths {
    fn load(runtime: &Runtime) -> Maths {
        let plugin = load(runtime, "maths", "math.wasm");
        let environment =
            pl_plugin::Environment::new(&plugin, "problems", Map::new(), services()).expect("problems");
        let tasks = runtime.block_on(environment.tasks("train", 0, TASKS, 2)).expect("tasks");
        Maths {
            environment,
            agent: pl_plugin::Agent::new(&plugin, "reasoner", Map::new()).expect("reasoner"),
            reward: pl_plugin::Reward::new(&plugin, "score", Map::new()).expect("score"),
            tasks: tasks.into_iter().map(Arc::new).collect(),
        }
    }

    fn setup(&self) -> Arc<EpisodeSetup> {
        let agent: Arc<dyn Agent> = Arc::new(self.agent.clone());
        let environment = Arc::new(self.environment.clone());
        setup(environment, vec![("reason", agent)], Arc::new(self.reward.clone()), ANSWER)
    }
}

fn plan(mode: Rollout, tasks: Vec<Arc<Task>>) -> RolloutPlan {
    RolloutPlan {
        first_task: 0,
        seed: 1,
        phase: Phase::Train,
        step: 0,
        tasks,
        mode,
        samples: SAMPLES,
        first_sample: 0,
        in_flight: 16,
        versions: vec![1].into(),
    }
}

/// Measures a batch. Flat and tree have the same number of completions.
fn bench_batch(bencher: Bencher<'_, '_>, runtime: &Runtime, setup: &Arc<EpisodeSetup>, plan: &RolloutPlan) {
    let count = plan.tasks.len() * (SAMPLES * TURNS) as usize * setup.agents.len();
    bench_turns(bencher, runtime, setup, plan, count);
}

/// Measures a batch of `count` turns.
fn bench_turns(
    bencher: Bencher<'_, '_>,
    runtime: &Runtime,
    setup: &Arc<EpisodeSetup>,
    plan: &RolloutPlan,
    count: usize,
) {
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        let batch = runtime.block_on(play_batch(setup.clone(), plan, |_| {})).expect("a batch");
        assert_eq!((batch.transitions.len(), batch.failures.len()), (count, 0));
    });
}

#[divan::bench(sample_count = 20)]
fn maths_flat(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    let maths = Maths::load(&runtime);
    bench_batch(bencher, &runtime, &maths.setup(), &plan(Rollout::Flat, maths.tasks.clone()));
}

#[divan::bench(sample_count = 20)]
fn maths_tree(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    let maths = Maths::load(&runtime);
    bench_batch(bencher, &runtime, &maths.setup(), &plan(Rollout::Tree, maths.tasks.clone()));
}

/// A game of the planning domain.
#[derive(Debug, Clone, Copy)]
enum Game {
    PlanPath,
    Sokoban,
    Sudoku,
    Queens,
    Blocksworld,
}

impl Game {
    /// Returns the name of the environment, and a completion with a plan that solves few puzzles.
    fn environment_and_answer(self) -> (&'static str, &'static str) {
        match self {
            Game::PlanPath => ("plan_path", "#### [\"U\", \"R\", \"D\", \"L\"]"),
            Game::Sokoban => ("sokoban", "#### [\"U\", \"R\", \"D\", \"L\"]"),
            Game::Sudoku => ("sudoku", "#### [[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]]"),
            Game::Queens => ("queens", "#### [0, 4, 7, 5, 2, 6, 1, 3]"),
            Game::Blocksworld => ("blocksworld", "#### [{\"move\": [\"A\", \"table\"]}]"),
        }
    }
}

/// A planner alone on a game's puzzles of level 2.
fn planner(runtime: &Runtime, game: Game) -> (Arc<EpisodeSetup>, Vec<Arc<Task>>) {
    let plugin = load(runtime, "planning", "planning.wasm");
    let (name, answer) = game.environment_and_answer();
    let environment = pl_plugin::Environment::new(&plugin, name, Map::new(), services()).expect("a game");
    let tasks = runtime.block_on(environment.tasks("train", 0, TASKS, 2)).expect("tasks");
    let agent: Arc<dyn Agent> =
        Arc::new(pl_plugin::Agent::new(&plugin, "planner", Map::new()).expect("planner"));
    let reward = pl_plugin::Reward::new(&plugin, "score", Map::new()).expect("score");
    let setup = setup(Arc::new(environment), vec![("plan", agent)], Arc::new(reward), answer);
    (setup, tasks.into_iter().map(Arc::new).collect())
}

#[divan::bench(
    args = [Game::PlanPath, Game::Sokoban, Game::Sudoku, Game::Queens, Game::Blocksworld],
    sample_count = 20
)]
fn planning_flat(bencher: Bencher<'_, '_>, game: Game) {
    let runtime = runtime();
    let (setup, tasks) = planner(&runtime, game);
    let plan = plan(Rollout::Flat, tasks);
    // A puzzle that the plan solves takes fewer turns.
    let batch = runtime.block_on(play_batch(setup.clone(), &plan, |_| {})).expect("a batch");
    bench_turns(bencher, &runtime, &setup, &plan, batch.transitions.len());
}

/// A sandbox whose programs all print the same.
struct FixedSandbox;

#[async_trait]
impl Sandbox for FixedSandbox {
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict> {
        jobs.iter().map(|_| Verdict { stdout: "11\n".to_owned(), ..Verdict::default() }).collect()
    }
}

/// A coder and a tester who solve a contest's problems with ten hidden tests each. What Python takes is left out.
fn code_team(runtime: &Runtime) -> (Arc<EpisodeSetup>, Vec<Arc<Task>>) {
    let plugin = load(runtime, "code", "code.wasm");
    let services = Services { sandbox: Arc::new(FixedSandbox), corpora: Corpora::default() };
    let environment =
        pl_plugin::Environment::new(&plugin, "problems", Map::new(), services).expect("problems");
    let agent = |name: &'static str| -> (&'static str, Arc<dyn Agent>) {
        (name, Arc::new(pl_plugin::Agent::new(&plugin, name, Map::new()).expect("an agent")))
    };
    let reward = pl_plugin::Reward::new(&plugin, "score", Map::new()).expect("score");
    let agents = vec![agent("coder"), agent("tester")];
    let setup = setup(Arc::new(environment), agents, Arc::new(reward), PROGRAM_AND_TEST);
    let record = json!({
        "problem": "Add two numbers.", "solution": "print(11)",
        "tests": {"inputs": vec!["4 7"; 10], "outputs": vec!["11"; 10]},
    });
    let task = |n| Arc::new(Task { id: format!("task:{n}"), data: record.to_string() });
    (setup, (0..TASKS).map(task).collect())
}

#[divan::bench(args = [Rollout::Flat, Rollout::Tree], sample_count = 20)]
fn code(bencher: Bencher<'_, '_>, mode: Rollout) {
    let runtime = runtime();
    let (setup, tasks) = code_team(&runtime);
    bench_batch(bencher, &runtime, &setup, &plan(mode, tasks));
}

/// The host's own share: everything except the components.
#[divan::bench(args = [Rollout::Flat, Rollout::Tree], sample_count = 20)]
fn host_alone(bencher: Bencher<'_, '_>, mode: Rollout) {
    let task = |n| Arc::new(Task { id: format!("task:{n}"), data: "{}".to_owned() });
    let agent: Arc<dyn Agent> = Arc::new(Idle);
    let setup = setup(Arc::new(Idle), vec![("reason", agent)], Arc::new(Idle), ANSWER);
    bench_batch(bencher, &runtime(), &setup, &plan(mode, (0..TASKS).map(task).collect()));
}

/// The calls of one turn of the maths domain, on one thread.
mod calls {
    use super::*;

    /// The inputs of the calls of a first turn.
    struct Fixture {
        runtime: Runtime,
        maths: Maths,
        view: String,
        actions: Vec<(String, String)>,
        outcome: Outcome,
    }

    fn completion() -> pl_plugin::Completion {
        pl_plugin::Completion::new("Six boxes of two are \\boxed{12}.", pl_types::Finish::Stop)
    }

    fn turn() -> Turn {
        Turn { agent: "reason".to_owned(), visit: 0 }
    }

    impl Fixture {
        fn new() -> Fixture {
            let runtime = runtime();
            let maths = Maths::load(&runtime);
            let (view, actions, outcome) = runtime.block_on(async {
                let mut episode = maths.start().await;
                let view = episode.view("reason").await.expect("a view");
                let action = maths.agent.parse(&view, &completion()).await.expect("an action");
                let actions = vec![("reason".to_owned(), action)];
                let outcome = episode.apply(actions.clone()).await.expect("an outcome");
                (view, actions, outcome)
            });
            Fixture { runtime, maths, view, actions, outcome }
        }
    }

    impl Maths {
        async fn start(&self) -> pl_plugin::Episode {
            self.environment.start(&self.tasks[0], 0, RandomStream::new([0; 32])).await.expect("an episode")
        }
    }

    #[divan::bench]
    fn start(bencher: Bencher<'_, '_>) {
        let fixture = Fixture::new();
        bencher.bench_local(|| fixture.runtime.block_on(async { drop(fixture.maths.start().await) }));
    }

    #[divan::bench]
    fn view(bencher: Bencher<'_, '_>) {
        let fixture = Fixture::new();
        let mut episode = fixture.runtime.block_on(fixture.maths.start());
        bencher.bench_local(|| fixture.runtime.block_on(episode.view("reason")).expect("a view"));
    }

    #[divan::bench]
    fn prompt(bencher: Bencher<'_, '_>) {
        let (fixture, turn) = (Fixture::new(), turn());
        let agent = &fixture.maths.agent;
        bencher
            .bench_local(|| fixture.runtime.block_on(agent.prompt(&fixture.view, &turn)).expect("a request"));
    }

    #[divan::bench]
    fn parse(bencher: Bencher<'_, '_>) {
        let (fixture, completion) = (Fixture::new(), completion());
        let agent = &fixture.maths.agent;
        bencher.bench_local(|| {
            fixture.runtime.block_on(agent.parse(&fixture.view, &completion)).expect("an action")
        });
    }

    /// The first step of an episode; each input is its own copy.
    #[divan::bench]
    fn apply(bencher: Bencher<'_, '_>) {
        let fixture = Fixture::new();
        bencher
            .with_inputs(|| (fixture.runtime.block_on(fixture.maths.start()), fixture.actions.clone()))
            .bench_local_values(|(mut episode, actions)| {
                fixture.runtime.block_on(episode.apply(actions)).expect("an outcome");
                episode
            });
    }

    #[divan::bench]
    fn score(bencher: Bencher<'_, '_>) {
        let fixture = Fixture::new();
        let (reward, task) = (&fixture.maths.reward, &fixture.maths.tasks[0]);
        bencher.bench_local(|| {
            fixture.runtime.block_on(reward.score(task, &fixture.actions, &fixture.outcome)).expect("scores")
        });
    }
}
