//! The whole chain on the maths domain, with real Python: view, prompt, parse, apply, score.

use std::sync::Arc;

use pl_plugin::{
    Agent, Completion, Corpora, Environment, PluginSpec, RandomStream, Reward, Role, Services, Task, Turn,
};
use pl_sandbox::{PythonWorkers, SandboxLimits};
use pl_types::Finish;
use pl_wasm::{Engine, EngineConfig};
use serde_json::{Map, json};

use crate::common::{self, built, load};

fn python() -> Services {
    let engine = Engine::new(EngineConfig::workers().cache_dir(pl_testing::compile_cache())).unwrap();
    let workers = PythonWorkers::new(&engine, &built("python.wasm.zst"), SandboxLimits::default()).unwrap();
    Services { sandbox: Arc::new(workers), corpora: Corpora::default() }
}

#[tokio::test]
async fn a_tool_and_a_reasoner_solve_a_problem() {
    let plugin = load(&built("math.wasm"), PluginSpec::new("maths")).await;
    let environment = Environment::new(&plugin, "problems", Map::new(), python()).unwrap();
    let tool = Agent::new(&plugin, "tool", Map::new()).unwrap();
    let reasoner = Agent::new(&plugin, "reasoner", Map::new()).unwrap();
    let reward = Reward::new(&plugin, "score", Map::new()).unwrap();
    let record = json!({"question": "What is 6 times 7?", "answer": "6 * 7 = 42\n#### 42"}).to_string();
    let task = Task { id: "one".to_owned(), data: record };

    let mut episode = environment.start(&task, 0, RandomStream::from_parts(&[b"test"])).await.unwrap();
    let view = episode.view("coder").await.unwrap();
    assert!(!view.contains("42"), "the gold answer is in the view: {view}");
    let turn = Turn { agent: "coder".to_owned(), visit: 0 };
    let request = tool.prompt(&view, &turn).await.unwrap().unwrap();
    assert_eq!(request.messages.last().unwrap().role, Role::User);
    let program = Completion::new("```python\nfrom sympy import *\nprint(Integer(6) * 7)\n```", Finish::Stop);
    let ran = vec![("coder".to_owned(), tool.parse(&view, &program).await.unwrap())];
    let before = episode.snapshot().await.unwrap();
    let outcome = episode.apply(ran.clone()).await.unwrap();
    assert_eq!(outcome.facts["computed"], true);
    assert_eq!(outcome.facts["agreed"], false);

    let view = episode.view("thinker").await.unwrap();
    let answer = Completion::new("It is \\boxed{42}.", Finish::Stop);
    let actions = vec![("thinker".to_owned(), reasoner.parse(&view, &answer).await.unwrap())];
    let outcome = episode.apply(actions.clone()).await.unwrap();
    assert_eq!(outcome.facts["agreed"], true);
    let scores = reward.score(&task, &actions, &outcome).await.unwrap();
    assert!(scores.success && scores.team > 0.0, "{scores:?}");
    assert!(episode.reproducible());

    // A copy from before the program ran comes to the same state by the same way.
    let mut copy = environment.restore(&before).await.unwrap();
    copy.apply(ran).await.unwrap();
    copy.apply(actions).await.unwrap();
    assert_eq!(copy.snapshot().await.unwrap(), episode.snapshot().await.unwrap());
}

#[tokio::test]
async fn generated_tasks_are_equal_for_equal_arguments_and_split() {
    let plugin = load(&built("math.wasm"), PluginSpec::new("maths")).await;
    let environment = Environment::new(&plugin, "problems", Map::new(), common::services()).unwrap();
    let train = environment.tasks("train", 0, 8, 1).await.unwrap();
    assert_eq!(environment.tasks("train", 4, 4, 1).await.unwrap(), train[4..]);
    let test = environment.tasks("test", 0, 8, 1).await.unwrap();
    assert!(test.iter().all(|task| !train.iter().any(|other| other.data == task.data)));
}
