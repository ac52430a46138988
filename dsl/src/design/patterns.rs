//! Hand-made designs: the teams that a search begins with, over any palette.

use std::fmt::Write as _;

use pl_types::{Fact, FactKind};

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

/// A member of a pattern.
struct Role {
    name: &'static str,
    /// Its task, in words to the model.
    system: &'static str,
    /// True if its last line is the answer; otherwise all that it writes is.
    answers: bool,
}

const fn answers(name: &'static str, system: &'static str) -> Role {
    Role { name, system, answers: true }
}

const fn advises(name: &'static str, system: &'static str) -> Role {
    Role { name, system, answers: false }
}

const SOLVE: &str = "Solve the task step by step. Write the answer alone on the last line.";

const PATTERNS: &[Pattern] = &[
    Pattern {
        word: "single",
        roles: &[answers("solver", SOLVE)],
        turns: &["max = 1", "start -> solver -> end"],
    },
    Pattern {
        word: "reflection",
        roles: &[
            answers("solver", SOLVE),
            advises("critic", "Find the mistakes in the latest answer. Name each in one sentence."),
        ],
        turns: &[
            "max = 2",
            "start -> solver",
            "solver -> end when turn >= 2",
            "solver -> critic",
            "critic -> solver",
        ],
    },
    Pattern {
        word: "debate",
        roles: &[
            answers("first", SOLVE),
            answers(
                "second",
                "Check the latest answer on your own. Write the right answer alone on the last line.",
            ),
        ],
        turns: &["max = 2", "start -> first -> second", "second -> end when turn >= 2", "second -> first"],
    },
    Pattern {
        word: "ensemble",
        roles: &[
            answers("first", SOLVE),
            answers(
                "second",
                "Solve the task from its end to its beginning. Write the answer alone on the last line.",
            ),
            answers("third", "Solve the task and check every step. Write the answer alone on the last line."),
            answers("judge", "Decide which of the answers is right. Write it alone on the last line."),
        ],
        turns: &["max = 1", "start -> [first, second, third] -> judge -> end"],
    },
    Pattern {
        word: "router",
        roles: &[answers("quick", "Answer at once, in one line."), answers("careful", SOLVE)],
        turns: &["max = 1", "start -> quick", "quick -> end when FACT", "quick -> careful -> end"],
    },
    Pattern {
        word: "planner",
        roles: &[
            advises("planner", "Write a short plan that solves the task. Don't solve it."),
            answers("worker", "Follow the plan. Write the answer alone on the last line."),
            answers("finisher", "Finish what is left of the plan. Write the answer alone on the last line."),
        ],
        turns: &["max = 1", "start -> planner -> worker -> finisher -> end"],
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
    for (role, policy) in pattern.roles.iter().zip(policies) {
        let _ = writeln!(out, "agent {} = {item} {{", role.name);
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
