//! The designer's prompt: the language of designs, the palette, a task, and the results so far.

use std::fmt::Write as _;

use pl_dsl::pattern;
use pl_plugin::{Message, Part, Role};
use pl_rollout::{Fault, PromptEncoder};
use pl_types::{FactKind, Item};
use serde_json::Value;

use super::brief::DesignBrief;
use super::record::{DesignRecord, Outcome};
use super::view::TaskView;
use crate::chat::ChatEncoder;

/// Longest text of a view that a prompt shows, in characters.
const LONGEST_VIEW: usize = 1500;

/// Most mistakes of a design that a prompt shows.
const MISTAKES: usize = 3;

const LANGUAGE: &str = "\
You design teams of language models. A design is one or more `agent` blocks and one `turns` block:

agent first = ITEM { policy = POLICY; SETTING = VALUE; … }
agent second = …
turns {
  max = N                                  # visits of one agent in an episode
  [second, third] -> first when CONDITION  # ways that are taken instead of the next one while their condition holds
  start -> first -> [second, third] -> end # agents in brackets act side by side
}

Agents are named first, second, third and so on, and the last line of `turns` leads through all of them. They see the view \
of the environment, which shows what the agents before them did, and nothing else. Conditions compare facts (`env.NAME`) and `turn`, the number of visits of the agent \
so far, with `and`, `or`, `not`. Texts are in double quotes; \\n is a new line.";

/// Designs that a prompt shows.
pub(super) struct Shown<'r> {
    /// The best, with their results.
    pub best: Vec<&'r DesignRecord>,
    /// Others, with their mistakes.
    pub wrong: Vec<&'r DesignRecord>,
    /// True if a hand-made design stands in for them.
    pub example: bool,
}

/// Prompt that leaves room for a design in the context of the designer's model.
pub(super) struct FittingPrompt<'r> {
    pub messages: Vec<Message>,
    pub tokens: Vec<u32>,
    pub shown: Shown<'r>,
}

/// Lengths in tokens, where no prompt leaves room for a design.
pub(super) struct NoRoom {
    /// The shortest prompt.
    pub prompt: usize,
    pub context: usize,
}

/// Returns the prompt with the first of some selections of designs that leaves room for a new one.
///
/// # Errors
/// If a prompt can't be encoded.
pub(super) fn first_that_fits<'r>(
    encoder: &ChatEncoder,
    brief: &DesignBrief,
    view: &TaskView,
    selections: impl IntoIterator<Item = Shown<'r>>,
) -> Result<Result<FittingPrompt<'r>, NoRoom>, Fault> {
    let designer = &brief.designer;
    let context = encoder.context(designer.policy).unwrap_or(usize::MAX);
    let mut shortest = usize::MAX;
    for shown in selections {
        let [system, user] = messages(brief, view, &shown);
        let message = |role, text| Message { role, parts: vec![Part::Text(text)] };
        let messages = vec![message(Role::System, system), message(Role::User, user)];
        let tokens = encoder.encode(designer.policy, &messages, &[])?;
        if tokens.len().saturating_add(designer.max_tokens as usize) <= context {
            return Ok(Ok(FittingPrompt { messages, tokens, shown }));
        }
        shortest = shortest.min(tokens.len());
    }
    Ok(Err(NoRoom { prompt: shortest, context }))
}

/// Returns the system message and the user message.
fn messages(brief: &DesignBrief, view: &TaskView, shown: &Shown) -> [String; 2] {
    let mut text = palette(brief);
    let task: String = view.text().chars().take(LONGEST_VIEW).collect();
    let _ = write!(text, "\nThe view of a task before the first turn:\n{task}\n");
    let parts = view.parts();
    if shown.example
        && let Some(example) = pattern("single", &brief.designer.palette, &parts, &brief.facts)
    {
        let _ = write!(text, "\nA design:\n{example}");
    }
    for record in &shown.best {
        let _ = write!(text, "\nThis design {}:\n{}", result(&record.outcome), record.design);
    }
    for record in &shown.wrong {
        let _ = write!(text, "\nThis design is wrong: {}\n{}", result(&record.outcome), record.design);
    }
    text.push_str("\nWrite a new design that solves more tasks, or as many with fewer tokens. Answer with the design alone.");
    if let Some(instructions) = &brief.designer.instructions {
        let _ = write!(text, "\n{instructions}");
    }
    [LANGUAGE.to_owned(), text]
}

/// Describes what designs may use.
fn palette(brief: &DesignBrief) -> String {
    let palette = &brief.designer.palette;
    let mut text = format!(
        "At most {} agents; `max` at most {}; at most {} tokens in an episode.\nPolicies: {}\nItems:\n",
        palette.max_agents,
        palette.max_visits,
        palette.max_tokens,
        palette.policies.join(", ")
    );
    for (path, item) in palette.agents.iter().zip(&brief.items) {
        let _ = writeln!(text, "- {path}: {}", item.doc);
        settings(item, &mut text);
    }
    text.push_str(
        "Every agent may set `temperature` (0 to 2), `top_p` (above 0, up to 1) and `max_tokens`.\nFacts:\n",
    );
    for fact in &brief.facts {
        let kind = match fact.kind {
            FactKind::Boolean => "true or false",
            FactKind::Number => "a number",
            FactKind::Text => "a text",
        };
        let _ = writeln!(text, "- env.{} ({kind}): {}", fact.name, fact.doc);
    }
    text
}

fn settings(item: &Item, text: &mut String) {
    let declared = item.settings_schema.get("properties").and_then(Value::as_object);
    for (key, schema) in declared.into_iter().flatten() {
        let doc = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let _ = writeln!(text, "  - {key}: {}", doc.lines().next().unwrap_or_default());
    }
}

/// Describes an outcome.
fn result(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Invalid { mistakes } => {
            mistakes.iter().take(MISTAKES).cloned().collect::<Vec<_>>().join("; ")
        }
        Outcome::Costly { bound, most } => {
            format!("an episode may take {bound} tokens, more than {most}")
        }
        Outcome::Played { success, tokens, truncated, .. } => {
            let solved = format!("solved {:.0} % of the tasks with {tokens:.0} tokens each", 100.0 * success);
            match *truncated > 0.0 {
                true => format!("{solved}, {:.0} % of them cut off", 100.0 * truncated),
                false => solved,
            }
        }
    }
}
