//! Evidence in prompts: agents read what only the reward should see.
//!
//! A long piece of evidence in a prompt is a leak. A short one, such as `7`, stands in many prompts by chance: it is a leak
//! if prompts hold the evidence of their own task more often than that of others.

use std::collections::{BTreeMap, BTreeSet};

use pl_rollout::{EventKind, Trace};
use serde_json::Value;

use super::adversary::decode;

/// Shortest piece of evidence that stands in no prompt by chance, in characters.
const LONG_EVIDENCE: usize = 4;

/// Fewest tasks with short evidence of a path that are compared: with less, shares that differ by half differ by chance.
const FEWEST_TASKS: usize = 8;

/// Pieces of evidence with their paths, by the id of the task.
type Evidence = BTreeMap<String, BTreeSet<(String, String)>>;

/// Evidence that prompts hold.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Leak {
    /// Path of the evidence.
    pub path: String,
    /// Share of the tasks whose prompts hold their own evidence. Of several short pieces, each counts in part.
    pub share: f64,
    /// Share of the tasks whose prompts hold the evidence of another task. `None` for long evidence.
    pub others: Option<f64>,
}

impl Leak {
    /// Returns the share of the tasks whose prompts hold their own evidence, beyond what is expected by chance.
    pub fn excess(&self) -> f64 {
        self.share - self.others.unwrap_or(0.0)
    }
}

/// Evidence of tasks, and the tasks whose prompts hold it.
pub(super) struct Leaks {
    /// Long evidence.
    evidence: Evidence,
    /// Ids of the tasks, by the path of the long evidence.
    tasks: BTreeMap<String, BTreeSet<String>>,
    /// Short evidence in prompts.
    short: Vec<Leak>,
}

impl Leaks {
    /// Collects the evidence of episodes in which agents give empty answers, so that it comes from the tasks alone. Short
    /// evidence is looked for in their prompts: other answers would hold it by chance.
    pub fn new(traces: &[Trace]) -> Leaks {
        let (mut evidence, mut short) = (Evidence::new(), Evidence::new());
        for trace in traces {
            let own = evidence.entry(trace.task.id.clone()).or_default();
            let own_short = short.entry(trace.task.id.clone()).or_default();
            for event in &trace.events {
                let EventKind::Outcome(outcome) = &event.kind else { continue };
                if let Ok(value) = serde_json::from_str(&outcome.evidence) {
                    pieces("", &value, &mut |path, piece| {
                        let kept = match piece.chars().count() {
                            0 => return,
                            LONG_EVIDENCE.. => &mut *own,
                            _ => &mut *own_short,
                        };
                        kept.insert((path.to_owned(), piece.to_owned()));
                    });
                }
            }
        }
        let short = short_leaks(&short, &words_in_prompts(&short, traces));
        Leaks { evidence, tasks: BTreeMap::new(), short }
    }

    /// Looks for the long evidence in all prompts of episodes. A prompt may quote earlier answers of the episode, even right
    /// ones.
    pub fn find(&mut self, traces: &[Trace]) {
        for trace in traces {
            let Some(evidence) = self.evidence.get(&trace.task.id) else { continue };
            let mut answers = String::new();
            for event in &trace.events {
                let prompt = match &event.kind {
                    EventKind::Completion { text, .. } => {
                        answers.push_str(text);
                        None
                    }
                    EventKind::Prompted { prompt, .. } => decode(prompt),
                    _ => None,
                };
                let Some(prompt) = prompt.map(|prompt| prompt.text()) else { continue };
                for (path, piece) in evidence {
                    if prompt.contains(piece.as_str()) && !answers.contains(piece.as_str()) {
                        self.tasks.entry(path.clone()).or_default().insert(trace.task.id.clone());
                    }
                }
            }
        }
    }

    /// Returns the evidence that was found in prompts.
    pub fn found(&self) -> Vec<Leak> {
        let share = |tasks: &BTreeSet<String>| tasks.len() as f64 / self.evidence.len().max(1) as f64;
        let long = |(path, tasks): (&String, &BTreeSet<String>)| Leak {
            path: path.clone(),
            share: share(tasks),
            others: None,
        };
        self.tasks.iter().map(long).chain(self.short.iter().cloned()).collect()
    }
}

/// Returns the pieces of evidence of any task that stand as words in the prompts of a task, by its id.
fn words_in_prompts<'e>(evidence: &'e Evidence, traces: &[Trace]) -> BTreeMap<String, BTreeSet<&'e str>> {
    let pieces: BTreeSet<&str> = evidence.values().flatten().map(|(_, piece)| piece.as_str()).collect();
    let mut words: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for trace in traces {
        let own = words.entry(trace.task.id.clone()).or_default();
        for event in &trace.events {
            let EventKind::Prompted { prompt, .. } = &event.kind else { continue };
            let Some(text) = decode(prompt).map(|prompt| prompt.text()) else { continue };
            own.extend(pieces.iter().filter(|piece| holds_word(&text, piece)));
        }
    }
    words
}

/// Returns true if a text holds a piece that is no part of a longer word or number.
fn holds_word(text: &str, piece: &str) -> bool {
    let continues = |next: Option<char>| next.is_some_and(char::is_alphanumeric);
    text.match_indices(piece).any(|(start, found)| {
        let (before, after) = (&text[..start], &text[start + found.len()..]);
        !continues(before.chars().next_back()) && !continues(after.chars().next())
    })
}

/// Compares, for each path, how often the prompts of a task hold its own evidence and that of other tasks.
fn short_leaks(evidence: &Evidence, words: &BTreeMap<String, BTreeSet<&str>>) -> Vec<Leak> {
    let mut by_path: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for (task, pieces) in evidence {
        for (path, piece) in pieces {
            by_path.entry(path).or_default().entry(task).or_default().insert(piece);
        }
    }
    let mut leaks = Vec::new();
    for (path, tasks) in by_path {
        let all: BTreeSet<&str> = tasks.values().flatten().copied().collect();
        let compared: Vec<(f64, f64)> = tasks
            .iter()
            .filter_map(|(task, own)| {
                let held = words.get(*task)?;
                let share = |pieces: &BTreeSet<&str>| {
                    let found = pieces.intersection(held).count();
                    (!pieces.is_empty()).then(|| found as f64 / pieces.len() as f64)
                };
                // What all tasks have in common tells nothing.
                Some((share(own)?, share(&all.difference(own).copied().collect())?))
            })
            .collect();
        if compared.len() < FEWEST_TASKS {
            continue;
        }
        let mean = |shares: f64| shares / compared.len() as f64;
        leaks.push(Leak {
            path: path.to_owned(),
            share: mean(compared.iter().map(|(own, _)| own).sum()),
            others: Some(mean(compared.iter().map(|(_, others)| others).sum())),
        });
    }
    leaks
}

/// Calls `found` with the path and the text of every text and number within a value. Items of lists share a path.
fn pieces(path: &str, value: &Value, found: &mut dyn FnMut(&str, &str)) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| pieces(&format!("{path}/{key}"), value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| pieces(&format!("{path}/*"), item, found)),
        Value::String(text) => found(path, text.trim()),
        Value::Number(number) => found(path, &number.to_string()),
        Value::Bool(_) | Value::Null => {}
    }
}

#[cfg(test)]
mod tests {
    use pl_plugin::Outcome;
    use pl_types::Finish;
    use serde_json::{Map, json};

    use super::*;
    use crate::audit::fixtures;

    fn prompt(text: &str) -> EventKind {
        let prompt = json!({ "agent": 0, "visit": 0, "view": "", "messages": [["user", text]] });
        EventKind::Prompted { visit: 0, prompt: prompt.to_string().bytes().map(u32::from).collect() }
    }

    fn completion(text: &str) -> EventKind {
        EventKind::Completion { text: text.to_owned(), finish: Finish::Stop, tokens: Vec::new() }
    }

    fn outcome(evidence: Value) -> EventKind {
        let evidence = evidence.to_string();
        EventKind::Outcome(Outcome { done: false, truncated: false, facts: Map::new(), evidence })
    }

    fn trace(task: &str, kinds: Vec<EventKind>) -> Trace {
        fixtures::trace(task, None, kinds)
    }

    #[test]
    fn pieces_of_evidence_have_paths() {
        let mut found = Vec::new();
        let evidence = json!({ "gold": " 1234 ", "tests": [{ "in": 7 }, { "in": "x" }], "ok": true });
        pieces("", &evidence, &mut |path, piece| found.push(format!("{path}={piece}")));
        assert_eq!(found, ["/gold=1234", "/tests/*/in=7", "/tests/*/in=x"]);
    }

    #[test]
    fn later_prompts_leak_too_but_quoted_answers_do_not() {
        let gold = || outcome(json!({ "gold": "1234" }));
        let empty = [trace("a", vec![prompt("q"), gold()]), trace("b", vec![prompt("q"), gold()])];
        let mut leaks = Leaks::new(&empty);
        leaks.find(&empty);
        assert!(leaks.found().is_empty());
        // An answer that is right by chance stands in the next prompt.
        leaks.find(&[trace("a", vec![prompt("q"), completion("1234"), prompt("it was 1234")])]);
        assert!(leaks.found().is_empty());
        leaks.find(&[trace("a", vec![prompt("q"), completion("5"), prompt("not 5 but 1234")])]);
        assert_eq!(leaks.found(), [Leak { path: "/gold".to_owned(), share: 0.5, others: None }]);
    }

    /// The prompt of each of `tasks` tasks, whose gold answers are their numbers.
    fn numbered(tasks: usize, text: impl Fn(usize) -> String) -> Vec<Leak> {
        let episode = |number: usize| {
            let gold = outcome(json!({ "gold": number, "level": 3 }));
            trace(&number.to_string(), vec![prompt(&text(number)), gold])
        };
        Leaks::new(&(0..tasks).map(episode).collect::<Vec<_>>()).found()
    }

    #[test]
    fn short_evidence_leaks_if_prompts_hold_that_of_their_own_task_alone() {
        let gold = |share: f64, others: f64| Leak { path: "/gold".to_owned(), share, others: Some(others) };
        assert_eq!(numbered(10, |number| format!("it is {number}.")), [gold(1.0, 0.0)]);
        // All possible answers, and a number within others.
        assert_eq!(numbered(10, |_| "0 1 2 3 4 5 6 7 8 9".to_owned()), [gold(1.0, 1.0)]);
        assert_eq!(numbered(10, |number| format!("1{number} a{number}")), [gold(0.0, 0.0)]);
        assert!(numbered(4, |number| format!("it is {number}")).is_empty(), "too few tasks");
    }
}
