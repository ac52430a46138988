//! Checks of agents: no state between calls, and an action for every completion.

use pl_types::{Finish, Item};

use super::report::{COMPLETIONS, CheckFailure, CheckOutcome, Report, violation};
use crate::agent::Agent;
use crate::error::Error;
use crate::values::{Completion, PromptRequest, Turn};

const REPEATABLE_PROMPTS: &str = "returns the same prompt for a view, independent of earlier calls";

/// Limit of the views that are tried.
pub const MAX_VIEWS: usize = 16;

/// Checks an agent on views. `is_for_them` says that it has to read at least one of them.
pub async fn check_agent(item: &Item, agent: &Agent, views: &[&str], is_for_them: bool, report: &mut Report) {
    let mut read = Vec::new();
    let mut refusal = None;
    for view in views {
        match prompt(agent, &item.name, view).await {
            Ok(_) => read.push(*view),
            // A fault says more than a refusal.
            Err(error) if refusal.is_none() || error.refusal().is_none() => refusal = Some(error),
            Err(_) => {}
        }
    }
    let is_own = |error: &Error| is_for_them && !error.refuses_settings();
    let missing = match (&refusal, read.is_empty()) {
        (Some(error), true) if error.refusal().is_none() || is_own(error) => {
            report.add(item, REPEATABLE_PROMPTS, Err(violation(format!("it reads no view: {error}"))));
            return;
        }
        (Some(error), true) => Some(format!("it can't read any view: {error}")),
        (None, true) => {
            Some("there is no view: pass some, or a plugin whose environment provides them".to_owned())
        }
        _ => None,
    };
    if let Some(missing) = missing {
        report.add(item, REPEATABLE_PROMPTS, Err(CheckFailure::Untestable(missing)));
        return;
    }
    report.add(item, REPEATABLE_PROMPTS, repeats_prompts(agent, &item.name, &read).await);
    report.add(
        item,
        "parses every completion, and equal completions into equal actions",
        repeats_actions(agent, &read).await,
    );
}

async fn prompt(agent: &Agent, name: &str, view: &str) -> Result<Option<PromptRequest>, Error> {
    agent.prompt(view, &Turn { agent: name.to_owned(), visit: 0 }).await
}

/// Prompts with all views in order, then in reverse order.
async fn repeats_prompts(agent: &Agent, name: &str, views: &[&str]) -> CheckOutcome {
    let mut first = Vec::new();
    for view in views {
        first.push(prompt(agent, name, view).await?);
    }
    for (view, first) in views.iter().zip(first).rev() {
        if prompt(agent, name, view).await? != first {
            return Err(violation(format!("the second prompt for the view {view} differs from the first")));
        }
    }
    Ok(())
}

async fn repeats_actions(agent: &Agent, views: &[&str]) -> CheckOutcome {
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
                        return Err(violation(format!("on the completion {start:?}: {error}")));
                    }
                };
                if one != other {
                    return Err(violation(format!(
                        "the completion {start:?} is parsed as {one} at first and as {other} later"
                    )));
                }
            }
        }
    }
    Ok(())
}
