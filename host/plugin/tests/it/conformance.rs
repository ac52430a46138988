//! Conformance checks of the maths domain with settings from outside.

use pl_plugin::conformance::{CheckResult, Report, Samples, check_plugin};
use pl_plugin::{Plugin, PluginSpec, Task};
use serde_json::{Map, Value, json};

use crate::common::hostile::{Attack, EntryPoint, component_of, with_reward_schema};
use crate::common::{built, load, services};

/// Samples with settings of one item.
fn samples(item: &str, settings: Value) -> Samples {
    let settings: Map<String, Value> = settings.as_object().cloned().unwrap_or_default();
    Samples { settings: [(item.to_owned(), settings)].into(), level: 1, ..Samples::default() }
}

async fn maths() -> Plugin {
    load(&built("math.wasm"), PluginSpec::new("maths")).await
}

/// Message of the error of given settings; empty if they are accepted.
async fn refusal(plugin: &Plugin, others: &[Plugin], samples: &Samples) -> String {
    match check_plugin(plugin, others, &services(), samples).await {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn settings_of_an_item_that_is_not_there_are_an_error() {
    let maths = maths().await;
    let message = refusal(&maths, &[], &samples("problem", json!({"seed": 1}))).await;
    assert!(message.starts_with("there is no item problem; the items are "), "{message}");
    for item in ["environment problems", "agent tool", "reward score"] {
        assert!(message.contains(item), "{message}");
    }
    // An item of another plugin that takes part.
    let letters = load(&built("letters.wasm"), PluginSpec::new("letters")).await;
    let message = refusal(&letters, &[maths], &samples("problems", json!({"seed": 1}))).await;
    assert_eq!(message, "");
}

#[tokio::test]
async fn settings_that_their_item_refuses_are_an_error() {
    let maths = maths().await;
    for (item, settings, reason) in [
        ("problems", json!({"size": "x"}), "environment problems refuses {\"size\":\"x\"}: "),
        ("tool", json!({"examples": "x"}), "agent tool refuses {\"examples\":\"x\"}: "),
        ("score", json!({"rules": "none"}), "reward score refuses {\"rules\":\"none\"}: "),
    ] {
        let message = refusal(&maths, &[], &samples(item, settings.clone())).await;
        assert!(message.starts_with(reason) && message.len() > reason.len(), "{message}");
        // Without an episode to call the item with.
        let none = Samples { level: 1_000_000, ..samples(item, settings) };
        let message = refusal(&maths, &[], &none).await;
        assert!(message.starts_with(reason) && message.len() > reason.len(), "{message}");
    }
}

#[tokio::test]
async fn settings_of_an_agent_need_to_fit_only_one_view() {
    let chat = load(&built("std_chat.wasm"), PluginSpec::new("std")).await;
    let views = |views: &[&str]| Samples {
        views: views.iter().map(|view| (*view).to_owned()).collect(),
        ..samples("chat", json!({"template": "{question}"}))
    };
    let (other, fitting) = ("{\"answer\": 1}", "{\"question\": 1}");
    assert_eq!(refusal(&chat, &[], &views(&[other, fitting])).await, "");
    let message = refusal(&chat, &[], &views(&[other])).await;
    assert!(message.starts_with("agent chat refuses") && message.contains("{question}"), "{message}");
    // Without a view there is nothing that the settings could miss.
    assert_eq!(refusal(&chat, &[], &views(&[])).await, "");
}

#[tokio::test]
async fn settings_that_their_item_accepts_are_tested() {
    let maths = maths().await;
    let samples = samples("problems", json!({"seed": 3}));
    let report = check_plugin(&maths, &[], &services(), &samples).await.unwrap();
    assert!(report.passed(), "{:?}", report.checks);
    let of_problems = report.checks.iter().filter(|check| check.item == "environment problems");
    assert!(of_problems.clone().count() > 3);
    for check in of_problems {
        assert_eq!(check.result, CheckResult::Passed, "{}", check.requirement);
    }
}

/// Returns the report of a plugin without a whole episode, and the reason for which playing them failed.
async fn faulty_episodes(entry: EntryPoint, attack: Attack) -> (Report, String) {
    let plugin = load(&component_of(entry, attack), PluginSpec::new("hostile")).await;
    let tasks = vec![Task { id: "one".to_owned(), data: "{}".to_owned() }];
    let report =
        check_plugin(&plugin, &[], &services(), &Samples { tasks, ..Samples::default() }).await.unwrap();
    let failed = report.checks.iter().find_map(|check| match &check.result {
        CheckResult::Failed(reason) if check.requirement == "plays episodes without a fault" => Some(reason),
        _ => None,
    });
    let reason = failed.unwrap_or_else(|| panic!("{:?}", report.checks)).clone();
    (report, reason)
}

/// Refusals of views may be those of agents that the samples lack, but nothing was tested.
#[tokio::test]
async fn an_environment_that_ends_every_episode_with_an_error_fails() {
    let (report, reason) = faulty_episodes(EntryPoint::View, Attack::Refuse).await;
    assert!(reason.contains("agents have the names of their items") && !report.passed(), "{reason}");
}

/// Without one episode there is nothing else to check, but the plugin has not passed.
#[tokio::test]
async fn an_environment_that_traps_at_the_start_of_each_episode_fails() {
    let (report, reason) = faulty_episodes(EntryPoint::Start, Attack::Trap).await;
    assert!(reason.contains("start") && reason.contains("unreachable") && !report.passed(), "{reason}");
}

fn failures(report: &Report) -> Vec<String> {
    let reasons = report.checks.iter().filter_map(|check| match &check.result {
        CheckResult::Failed(reason) => Some(format!("{}: {reason}", check.item)),
        _ => None,
    });
    reasons.collect()
}

/// Tasks and actions for the hostile guest, which makes only one task and no JSON action.
fn hostile_samples() -> Samples {
    let tasks = vec![Task { id: "one".to_owned(), data: "{}".to_owned() }];
    Samples { tasks, actions: vec!["{}".to_owned()], ..Samples::default() }
}

/// An error of its own in every call is a failure, not a lack of samples.
#[tokio::test]
async fn an_item_that_refuses_everything_fails() {
    for (entry, expected) in [
        (EntryPoint::Start, "environment problems: no episode starts: "),
        (EntryPoint::Prompt, "agent agent: it reads no view: "),
        (EntryPoint::Parse, "agent agent: on the completion \"\": "),
        (EntryPoint::Score, "reward score: it scores no step: "),
    ] {
        let plugin = load(&component_of(entry, Attack::Refuse), PluginSpec::new("hostile")).await;
        let report = check_plugin(&plugin, &[], &services(), &hostile_samples()).await.unwrap();
        let failures = failures(&report);
        assert!(failures.iter().any(|failure| failure.starts_with(expected)), "{entry:?}: {failures:?}");
    }
}

#[tokio::test]
async fn a_default_that_its_own_schema_does_not_allow_fails() {
    let schema =
        r#"{"properties":{"size":{"type":"integer","minimum":1,"default":0}},"additionalProperties":false}"#;
    let plugin = load(&with_reward_schema(schema), PluginSpec::new("hostile")).await;
    let report = check_plugin(&plugin, &[], &services(), &hostile_samples()).await.unwrap();
    let expected = "reward score: the default of {\"size\":0} is not allowed by the schema";
    assert!(failures(&report).iter().any(|failure| failure == expected), "{:?}", report.checks);
}
