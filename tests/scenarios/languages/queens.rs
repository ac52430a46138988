//! N Queens in Python (`plugins/sdk/examples/python/queens`) beside those of the planning domain, which are in Rust: equal
//! tasks, prompts, actions, outcomes and scores, also if an agent of one acts in the environment of the other.

use std::path::PathBuf;

use pl_plugin::{Agent, Completion, DrawingForm, Environment, Plugin, Reward, Task, Turn};
use pl_toolchain::Language;
use pl_types::Finish;
use serde_json::{Map, Value, json};

use super::{guests, stream};
use crate::support::{pl_host, repository, succeed};

/// Completions of two agents that act side by side, by turn. `FIRST` stands for a board with all missing queens in the
/// first column, `GOLD` for the oracle's answer.
type Completions = &'static [[&'static str; 2]];

/// Plans in several forms, invalid ones, and answers after the ending.
const FORMS: Completions = &[
    ["no idea", "#### [0, 0, 0, 0]"],
    ["FIRST", "not [0, 1] but\n#### FIRST, so"],
    ["In short:\n1 3 0 2, or\n1 3 0 3.", "#### ['1', '3',\n '0', \"3\",]"],
    ["\\boxed{[]}", "#### [1, 3, 0, -1] [1, 3, 0, 2]"],
    ["GOLD", "GOLD"],
    ["#### [1, 3, 0, 2]", "FIRST"],
];

/// A solution at once, which earns the bonus.
const AT_ONCE: Completions = &[["GOLD", "FIRST"]];

/// Boards up to the horizon of a board of 4 x 4 cells, and after it.
const TO_THE_HORIZON: Completions = &[["FIRST", "FIRST"]; 9];

/// The environment of one plugin with the agents and the reward of the same or another.
struct Domain {
    queens: Environment,
    planners: [Agent; 2],
    score: Reward,
}

impl Domain {
    fn new(environment: &Plugin, agents: &Plugin) -> Self {
        let planner =
            |settings: Value| Agent::new(agents, "planner", settings.as_object().unwrap().clone()).unwrap();
        Self {
            queens: Environment::new(environment, "queens", Map::new(), guests::services()).unwrap(),
            planners: [planner(json!({})), planner(json!({"examples": 0, "instruction": ""}))],
            score: Reward::new(agents, "score", Map::new()).unwrap(),
        }
    }

    /// Plays an episode whose every turn starts from a snapshot. Returns what the host receives in each turn.
    async fn play(&self, task: &Task, completions: Completions) -> Vec<Value> {
        let mut episode = self.queens.start(task, 1, stream(1)).await.unwrap();
        let mut turns = Vec::new();
        for (visit, texts) in (0..).zip(completions) {
            episode = self.queens.restore(&episode.snapshot().await.unwrap()).await.unwrap();
            let oracle = episode.oracle("a").await.unwrap().map(|action| parsed(&action));
            let drawing = episode.draw(DrawingForm::Text).await.unwrap();
            let gold = oracle.as_ref().map_or("", |action| action["answer"].as_str().unwrap());
            let (mut seen, mut actions) = (vec![json!([oracle, drawing])], Vec::new());
            for ((agent, planner), text) in ["a", "b"].into_iter().zip(&self.planners).zip(texts) {
                let view = episode.view(agent).await.unwrap();
                let turn = Turn { agent: agent.to_owned(), visit };
                let request = planner.prompt(&view, &turn).await.unwrap();
                let text = text.replace("FIRST", &first_column(task)).replace("GOLD", gold);
                let action = planner.parse(&view, &Completion::new(text, Finish::Stop)).await.unwrap();
                let mut view = parsed(&view);
                // Only the planning domain runs programs.
                view.as_object_mut().unwrap().remove("program");
                seen.push(json!([view, request, parsed(&action)]));
                actions.push((agent.to_owned(), action));
            }
            let outcome = episode.apply(actions.clone()).await.unwrap();
            let scores = self.score.score(task, &actions, &outcome).await.unwrap();
            let mut facts = outcome.facts;
            facts.remove("proposed");
            let evidence = parsed(&outcome.evidence);
            seen.push(json!([outcome.done, outcome.truncated, facts, evidence, scores]));
            turns.push(Value::Array(seen));
        }
        turns
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Returns a plan that puts all missing queens of a task into the first column.
fn first_column(task: &Task) -> String {
    let record = parsed(&task.data);
    let columns = record["queens"].as_array().unwrap().iter().map(|column| column.as_u64().unwrap_or(0));
    json!(columns.collect::<Vec<_>>()).to_string()
}

/// Returns the component in Python, or `None` if its tools are missing.
fn component() -> Option<PathBuf> {
    guests::build(Language::Python, &repository().join("plugins/sdk/examples/python/queens"), "queens")
}

#[tokio::test(flavor = "multi_thread")]
async fn queens_in_python_are_those_of_the_planning_domain() {
    let Some(component) = component() else { return };
    let python = guests::load_plugin(&component, "queens").await;
    let planning = repository().join("target/release/plugins/planning.wasm");
    let rust = guests::load_plugin(&planning, "planning").await;
    let expected = Domain::new(&rust, &rust);
    let others = [
        ("Python", Domain::new(&python, &python)),
        ("the agent and reward of Rust in Python", Domain::new(&python, &rust)),
        ("the agent and reward of Python in Rust", Domain::new(&rust, &python)),
    ];
    let small = Task { id: "small".to_owned(), data: r#"{"queens": [1, null, -1, null]}"#.to_owned() };
    let mut episodes = vec![(small.clone(), FORMS), (small.clone(), AT_ONCE), (small, TO_THE_HORIZON)];
    for level in 0..=7 {
        for split in ["train", "validation", "test"] {
            let mut tasks = expected.queens.tasks(split, 3, 2, level).await.unwrap();
            let found = others[0].1.queens.tasks(split, 3, 2, level).await.unwrap();
            assert_eq!(found, tasks, "level {level} of {split}");
            if split == "train" {
                episodes.extend(tasks.pop().map(|task| (task, FORMS)));
            }
        }
    }
    for (task, completions) in episodes {
        let expected = expected.play(&task, completions).await;
        for (what, domain) in &others {
            let found = domain.play(&task, completions).await;
            for (turn, (expected, found)) in expected.iter().zip(&found).enumerate() {
                assert_eq!(expected, found, "{what}: turn {turn} of {task:?}");
            }
            assert_eq!(expected.len(), found.len(), "{what}: {task:?}");
        }
    }
}

#[test]
fn the_workflow_with_queens_passes_check_and_the_plugin_keeps_the_contract() {
    let Some(component) = component() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (plugin, workflow) = (folder.path().join("queens.wasm"), folder.path().join("queens.mas"));
    std::fs::copy(component, &plugin).unwrap();
    std::fs::copy(repository().join("plugins/sdk/examples/python/queens/queens.mas"), &workflow).unwrap();
    // As for the workflow that mixes all languages: a check is too short to compile an interpreter.
    succeed(pl_host().args(["plugin", "describe"]).arg(&plugin));
    succeed(pl_host().arg("check").arg(&workflow));
    succeed(pl_host().args(["fmt", "--check"]).arg(&workflow));
    succeed(pl_host().args(["plugin", "test", "--level", "7"]).arg(&plugin));
}
