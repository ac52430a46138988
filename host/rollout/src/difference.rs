//! Where a replay first departs from its recording, and how to show it.

use std::fmt::Write;

use pl_plugin::{Outcome, Scores};

use crate::Place;
use crate::trace::{Entry, Position, What};

/// The first thing that went otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub place: Place,
    pub task_id: String,
    /// None: the recording ends before.
    pub recorded: Option<Moment>,
    /// None: it ends before now.
    pub now: Option<Moment>,
}

/// Something that a replay compares.
#[derive(Debug, Clone, PartialEq)]
pub enum Moment {
    Entry(Entry),
    /// A plugin asked something of the world.
    Sent {
        at: Position,
        function: String,
        sent: Sent,
    },
}

/// What a plugin asked of the world.
#[derive(Debug, Clone, PartialEq)]
pub enum Sent {
    /// Jobs for the sandbox, by their hash.
    Jobs(String),
    /// A request over HTTP: method and address, and the hash of all of it.
    Request {
        request: String,
        /// None: the plugin did not wait until it was whole.
        hash: Option<String>,
    },
}

impl Sent {
    fn equals(&self, now: &Sent) -> bool {
        match (self, now) {
            (Sent::Request { request: a, hash: then }, Sent::Request { request: b, hash: now }) => {
                a == b && (then == now || then.is_none() || now.is_none())
            }
            (a, b) => a == b,
        }
    }

    fn name(&self) -> String {
        match self {
            Sent::Jobs(_) => "hands jobs to the sandbox".to_owned(),
            Sent::Request { request, .. } => format!("asks {}", short(request)),
        }
    }

    /// What differs between two of one kind.
    fn inner(&self, function: &str, now: &Sent) -> Option<Inner> {
        match (self, now) {
            (Sent::Jobs(a), Sent::Jobs(b)) => {
                Some(Inner::new(format!("what `{function}` hands to the sandbox (by hash)"), a, b))
            }
            (Sent::Request { request: a, hash: then }, Sent::Request { request: b, hash: now }) => {
                if a != b {
                    return Some(Inner::new(format!("what `{function}` asks"), a, b));
                }
                let what = format!("what `{function}` sends with {} (by hash)", short(a));
                Some(Inner::new(what, then.as_deref()?, now.as_deref()?))
            }
            _ => None,
        }
    }
}

impl Moment {
    pub(crate) fn equals(&self, now: &Moment) -> bool {
        let (a, b) = match (self, now) {
            (Moment::Entry(a), Moment::Entry(b)) => (a, b),
            (
                Moment::Sent { at: a, function: then, sent },
                Moment::Sent { at: b, function: now, sent: other },
            ) => return a == b && then == now && sent.equals(other),
            _ => return false,
        };
        let what = match (&a.what, &b.what) {
            // Words name a plugin's build, and how a request was not served is the model's affair.
            (What::Fault { stage: a, .. }, What::Fault { stage: b, .. }) => a == b,
            (a, b) => a == b,
        };
        a.at == b.at && what
    }

    fn at(&self) -> &Position {
        match self {
            Moment::Entry(entry) => &entry.at,
            Moment::Sent { at, .. } => at,
        }
    }

    /// In a few words.
    fn name(&self) -> String {
        let agent = self.at().agent.as_deref().unwrap_or("nobody");
        match self {
            Moment::Sent { function, sent, .. } => format!("`{function}` {}", sent.name()),
            Moment::Entry(entry) => match &entry.what {
                What::Asked { .. } => format!("{agent} is asked"),
                What::Skipped => format!("{agent} sits the turn out"),
                What::Said { .. } => format!("the model answers {agent}"),
                What::Means(action) => format!("{agent} does {}", short(action)),
                What::Outcome(_) => "the environment steps".to_owned(),
                What::Scores(_) => "the step is scored".to_owned(),
                What::Chosen(branch) => format!("the tree goes on from candidate {branch}"),
                What::Did { function, .. } => format!("`{function}` logs or prints"),
                What::Fault { stage, cause, .. } => format!("{stage} fails: {cause}"),
            },
        }
    }
}

impl Difference {
    /// For people. `text` gives the text of tokens as an agent's model reads them.
    pub fn show(&self, text: impl Fn(&str, &[u32]) -> String) -> String {
        let mut lines = format!("episode {}, task {}", self.place.id(), self.task_id);
        if let Some(moment) = self.recorded.as_ref().or(self.now.as_ref()) {
            lines.push_str(&whereabouts(moment.at()));
        }
        lines.push_str(": ");
        // Writing to a String can't fail.
        let _ = match self.inner(text) {
            Some(Inner { what, recorded, now }) => {
                let (recorded, now, mark) = excerpt(&recorded, &now);
                write!(lines, "{what} differs\n  recorded  {recorded}\n  now       {now}\n            {mark}")
            }
            None => {
                let name = |moment: &Option<Moment>| {
                    moment.as_ref().map_or_else(|| "the episode is over".to_owned(), Moment::name)
                };
                let (recorded, now) = (name(&self.recorded), name(&self.now));
                write!(lines, "it goes another way\n  recorded  {recorded}\n  now       {now}")
            }
        };
        lines
    }

    /// What differs within two moments of one kind at one place.
    fn inner(&self, text: impl Fn(&str, &[u32]) -> String) -> Option<Inner> {
        let (then, now) = (self.recorded.as_ref()?, self.now.as_ref()?);
        if then.at() != now.at() {
            return None;
        }
        let (then, now) = match (then, now) {
            (Moment::Entry(then), Moment::Entry(now)) => (then, now),
            (Moment::Sent { function, sent: then, .. }, Moment::Sent { function: other, sent: now, .. }) => {
                return if function == other { then.inner(function, now) } else { None };
            }
            _ => return None,
        };
        match (&then.what, &now.what) {
            (What::Asked { prompt: a, .. }, What::Asked { prompt: b, .. }) => {
                let agent = then.at.agent.as_deref().unwrap_or_default();
                Some(prompts(a, b, |tokens| text(agent, tokens)))
            }
            (What::Means(a), What::Means(b)) => Some(Inner::new("the action", a, b)),
            (What::Outcome(a), What::Outcome(b)) => first(outcome(a), outcome(b)),
            (What::Scores(a), What::Scores(b)) => first(scores(a), scores(b)),
            (What::Chosen(a), What::Chosen(b)) => {
                Some(Inner::new("the candidate that the tree goes on from", &a.to_string(), &b.to_string()))
            }
            _ => None,
        }
    }
}

/// A text then and now.
struct Inner {
    what: String,
    recorded: String,
    now: String,
}

impl Inner {
    fn new(what: impl Into<String>, recorded: &str, now: &str) -> Inner {
        Inner { what: what.into(), recorded: recorded.to_owned(), now: now.to_owned() }
    }
}

fn whereabouts(at: &Position) -> String {
    let mut words = format!(", stop {}", at.stop);
    if let Some(candidate) = at.candidate {
        let _ = write!(words, ", candidate {}", candidate.branch);
        if candidate.retry > 0 {
            let _ = write!(words, " (try {})", candidate.retry + 1);
        }
    }
    if let Some(agent) = &at.agent {
        let _ = write!(words, ", agent {agent}");
    }
    words
}

/// Tokens of a prompt that are shown on either side of the first that differs.
const AROUND: usize = 24;

/// A prompt around its first token that differs.
fn prompts(then: &[u32], now: &[u32], text: impl Fn(&[u32]) -> String) -> Inner {
    let at = then.iter().zip(now).take_while(|(a, b)| a == b).count();
    let window = |tokens: &[u32]| tokens[at.saturating_sub(AROUND)..tokens.len().min(at + AROUND)].to_vec();
    let (recorded, shown) = (text(&window(then)), text(&window(now)));
    let what = format!("token {at} of the prompt");
    if recorded == shown {
        // One text may be written in different tokens.
        let id = |tokens: &[u32]| tokens.get(at).map_or("none".to_owned(), u32::to_string);
        return Inner::new(format!("{what} (of one text: its id)"), &id(then), &id(now));
    }
    Inner::new(what, &recorded, &shown)
}

type Parts = Vec<(String, String)>;

fn outcome(outcome: &Outcome) -> Parts {
    let facts = outcome.facts.iter().map(|(name, value)| (format!("env.{name}"), value.to_string()));
    let mut parts: Parts = facts.collect();
    parts.sort();
    parts.push(("`done` of the outcome".to_owned(), outcome.done.to_string()));
    parts.push(("`truncated` of the outcome".to_owned(), outcome.truncated.to_string()));
    parts.push(("the evidence".to_owned(), outcome.evidence.clone()));
    parts
}

fn scores(scores: &Scores) -> Parts {
    let mut parts = vec![
        ("the team's reward".to_owned(), scores.team.to_string()),
        ("the team's success".to_owned(), scores.success.to_string()),
    ];
    for own in &scores.local {
        parts.push((format!("the reward of {}", own.agent), own.reward.to_string()));
        parts.push((format!("the success of {}", own.agent), own.success.to_string()));
    }
    parts
}

/// The first part that is not the same, or not there.
fn first(then: Parts, now: Parts) -> Option<Inner> {
    let missing = || ("the number of parts".to_owned(), String::new());
    let longest = then.len().max(now.len());
    let (mut then, mut now) = (then.into_iter(), now.into_iter());
    (0..longest).find_map(|_| {
        let ((name, a), (other, b)) =
            (then.next().unwrap_or_else(missing), now.next().unwrap_or_else(missing));
        match name == other {
            true if a == b => None,
            true => Some(Inner::new(name, &a, &b)),
            false => Some(Inner::new("what is told", &name, &other)),
        }
    })
}

/// Characters shown before the first that differs, and from it on.
const BEFORE: usize = 40;
const AFTER: usize = 60;

/// Two texts around the first character that differs, each on one line, and a mark under that character.
fn excerpt(then: &str, now: &str) -> (String, String, String) {
    let (then, now) = (on_one_line(then), on_one_line(now));
    let at = then.iter().zip(&now).take_while(|(a, b)| a == b).count();
    let start = at.saturating_sub(BEFORE);
    let cut = |text: &[char]| {
        let end = text.len().min(at + AFTER);
        let lead = if start > 0 { "…" } else { "" };
        let rest = if end < text.len() { "…" } else { "" };
        format!("{lead}{}{rest}", text[start..end].iter().collect::<String>())
    };
    let mark = " ".repeat(at - start + usize::from(start > 0)) + "^";
    (cut(&then), cut(&now), mark)
}

fn on_one_line(text: &str) -> Vec<char> {
    let escaped =
        |c: char| -> Vec<char> { if c.is_control() { c.escape_default().collect() } else { vec![c] } };
    text.chars().flat_map(escaped).collect()
}

fn short(text: &str) -> String {
    let line = on_one_line(text);
    let kept: String = line.iter().take(AFTER).collect();
    if kept.chars().count() < line.len() { format!("{kept}…") } else { kept }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Phase;
    use crate::trace::Candidate;

    fn difference(recorded: Option<What>, now: Option<What>) -> Difference {
        let at = Position {
            stop: 2,
            candidate: Some(Candidate { branch: 1, retry: 1 }),
            agent: Some("bass".to_owned()),
        };
        let moment = |what| Moment::Entry(Entry { at: at.clone(), what });
        Difference {
            place: Place { seed: 0, phase: Phase::Train, step: 12, task: 3, sample: 0, attempt: 1 },
            task_id: "train-3".to_owned(),
            recorded: recorded.map(moment),
            now: now.map(moment),
        }
    }

    fn shown(difference: &Difference) -> String {
        let letters =
            |_: &str, tokens: &[u32]| tokens.iter().map(|&token| char::from(token as u8)).collect::<String>();
        difference.show(letters)
    }

    #[test]
    fn a_prompt_is_shown_around_its_first_token_that_differs() {
        let asked = |text: &str| What::Asked { visit: 0, prompt: text.bytes().map(u32::from).collect() };
        let then = asked("abcdefghijklmnopqrstuvwxyz\n0123456789 then");
        let now = asked("abcdefghijklmnopqrstuvwxyz\n0123456789 now");
        assert_eq!(
            shown(&difference(Some(then), Some(now))),
            "episode 12.3.0#1, task train-3, stop 2, candidate 1 (try 2), agent bass: token 38 of the prompt differs
  recorded  opqrstuvwxyz\\n0123456789 then
  now       opqrstuvwxyz\\n0123456789 now
                                     ^"
        );
    }

    #[test]
    fn long_texts_are_cut_on_both_sides() {
        let action = |c: char| What::Means("x".repeat(100) + &c.to_string() + &"y".repeat(100));
        let said = shown(&difference(Some(action('1')), Some(action('2'))));
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[1], format!("  recorded  …{}1{}…", "x".repeat(40), "y".repeat(59)));
        assert_eq!(lines[3].chars().count(), "  recorded  …".chars().count() + 40 + 1);
    }

    #[test]
    fn the_part_that_differs_is_named() {
        let outcome = |lines: u32| {
            let facts = serde_json::json!({ "lines": lines, "singing": true });
            What::Outcome(Outcome {
                done: false,
                truncated: false,
                facts: facts.as_object().cloned().unwrap(),
                evidence: "[]".to_owned(),
            })
        };
        let said = shown(&difference(Some(outcome(1)), Some(outcome(2))));
        assert!(said.contains("env.lines differs\n  recorded  1\n  now       2"), "{said}");
    }

    #[test]
    fn another_way_is_told_in_words() {
        let fault = What::Fault { stage: "apply".into(), cause: "it trapped".into(), reproducible: true };
        let said = shown(&difference(Some(What::Means("\"a\"".to_owned())), Some(fault)));
        assert!(said.ends_with("recorded  bass does \"a\"\n  now       apply fails: it trapped"), "{said}");
        let said = shown(&difference(None, Some(What::Skipped)));
        assert!(
            said.ends_with("recorded  the episode is over\n  now       bass sits the turn out"),
            "{said}"
        );
    }
}
