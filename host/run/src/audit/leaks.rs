//! Evidence in prompts: agents read what only the reward should see.

use std::collections::{BTreeMap, BTreeSet};

use pl_rollout::{EventKind, Trace};
use serde_json::Value;

use super::adversary::decode;

/// Shortest piece of evidence that is looked for in prompts, in characters.
const SHORTEST_EVIDENCE: usize = 4;

/// Evidence of tasks, and the tasks whose prompts hold it.
pub(super) struct Leaks {
    /// Pieces of evidence with their paths, by the id of the task.
    evidence: BTreeMap<String, BTreeSet<(String, String)>>,
    /// Ids of the tasks, by the path of the evidence.
    tasks: BTreeMap<String, BTreeSet<String>>,
}

impl Leaks {
    /// Collects the evidence of episodes in which agents give empty answers, so that it comes from the tasks alone.
    pub fn new(traces: &[Trace]) -> Leaks {
        let mut evidence: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
        for trace in traces {
            let own = evidence.entry(trace.task.id.clone()).or_default();
            for event in &trace.events {
                let EventKind::Outcome(outcome) = &event.kind else { continue };
                if let Ok(value) = serde_json::from_str(&outcome.evidence) {
                    pieces("", &value, &mut |path, piece| {
                        if piece.chars().count() >= SHORTEST_EVIDENCE {
                            own.insert((path.to_owned(), piece.to_owned()));
                        }
                    });
                }
            }
        }
        Leaks { evidence, tasks: BTreeMap::new() }
    }

    /// Looks for the evidence in all prompts of episodes. A prompt may quote earlier answers of the episode, even right ones.
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

    /// Returns the share of the tasks whose prompts hold a piece of evidence, by its path.
    pub fn shares(&self) -> BTreeMap<String, f64> {
        let share = |tasks: &BTreeSet<String>| tasks.len() as f64 / self.evidence.len().max(1) as f64;
        self.tasks.iter().map(|(path, tasks)| (path.clone(), share(tasks))).collect()
    }
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
    use pl_dsl::workflow::Rollout;
    use pl_plugin::{Outcome, Task};
    use pl_rollout::{EpisodeEnd, EventPosition, TraceEvent};
    use pl_types::{Finish, Phase, StreamKey};
    use serde_json::{Map, json};

    use super::*;

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
        let position = EventPosition { node_visit: 0, candidate: None, agent: None };
        let event = |kind| TraceEvent { position: position.clone(), kind };
        Trace {
            key: StreamKey { seed: 0, phase: Phase::Play, step: 0, task: 0, sample: 0, attempt: 0 },
            scenario: None,
            design: None,
            task: Task { id: task.to_owned(), data: "{}".to_owned() },
            mode: Rollout::Flat,
            candidates: 1,
            suspends: false,
            events: kinds.into_iter().map(event).collect(),
            end: EpisodeEnd { success: false, truncated: false, turns: 1, tokens: 0, failure: None },
        }
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
        assert!(leaks.shares().is_empty());
        // An answer that is right by chance stands in the next prompt.
        leaks.find(&[trace("a", vec![prompt("q"), completion("1234"), prompt("it was 1234")])]);
        assert!(leaks.shares().is_empty());
        leaks.find(&[trace("a", vec![prompt("q"), completion("5"), prompt("not 5 but 1234")])]);
        assert_eq!(leaks.shares(), BTreeMap::from([("/gold".to_owned(), 0.5)]));
    }
}
