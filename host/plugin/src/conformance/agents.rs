//! What an agent promises: no memory, and an action for whatever a model writes.

use pl_types::{Finish, Item};

use super::drive::Driven;
use super::{COMPLETIONS, Outcome, Report, Trouble, broken};
use crate::{Agent, Completion, Error, PromptRequest, Turn};

/// Views that are tried.
const VIEWS: usize = 16;

pub async fn examine(item: &Item, agent: &Agent, driven: &Driven, views: &[String], report: &mut Report) {
    let seen = driven.steps().map(|(_, step)| &step.view).chain(views);
    let mut read = Vec::new();
    let mut refusal = None;
    for view in seen.take(VIEWS) {
        match prompt(agent, &item.name, view).await {
            Ok(_) => read.push(view.as_str()),
            Err(error) => refusal = Some(error),
        }
    }
    let missing = match (&refusal, read.is_empty()) {
        (Some(error), true) if error.refusal().is_none() => {
            report.note(item, "asks the same whoever was asked before", Err(broken(error.to_string())));
            return;
        }
        (Some(error), true) => Some(format!("no view that it can read: {error}")),
        (None, true) => Some("no view: give some, or a plugin whose environment shows them".to_owned()),
        _ => None,
    };
    if let Some(missing) = missing {
        report.note(item, "asks the same whoever was asked before", Err(Trouble::Missing(missing)));
        return;
    }
    report.note(item, "asks the same whoever was asked before", asks(agent, &item.name, &read).await);
    report.note(item, "makes the same action of whatever a model writes", parses(agent, &read).await);
}

async fn prompt(agent: &Agent, name: &str, view: &str) -> Result<Option<PromptRequest>, Error> {
    agent.prompt(view, &Turn { agent: name.to_owned(), visit: 0 }).await
}

/// In order, and in the order turned round.
async fn asks(agent: &Agent, name: &str, views: &[&str]) -> Outcome {
    let mut first = Vec::new();
    for view in views {
        first.push(prompt(agent, name, view).await?);
    }
    for (view, first) in views.iter().zip(first).rev() {
        if prompt(agent, name, view).await? != first {
            return Err(broken(format!("it asks differently on the second call with the view {view}")));
        }
    }
    Ok(())
}

async fn parses(agent: &Agent, views: &[&str]) -> Outcome {
    let long = "ab ".repeat(100_000);
    for view in views {
        for text in COMPLETIONS.into_iter().chain([long.as_str()]) {
            for finish in [Finish::Stop, Finish::Length] {
                let completion = Completion::new(text, finish);
                let (one, other) =
                    (agent.parse(view, &completion).await, agent.parse(view, &completion).await);
                let start: String = text.chars().take(60).collect();
                let (one, other) = match (one, other) {
                    (Ok(one), Ok(other)) => (one, other),
                    (Err(error), _) | (_, Err(error)) => {
                        return Err(broken(format!("on the completion {start:?}: {error}")));
                    }
                };
                if one != other {
                    return Err(broken(format!("the completion {start:?} is {one} once and {other} then")));
                }
            }
        }
    }
    Ok(())
}
