//! The comparison of a replay with its recording, and the rendering of the first difference.

use std::fmt::Write;

use pl_plugin::call_log::Event;
use pl_plugin::{Outcome, Scores};
use pl_types::{EpisodeId, Question, StreamKey, redact_address};

use crate::trace::{EventKind, EventPosition, Trace, TraceEvent};

/// The agreement of a replay with its recording.
#[derive(Debug, Clone, PartialEq)]
pub enum Agreement {
    /// Every prompt token, action, outcome, score, job, query and request equals the recorded one, and so does the
    /// end.
    Full,
    /// Everything is equal up to a call that a wall clock ended in the recording, which can't be reproduced.
    UpToTimeout,
    Differs(Box<Difference>),
}

/// The first event that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub key: StreamKey,
    pub task_id: String,
    /// `None` if the recording ends before.
    pub recorded: Option<ComparedEvent>,
    /// `None` if the replay ends before.
    pub replayed: Option<ComparedEvent>,
}

/// An event that a replay compares.
#[derive(Debug, Clone, PartialEq)]
pub enum ComparedEvent {
    Trace(TraceEvent),
    /// A call from a plugin to the sandbox, to its corpus or to an HTTP host.
    External {
        position: EventPosition,
        function: String,
        call: ExternalCall,
    },
}

/// A call from a plugin to the outside.
#[derive(Debug, Clone, PartialEq)]
pub enum ExternalCall {
    /// Jobs for the sandbox, by their hash.
    Jobs(String),
    /// A query with the name of its corpus, if it has one, and the number of passages that it asks for.
    Query(String, u32),
    /// A question to a policy.
    Question(Question),
    /// An HTTP request.
    Request {
        /// Method and address, without its secrets.
        request: String,
        /// Hash of the whole request. `None` if the plugin dropped it before it was complete.
        hash: Option<String>,
    },
}

/// Compares two traces of one attempt.
pub(super) fn compare(recorded: &Trace, replayed: &Trace) -> Agreement {
    let (mut left, mut right) = (compared_events(recorded), compared_events(replayed));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Agreement::Full,
            (Some(a), Some(b)) if a.equals(&b) => {}
            (Some(ComparedEvent::Trace(event)), _) if ended_by_clock(&event) => {
                return Agreement::UpToTimeout;
            }
            (a, b) => {
                let (key, task_id) = (recorded.key.clone(), recorded.task.id.clone());
                return Agreement::Differs(Box::new(Difference { key, task_id, recorded: a, replayed: b }));
            }
        }
    }
}

fn ended_by_clock(event: &TraceEvent) -> bool {
    matches!(event.kind, EventKind::Fault { reproducible: false, .. })
}

/// The events to compare, in order. Completions are left out, since they come from the recording, and so are
/// drawings, log lines and output, which a plugin may change.
fn compared_events(trace: &Trace) -> impl Iterator<Item = ComparedEvent> + '_ {
    trace.events.iter().flat_map(|event| match &event.kind {
        EventKind::Completion { .. } | EventKind::Drawing(_) => Vec::new(),
        EventKind::CallLog { function, events } => {
            let calls = events.iter().filter_map(ExternalCall::from_event);
            let position = &event.position;
            calls
                .map(|call| ComparedEvent::External {
                    position: position.clone(),
                    function: function.clone(),
                    call,
                })
                .collect()
        }
        _ => vec![ComparedEvent::Trace(event.clone())],
    })
}

impl ExternalCall {
    /// Returns `None` for log lines and output.
    fn from_event(event: &Event) -> Option<ExternalCall> {
        match event {
            Event::Sandbox { jobs, .. } => Some(ExternalCall::Jobs(jobs.clone())),
            Event::Retrieval { corpus, query, count, .. } => {
                let query = match corpus {
                    Some(corpus) => format!("{corpus}: {query}"),
                    None => query.clone(),
                };
                Some(ExternalCall::Query(query, *count))
            }
            Event::Question { question, .. } => Some(ExternalCall::Question(question.clone())),
            Event::Http { request, hash, .. } => {
                // Recordings of earlier versions have the secrets.
                Some(ExternalCall::Request { request: redact_address(request), hash: hash.clone() })
            }
            Event::Log { .. } | Event::Output { .. } | Event::Truncated { .. } => None,
        }
    }

    fn equals(&self, replayed: &ExternalCall) -> bool {
        match (self, replayed) {
            (
                ExternalCall::Request { request: a, hash: recorded },
                ExternalCall::Request { request: b, hash: replayed },
            ) => a == b && (recorded == replayed || recorded.is_none() || replayed.is_none()),
            (a, b) => a == b,
        }
    }

    fn describe(&self) -> String {
        match self {
            ExternalCall::Jobs(_) => "sends jobs to the sandbox".to_owned(),
            ExternalCall::Query(query, count) => {
                format!("searches for {count} passages with {}", shorten(query))
            }
            ExternalCall::Question(question) => format!("asks the policy {}", question.policy),
            ExternalCall::Request { request, .. } => format!("requests {}", shorten(request)),
        }
    }

    /// The part that differs between two calls of one kind.
    fn first_difference(&self, function: &str, replayed: &ExternalCall) -> Option<ValuePair> {
        match (self, replayed) {
            (ExternalCall::Jobs(a), ExternalCall::Jobs(b)) => Some(ValuePair::new(
                format!("the hash of the jobs that `{function}` sends to the sandbox"),
                a,
                b,
            )),
            (ExternalCall::Query(a, _), ExternalCall::Query(b, _)) if a != b => {
                Some(ValuePair::new(format!("the query of `{function}`"), a, b))
            }
            (ExternalCall::Query(_, a), ExternalCall::Query(_, b)) => {
                let name = format!("the number of passages that `{function}` searches for");
                Some(ValuePair::new(name, &a.to_string(), &b.to_string()))
            }
            (ExternalCall::Question(a), ExternalCall::Question(b)) => {
                let name = format!("the question of `{function}` to a policy");
                Some(ValuePair::new(name, &question_text(a), &question_text(b)))
            }
            (
                ExternalCall::Request { request: a, hash: recorded },
                ExternalCall::Request { request: b, hash: replayed },
            ) => {
                if a != b {
                    return Some(ValuePair::new(format!("the HTTP request of `{function}`"), a, b));
                }
                let name = format!("the hash of the request {} of `{function}`", shorten(a));
                Some(ValuePair::new(name, recorded.as_deref()?, replayed.as_deref()?))
            }
            _ => None,
        }
    }
}

/// A question as lines of text.
fn question_text(question: &Question) -> String {
    let mut text = format!("to {}, {} tokens", question.policy, question.max_tokens);
    for message in &question.messages {
        // Writing to a string can't fail.
        let _ = write!(text, "\n{:?}: {}", message.role, message.text);
    }
    text
}

impl ComparedEvent {
    fn equals(&self, replayed: &ComparedEvent) -> bool {
        match (self, replayed) {
            (ComparedEvent::Trace(a), ComparedEvent::Trace(b)) => {
                let same_kind = match (&a.kind, &b.kind) {
                    // Causes name a plugin's build, and the reason of a failed generation is the model's.
                    (EventKind::Fault { stage: a, .. }, EventKind::Fault { stage: b, .. }) => a == b,
                    (a, b) => a == b,
                };
                a.position == b.position && same_kind
            }
            (
                ComparedEvent::External { position: a, function: recorded, call },
                ComparedEvent::External { position: b, function: replayed, call: other },
            ) => a == b && recorded == replayed && call.equals(other),
            _ => false,
        }
    }

    fn position(&self) -> &EventPosition {
        match self {
            ComparedEvent::Trace(event) => &event.position,
            ComparedEvent::External { position, .. } => position,
        }
    }

    /// A short sentence.
    fn describe(&self) -> String {
        let agent = self.position().agent.as_deref().unwrap_or("the environment");
        match self {
            ComparedEvent::External { function, call, .. } => format!("`{function}` {}", call.describe()),
            ComparedEvent::Trace(event) => match &event.kind {
                EventKind::Prompted { .. } => format!("{agent} is prompted"),
                EventKind::Skipped => format!("{agent} skips the turn"),
                EventKind::Completion { .. } => format!("the model completes the prompt of {agent}"),
                EventKind::ToolResults(_) => format!("the tools of {agent} answer"),
                EventKind::PromptTooLong { .. } => format!("the prompt of {agent} is too long"),
                EventKind::Action(action) => format!("{agent} acts: {}", shorten(action)),
                EventKind::Outcome(_) => "the environment steps".to_owned(),
                EventKind::Drawing(_) => "the state is drawn".to_owned(),
                EventKind::Scores(_) => "the step is scored".to_owned(),
                EventKind::Chosen(branch) => format!("the tree continues from candidate {branch}"),
                EventKind::CallLog { function, .. } => format!("`{function}` logs or prints"),
                EventKind::Fault { stage, cause, .. } => format!("{stage} fails: {cause}"),
            },
        }
    }
}

impl Difference {
    /// Renders the difference for people. `text` decodes tokens with the tokenizer of an agent's model.
    pub fn show(&self, text: impl Fn(&str, &[u32]) -> String) -> String {
        let mut lines = format!("episode {}, task {}", EpisodeId::from_key(&self.key), self.task_id);
        if let Some(event) = self.recorded.as_ref().or(self.replayed.as_ref()) {
            lines.push_str(&describe_position(event.position()));
        }
        lines.push_str(": ");
        // Writing to a String can't fail.
        let _ = match self.first_difference(text) {
            Some(ValuePair { name, recorded, replayed }) => {
                let (recorded, replayed, mark) = excerpt(&recorded, &replayed);
                write!(
                    lines,
                    "{name} differs\n  recorded  {recorded}\n  now       {replayed}\n            {mark}"
                )
            }
            None => {
                let describe = |event: &Option<ComparedEvent>| {
                    event.as_ref().map_or_else(|| "the episode is over".to_owned(), ComparedEvent::describe)
                };
                let (recorded, replayed) = (describe(&self.recorded), describe(&self.replayed));
                write!(
                    lines,
                    "the episode takes another course\n  recorded  {recorded}\n  now       {replayed}"
                )
            }
        };
        lines
    }

    /// The value that differs between two events of one kind at one position.
    fn first_difference(&self, text: impl Fn(&str, &[u32]) -> String) -> Option<ValuePair> {
        let (recorded, replayed) = (self.recorded.as_ref()?, self.replayed.as_ref()?);
        if recorded.position() != replayed.position() {
            return None;
        }
        let (recorded, replayed) = match (recorded, replayed) {
            (ComparedEvent::Trace(recorded), ComparedEvent::Trace(replayed)) => (recorded, replayed),
            (
                ComparedEvent::External { function, call, .. },
                ComparedEvent::External { function: other_function, call: other, .. },
            ) if function == other_function => return call.first_difference(function, other),
            _ => return None,
        };
        match (&recorded.kind, &replayed.kind) {
            (EventKind::Prompted { prompt: a, .. }, EventKind::Prompted { prompt: b, .. }) => {
                let agent = recorded.position.agent.as_deref().unwrap_or_default();
                Some(compare_prompts(a, b, |tokens| text(agent, tokens)))
            }
            (EventKind::Action(a), EventKind::Action(b)) => Some(ValuePair::new("the action", a, b)),
            (EventKind::Outcome(a), EventKind::Outcome(b)) => {
                first_unequal(outcome_values(a), outcome_values(b))
            }
            (EventKind::Scores(a), EventKind::Scores(b)) => first_unequal(score_values(a), score_values(b)),
            (EventKind::Chosen(a), EventKind::Chosen(b)) => Some(ValuePair::new(
                "the candidate that the tree continues from",
                &a.to_string(),
                &b.to_string(),
            )),
            _ => None,
        }
    }
}

/// A named value as it was recorded, and as it is in the replay.
struct ValuePair {
    name: String,
    recorded: String,
    replayed: String,
}

impl ValuePair {
    fn new(name: impl Into<String>, recorded: &str, replayed: &str) -> ValuePair {
        ValuePair { name: name.into(), recorded: recorded.to_owned(), replayed: replayed.to_owned() }
    }
}

fn describe_position(position: &EventPosition) -> String {
    let mut text = format!(", node visit {}", position.node_visit);
    if let Some(candidate) = position.candidate {
        let _ = write!(text, ", candidate {}", candidate.branch);
        if candidate.retry > 0 {
            let _ = write!(text, " (attempt {})", candidate.retry + 1);
        }
    }
    if let Some(agent) = &position.agent {
        let _ = write!(text, ", agent {agent}");
    }
    text
}

/// Number of prompt tokens that are shown on either side of the first one that differs.
const TOKENS_AROUND: usize = 24;

/// A prompt around its first token that differs.
fn compare_prompts(recorded: &[u32], replayed: &[u32], text: impl Fn(&[u32]) -> String) -> ValuePair {
    let at = recorded.iter().zip(replayed).take_while(|(a, b)| a == b).count();
    let window = |tokens: &[u32]| {
        tokens[at.saturating_sub(TOKENS_AROUND)..tokens.len().min(at + TOKENS_AROUND)].to_vec()
    };
    let (before, after) = (text(&window(recorded)), text(&window(replayed)));
    let name = format!("token {at} of the prompt");
    if before == after {
        // One text can be written in different tokens.
        let id = |tokens: &[u32]| tokens.get(at).map_or("none".to_owned(), u32::to_string);
        return ValuePair::new(
            format!("the id of {name} (its text is the same)"),
            &id(recorded),
            &id(replayed),
        );
    }
    ValuePair::new(name, &before, &after)
}

/// Pairs of a name and a value.
type NamedValues = Vec<(String, String)>;

fn outcome_values(outcome: &Outcome) -> NamedValues {
    let facts = outcome.facts.iter().map(|(name, value)| (format!("env.{name}"), value.to_string()));
    let mut values: NamedValues = facts.collect();
    values.sort();
    values.push(("`done` of the outcome".to_owned(), outcome.done.to_string()));
    values.push(("`truncated` of the outcome".to_owned(), outcome.truncated.to_string()));
    values.push(("the evidence".to_owned(), outcome.evidence.clone()));
    values
}

fn score_values(scores: &Scores) -> NamedValues {
    let mut values = vec![
        ("the team's reward".to_owned(), scores.team.to_string()),
        ("the team's success".to_owned(), scores.success.to_string()),
    ];
    for own in &scores.local {
        values.push((format!("the reward of {}", own.agent), own.reward.to_string()));
        values.push((format!("the success of {}", own.agent), own.success.to_string()));
    }
    values
}

/// The first value that is not equal, or that only one of the two lists has.
fn first_unequal(recorded: NamedValues, replayed: NamedValues) -> Option<ValuePair> {
    let missing = || ("nothing".to_owned(), String::new());
    let longest = recorded.len().max(replayed.len());
    let (mut recorded, mut replayed) = (recorded.into_iter(), replayed.into_iter());
    (0..longest).find_map(|_| {
        let ((name, a), (other, b)) =
            (recorded.next().unwrap_or_else(missing), replayed.next().unwrap_or_else(missing));
        match name == other {
            true if a == b => None,
            true => Some(ValuePair::new(name, &a, &b)),
            false => Some(ValuePair::new("the list of values", &name, &other)),
        }
    })
}

/// Characters that are shown before the first one that differs.
const CHARACTERS_BEFORE: usize = 40;

/// Characters that are shown from the first one that differs.
const CHARACTERS_AFTER: usize = 60;

/// Two texts around their first character that differs, each on one line, and a mark under that character.
fn excerpt(recorded: &str, replayed: &str) -> (String, String, String) {
    let (recorded, replayed) = (on_one_line(recorded), on_one_line(replayed));
    let at = recorded.iter().zip(&replayed).take_while(|(a, b)| a == b).count();
    let start = at.saturating_sub(CHARACTERS_BEFORE);
    let cut = |text: &[char]| {
        let end = text.len().min(at + CHARACTERS_AFTER);
        let lead = if start > 0 { "…" } else { "" };
        let rest = if end < text.len() { "…" } else { "" };
        format!("{lead}{}{rest}", text[start..end].iter().collect::<String>())
    };
    let mark = " ".repeat(at - start + usize::from(start > 0)) + "^";
    (cut(&recorded), cut(&replayed), mark)
}

fn on_one_line(text: &str) -> Vec<char> {
    let escaped =
        |c: char| -> Vec<char> { if c.is_control() { c.escape_default().collect() } else { vec![c] } };
    text.chars().flat_map(escaped).collect()
}

fn shorten(text: &str) -> String {
    let line = on_one_line(text);
    let kept: String = line.iter().take(CHARACTERS_AFTER).collect();
    if kept.chars().count() < line.len() { format!("{kept}…") } else { kept }
}

#[cfg(test)]
mod tests {
    use pl_types::Phase;

    use super::*;
    use crate::trace::CandidateAttempt;

    fn difference(recorded: Option<EventKind>, replayed: Option<EventKind>) -> Difference {
        let position = EventPosition {
            node_visit: 2,
            candidate: Some(CandidateAttempt { branch: 1, retry: 1 }),
            agent: Some("bass".to_owned()),
        };
        let event = |kind| ComparedEvent::Trace(TraceEvent { position: position.clone(), kind });
        Difference {
            key: StreamKey { seed: 0, phase: Phase::Train, step: 12, task: 3, sample: 0, attempt: 1 },
            task_id: "train-3".to_owned(),
            recorded: recorded.map(event),
            replayed: replayed.map(event),
        }
    }

    fn show(recorded: Option<EventKind>, replayed: Option<EventKind>) -> String {
        let letters =
            |_: &str, tokens: &[u32]| tokens.iter().map(|&token| char::from(token as u8)).collect::<String>();
        difference(recorded, replayed).show(letters)
    }

    #[test]
    fn a_prompt_is_shown_around_its_first_token_that_differs() {
        let prompted =
            |text: &str| EventKind::Prompted { visit: 0, prompt: text.bytes().map(u32::from).collect() };
        let recorded = prompted("abcdefghijklmnopqrstuvwxyz\n0123456789 then");
        let replayed = prompted("abcdefghijklmnopqrstuvwxyz\n0123456789 now");
        assert_eq!(
            show(Some(recorded), Some(replayed)),
            "episode 12.3.0#1, task train-3, node visit 2, candidate 1 (attempt 2), agent bass: \
             token 38 of the prompt differs
  recorded  opqrstuvwxyz\\n0123456789 then
  now       opqrstuvwxyz\\n0123456789 now
                                     ^"
        );
    }

    #[test]
    fn long_texts_are_cut_on_both_sides() {
        let action = |c: char| EventKind::Action("x".repeat(100) + &c.to_string() + &"y".repeat(100));
        let shown = show(Some(action('1')), Some(action('2')));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[1], format!("  recorded  …{}1{}…", "x".repeat(40), "y".repeat(59)));
        assert_eq!(lines[3].chars().count(), "  recorded  …".chars().count() + 40 + 1);
    }

    #[test]
    fn the_value_that_differs_is_named() {
        let outcome = |lines: u32| {
            let facts = serde_json::json!({ "lines": lines, "singing": true });
            EventKind::Outcome(Outcome {
                done: false,
                truncated: false,
                facts: facts.as_object().cloned().unwrap(),
                evidence: "[]".to_owned(),
            })
        };
        let shown = show(Some(outcome(1)), Some(outcome(2)));
        assert!(shown.contains("env.lines differs\n  recorded  1\n  now       2"), "{shown}");
    }

    #[test]
    fn another_course_is_described() {
        let action = EventKind::Action("\"a\"".to_owned());
        let fault =
            EventKind::Fault { stage: "apply".into(), cause: "it trapped".into(), reproducible: true };
        let shown = show(Some(action), Some(fault));
        assert!(
            shown.ends_with("recorded  bass acts: \"a\"\n  now       apply fails: it trapped"),
            "{shown}"
        );
        let shown = show(None, Some(EventKind::Skipped));
        assert!(shown.ends_with("recorded  the episode is over\n  now       bass skips the turn"), "{shown}");
    }
}
