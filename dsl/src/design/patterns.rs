//! Hand-made designs: the teams that a search begins with, over any palette.

use std::fmt::Write as _;

use pl_types::{Fact, FactKind};

use super::grammar::NAMES;
use crate::workflow::Palette;

/// Item whose prompts a pattern writes. Other items have their own.
const CHAT: &str = "std.chat";

/// The last line of a completion.
const LAST_LINE: &str = "([^\\\\n]+)\\\\s*$";

/// A team in the abstract.
struct Pattern {
    word: &'static str,
    roles: &'static [Role],
    /// Statements of its turns. `FACT` stands for a boolean fact.
    turns: &'static [&'static str],
}

/// A member of a pattern. Its name is that of its number.
struct Role {
    /// Its task, in words to the model.
    system: &'static str,
    /// True if its last line is the answer; otherwise all that it writes is.
    answers: bool,
}

const fn answers(system: &'static str) -> Role {
    Role { system, answers: true }
}

const fn advises(system: &'static str) -> Role {
    Role { system, answers: false }
}

const SOLVE: &str = "Solve the task step by step. Write the answer alone on the last line.";

const PATTERNS: &[Pattern] = &[
    Pattern { word: "single", roles: &[answers(SOLVE)], turns: &["max = 1", "start -> first -> end"] },
    Pattern {
        word: "reflection",
        roles: &[
            answers(SOLVE),
            advises("Find the mistakes in the latest answer. Name each in one sentence."),
        ],
        turns: &[
            "max = 2",
            "first -> end when turn >= 2",
            "second -> first when turn < 2",
            "start -> first -> second -> end",
        ],
    },
    Pattern {
        word: "debate",
        roles: &[
            answers(SOLVE),
            answers("Check the latest answer on your own. Write the right answer alone on the last line."),
        ],
        turns: &["max = 2", "second -> first when turn < 2", "start -> first -> second -> end"],
    },
    Pattern {
        word: "ensemble",
        roles: &[
            answers(SOLVE),
            answers("Solve the task from its end to its beginning. Write the answer alone on the last line."),
            answers("Solve the task and check every step. Write the answer alone on the last line."),
            answers("Decide which of the answers is right. Write it alone on the last line."),
        ],
        turns: &["max = 1", "start -> [first, second, third] -> fourth -> end"],
    },
    Pattern {
        word: "router",
        roles: &[answers("Answer at once, in one line."), answers(SOLVE)],
        turns: &["max = 1", "first -> end when FACT", "start -> first -> second -> end"],
    },
    Pattern {
        word: "planner",
        roles: &[
            advises("Write a short plan that solves the task. Don't solve it."),
            answers("Follow the plan. Write the answer alone on the last line."),
            answers("Finish what is left of the plan. Write the answer alone on the last line."),
        ],
        turns: &["max = 1", "start -> first -> second -> third -> end"],
    },
];

/// Returns a pattern, one of [`PATTERNS`](crate::settings::PATTERNS), as a design of a palette. Its members are made of the
/// palette's first item and take its policies in turn. `view` names the parts of the environment's view, which prompts of
/// `std.chat` show. Returns `None` if the palette has no room for it, or the environment lacks the facts that it needs.
pub fn pattern(word: &str, palette: &Palette, view: &[&str], facts: &[Fact]) -> Option<String> {
    let pattern = PATTERNS.iter().find(|one| one.word == word)?;
    let item = palette.agents.first()?;
    let visits = pattern.turns.first().and_then(|max| max.strip_prefix("max = "))?.parse::<u32>().ok()?;
    if pattern.roles.len() > palette.max_agents || visits > palette.max_visits {
        return None;
    }
    let mut out = String::new();
    let policies = palette.policies.iter().cycle();
    for ((role, name), policy) in pattern.roles.iter().zip(NAMES).zip(policies) {
        let _ = writeln!(out, "agent {name} = {item} {{");
        let _ = writeln!(out, "  policy = {policy}");
        if item == CHAT {
            let shown: Vec<String> = view.iter().map(|part| format!("{part}: {{{part}}}")).collect();
            let _ = writeln!(out, "  system = \"{}\"", role.system);
            let _ = writeln!(out, "  template = \"{}\"", shown.join("\\n"));
            if role.answers {
                let _ = writeln!(out, "  extract = \"{LAST_LINE}\"");
            }
        }
        let _ = writeln!(out, "}}\n");
    }
    out.push_str("turns {\n");
    for statement in pattern.turns {
        match statement.contains("FACT") {
            true => {
                let _ =
                    writeln!(out, "  {}", statement.replace("FACT", &format!("env.{}", answered(facts)?)));
            }
            false => {
                let _ = writeln!(out, "  {statement}");
            }
        }
    }
    out.push_str("}\n");
    Some(crate::format(&out).unwrap_or(out))
}

/// Returns the boolean fact that is likeliest to say that there is an answer.
fn answered(facts: &[Fact]) -> Option<&str> {
    let booleans =
        || facts.iter().filter(|fact| fact.kind == FactKind::Boolean).map(|fact| fact.name.as_str());
    let wanted = ["computed", "answered", "solved"];
    wanted.into_iter().find(|name| booleans().any(|fact| fact == *name)).or_else(|| booleans().next())
}
