//! A loop, memory growth, a trap or an invalid value fails one call, with an error that names the plugin.

use pl_plugin::{
    Agent, Cause, Completion, DrawingForm, Environment, Error, Outcome, Plugin, PluginSpec, RandomStream,
    RefusalKind, Reward, Task, ToolCall,
};
use pl_types::{Finish, ItemKind};
use pl_wasm::GuestFault;
use serde_json::Map;

use crate::common::{component, engine, load, services};

const LIAR: &str = include_str!("../guests/liar.wat");

async fn liar() -> Plugin {
    let spec = PluginSpec { memory: 8 << 20, fuel: 50_000_000, ..PluginSpec::new("maths") };
    load(&component(LIAR, "domain"), spec).await
}

async fn parse(plugin: &Plugin, view: &str) -> Result<String, Error> {
    let agent = Agent::new(plugin, "agent", Map::new()).unwrap();
    agent.parse(view, &Completion::new("", Finish::Stop)).await
}

fn cause(error: Error) -> Cause {
    error.cause().cloned().unwrap_or_else(|| panic!("{error}"))
}

#[tokio::test]
async fn a_bad_call_is_an_error_of_its_own_and_the_next_call_works() {
    let plugin = liar().await;
    let bad = |view: &'static str| {
        let plugin = plugin.clone();
        async move {
            let found = cause(parse(&plugin, view).await.unwrap_err());
            assert_eq!(parse(&plugin, "[7]").await.unwrap(), "[7]", "after {view}");
            found
        }
    };
    assert_eq!(bad("0").await, Cause::Fault(GuestFault::OutOfFuel { fuel: 50_000_000 }));
    assert!(matches!(bad("1").await, Cause::Fault(GuestFault::Trap(words)) if words.contains("unreachable")));
    assert_eq!(bad("2").await, Cause::Fault(GuestFault::Memory { limit: 8 << 20 }));
    assert!(
        matches!(bad("3").await, Cause::Fault(GuestFault::Host(words)) if words.contains("only available to an environment"))
    );
    assert_eq!(
        bad("4").await,
        Cause::Refused { kind: RefusalKind::Settings, message: "no, thank you".to_owned() }
    );
    assert!(matches!(bad("6").await, Cause::Invalid(words) if words.starts_with("the action is not JSON")));
}

#[tokio::test]
async fn too_much_returned_is_refused_before_it_is_copied() {
    let spec = PluginSpec { memory: 64 << 20, ..PluginSpec::new("maths") };
    let plugin = load(&component(LIAR, "domain"), spec).await;
    let found = cause(parse(&plugin, "5").await.unwrap_err());
    assert_eq!(found, Cause::Fault(GuestFault::Returned { limit: 16 << 20 }));
}

#[tokio::test]
async fn an_error_names_plugin_version_item_and_function() {
    let plugin = liar().await;
    let message = parse(&plugin, "1").await.unwrap_err().to_string();
    let expected = format!("maths.agent ({}), parse: it trapped: ", &plugin.hash()[..12]);
    assert!(message.starts_with(&expected), "{message}");
    let unknown = Agent::new(&plugin, "reasoner", Map::new()).err().unwrap().to_string();
    assert!(unknown.contains("has no agent named reasoner; it has agent"), "{unknown}");
}

fn task(data: &str) -> Task {
    Task { id: "t".to_owned(), data: data.to_owned() }
}

fn environment(plugin: &Plugin) -> Environment {
    Environment::new(plugin, "problems", Map::new(), services()).unwrap()
}

#[tokio::test]
async fn an_outcome_has_exactly_the_declared_facts() {
    let plugin = liar().await;
    let mut episode = environment(&plugin).start(&task("{}"), 0, RandomStream::new([0; 32])).await.unwrap();
    let mut step = async |facts: &str, evidence: &str| {
        let actions = vec![("a".to_owned(), facts.to_owned()), ("b".to_owned(), evidence.to_owned())];
        episode.apply(actions).await.map_err(|error| match cause(error) {
            Cause::Invalid(words) => words,
            other => panic!("{other}"),
        })
    };
    let good = step(r#"{"steps": 3.5}"#, r#"{"gold": 4}"#).await.unwrap();
    assert_eq!((good.done, good.truncated, good.evidence.as_str()), (false, false, r#"{"gold": 4}"#));
    assert_eq!(good.facts["steps"], 3.5);
    for (facts, evidence, words) in [
        ("[]", "{}", "the list of facts is not a JSON object"),
        ("{", "{}", "the list of facts is not a JSON object"),
        ("{}", "{}", "the declared fact steps is missing"),
        (r#"{"steps": "3"}"#, "{}", "the fact steps is declared as number and is \"3\""),
        (r#"{"steps": 1, "gold": 4}"#, "{}", "the fact gold is not declared"),
        (r#"{"steps": 1}"#, "", "the evidence is not JSON"),
    ] {
        let found = step(facts, evidence).await.unwrap_err();
        assert!(found.starts_with(words), "{found}");
    }
}

#[tokio::test]
async fn a_trap_loses_one_episode_and_no_other() {
    let plugin = liar().await;
    let environment = environment(&plugin);
    let mut lost = environment.start(&task("{}"), 0, RandomStream::new([1; 32])).await.unwrap();
    let mut other = environment.start(&task("{}"), 0, RandomStream::new([1; 32])).await.unwrap();
    let saved = lost.snapshot().await.unwrap();
    let trap = vec![("a".to_owned(), "1".to_owned())];
    assert!(matches!(cause(lost.apply(trap).await.unwrap_err()), Cause::Fault(GuestFault::Trap(_))));
    assert_eq!(cause(lost.view("a").await.unwrap_err()), Cause::Lost);
    let seen = other.view("a").await.unwrap();
    // Restored, it sees what it would have seen.
    assert_eq!(environment.restore(&saved).await.unwrap().view("a").await.unwrap(), seen);
}

#[tokio::test]
async fn drawings_and_the_oracle_are_checked_and_leave_the_episode_as_it_is() {
    let plugin = liar().await;
    let environment = environment(&plugin);
    let mut episode = environment.start(&task("{}"), 0, RandomStream::new([1; 32])).await.unwrap();
    let before = episode.snapshot().await.unwrap();
    assert_eq!(episode.draw(DrawingForm::Text).await.unwrap().as_deref(), Some("steps"));
    let large = cause(episode.draw(DrawingForm::Svg).await.unwrap_err());
    assert_eq!(large, Cause::Invalid("a drawing has 300000 bytes, more than 262144".to_owned()));
    assert_eq!(episode.oracle("a").await.unwrap(), None);
    let words = cause(episode.oracle("0").await.unwrap_err()).to_string();
    assert!(words.contains("the oracle's action is not JSON"), "{words}");
    assert_eq!(episode.snapshot().await.unwrap(), before, "the oracle's number was taken from the stream");
    assert!(matches!(cause(episode.oracle("1").await.unwrap_err()), Cause::Fault(GuestFault::Trap(_))));
}

#[tokio::test]
async fn tools_give_a_result_for_each_call() {
    let plugin = liar().await;
    let agent = Agent::new(&plugin, "agent", Map::new()).unwrap();
    let call = ToolCall { name: "add".to_owned(), arguments: "{}".to_owned() };
    let results = async |count: usize| agent.call_tools("{}", &vec![call.clone(); count]).await;
    assert_eq!(results(1).await.unwrap(), Some(vec!["steps".to_owned()]));
    let missing = cause(results(2).await.unwrap_err()).to_string();
    assert!(missing.contains("2 results of tool calls were expected and 1 were returned"), "{missing}");
}

#[tokio::test]
async fn a_refused_task_is_reported_as_such() {
    let error =
        environment(&liar().await).start(&task("1"), 0, RandomStream::new([0; 32])).await.err().unwrap();
    assert_eq!(error.refusal(), Some((RefusalKind::Task, "no, thank you")));
}

#[tokio::test]
async fn the_random_stream_travels_with_the_snapshot() {
    let environment = environment(&liar().await);
    let mut episode = environment.start(&task("{}"), 0, RandomStream::from_parts(&[b"a"])).await.unwrap();
    let first = episode.view("a").await.unwrap();
    let saved = episode.snapshot().await.unwrap();
    let rest = [episode.view("a").await.unwrap(), episode.view("a").await.unwrap()];
    assert_ne!(rest[0], first);
    let text = serde_json::to_string(&saved).unwrap();
    let read: pl_plugin::Snapshot = serde_json::from_str(&text).unwrap();
    assert_eq!((&read, read.hash()), (&saved, saved.hash()));
    let mut copy = environment.restore(&read).await.unwrap();
    assert_eq!([copy.view("a").await.unwrap(), copy.view("a").await.unwrap()], rest);
    assert_ne!(copy.snapshot().await.unwrap().hash(), saved.hash());
    let mut other = environment.start(&task("{}"), 0, RandomStream::from_parts(&[b"b"])).await.unwrap();
    assert_ne!(other.view("a").await.unwrap(), first);
}

#[tokio::test]
async fn a_reward_that_is_nan_or_omits_an_agent_is_refused() {
    let plugin = liar().await;
    let reward = Reward::new(&plugin, "score", Map::new()).unwrap();
    let outcome = |done| Outcome { done, truncated: false, facts: Map::new(), evidence: "{}".to_owned() };
    let actions = [("solver".to_owned(), "{}".to_owned())];
    let missing = cause(reward.score(&task("{}"), &actions, &outcome(false)).await.unwrap_err());
    assert_eq!(missing, Cause::Invalid("solver acted and has no score".to_owned()));
    let nan = cause(reward.score(&task("{}"), &actions, &outcome(true)).await.unwrap_err());
    assert_eq!(
        nan,
        Cause::Invalid("the team's reward is NaN, but rewards are between -1000000 and 1000000".to_owned())
    );
    let empty = reward.score(&task("{}"), &[], &outcome(false)).await.unwrap();
    assert_eq!((empty.team, empty.local.len(), empty.success), (0.0, 0, false));
}

#[tokio::test]
async fn a_wrong_number_of_tasks_is_refused() {
    let found = cause(environment(&liar().await).tasks("train", 0, 3, 1).await.unwrap_err());
    assert_eq!(found, Cause::Invalid("3 tasks were requested and 0 were returned".to_owned()));
}

#[tokio::test]
async fn a_described_item_needs_its_interface() {
    // The liar describes an environment; as a component of agents alone, it has none.
    let alone: String = LIAR
        .lines()
        .filter(|line| !line.contains("[export]"))
        .map(|line| line.replace("(call $new (i32.const 1))", "(i32.const 1)") + "\n")
        .collect();
    let alone = alone
        .replace("(export \"pl-host:plugin/environments", "(export \"gone")
        .replace("(export \"pl-host:plugin/rewards", "(export \"went");
    let error =
        Plugin::load(&engine(), PluginSpec::new("half"), &component(&alone, "agent")).await.err().unwrap();
    assert!(matches!(error, Error::Contract { .. }), "{error}");
    assert!(error.to_string().contains("it describes the environment problems"), "{error}");
}

#[tokio::test]
async fn the_description_is_cached_with_the_code() {
    let plugin = liar().await;
    let kinds: Vec<_> = plugin.items().iter().map(|item| (item.kind, item.name.as_str())).collect();
    let expected =
        [(ItemKind::Agent, "agent"), (ItemKind::Environment, "problems"), (ItemKind::Reward, "score")];
    assert_eq!(kinds, expected);
    // The second load takes the items from the cache.
    assert_eq!(liar().await.items(), plugin.items());
}

#[tokio::test]
async fn many_calls_at_once_wait_for_their_turn() {
    let plugin = liar().await;
    let calls: Vec<_> = (0..200)
        .map(|n| {
            let plugin = plugin.clone();
            tokio::spawn(async move { parse(&plugin, &format!("[{n}]")).await.unwrap() })
        })
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), format!("[{n}]"));
    }
}
