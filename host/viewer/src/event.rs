//! The parts of a trace that the viewer shows, read from a line of a trace file.
//!
//! The types mirror those of `pl_rollout::Trace`. Unknown events are left out, so that runs of later versions can
//! be viewed. [`Detail`] says how much of an event is kept: a search through a large file keeps texts only.

use std::fmt;
use std::marker::PhantomData;

use pl_types::StreamKey;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Detail in which a trace is read.
pub(crate) trait Detail {
    /// Texts: tasks, completions, actions.
    type Text: DeserializeOwned;
    /// Token ids.
    type Ids: DeserializeOwned;
    /// Events of plugins and facts of outcomes.
    type Data: DeserializeOwned;
}

/// Texts without token ids.
pub(crate) struct Texts;

impl Detail for Texts {
    type Text = String;
    type Ids = IgnoredAny;
    type Data = IgnoredAny;
}

/// All that is recorded.
pub(crate) struct Full;

impl Detail for Full {
    type Text = String;
    type Ids = Vec<u32>;
    type Data = Value;
}

/// An attempt at an episode (flat) or a tree.
#[derive(Deserialize)]
#[serde(bound = "")]
pub(crate) struct TraceRecord<D: Detail> {
    pub(crate) key: StreamKey,
    /// `None` in workflows without scenarios, and in traces of earlier versions.
    #[serde(default)]
    pub(crate) scenario: Option<String>,
    /// Design that wrote the team, if one did.
    #[serde(default)]
    pub(crate) design: Option<D::Text>,
    pub(crate) task: TaskRecord<D>,
    pub(crate) mode: Mode,
    pub(crate) events: Vec<EventRecord<D>>,
    pub(crate) end: EndRecord,
}

/// Form of sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    Flat,
    Tree,
}

#[derive(Deserialize)]
#[serde(bound = "")]
pub(crate) struct TaskRecord<D: Detail> {
    pub(crate) id: String,
    pub(crate) data: D::Text,
}

#[derive(Deserialize)]
pub(crate) struct EndRecord {
    pub(crate) success: bool,
    pub(crate) truncated: bool,
    pub(crate) tokens: u64,
    #[serde(default)]
    pub(crate) failure: Option<String>,
}

#[derive(Deserialize)]
#[serde(bound = "")]
pub(crate) struct EventRecord<D: Detail> {
    pub(crate) position: Position,
    pub(crate) kind: Kind<D>,
}

#[derive(Deserialize)]
pub(crate) struct Position {
    pub(crate) node_visit: u32,
    #[serde(default)]
    pub(crate) candidate: Option<CandidateRecord>,
    #[serde(default)]
    pub(crate) agent: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct CandidateRecord {
    pub(crate) branch: u32,
    pub(crate) retry: u32,
}

/// Kind of an event.
pub(crate) enum Kind<D: Detail> {
    Skipped,
    Prompted(PromptRecord<D>),
    Completion(CompletionRecord<D>),
    /// Results of the tool calls of the completion before.
    ToolResults(Vec<D::Text>),
    Action(D::Text),
    Outcome(OutcomeRecord<D>),
    /// An SVG document of a plugin: untrusted.
    Drawing(D::Text),
    Scores(ScoresRecord),
    Chosen(u32),
    CallLog(CallLogRecord<D>),
    Fault(FaultRecord),
    /// An event of a later version.
    Unknown,
}

#[derive(Deserialize)]
#[serde(bound = "")]
pub(crate) struct PromptRecord<D: Detail> {
    pub(crate) visit: u32,
    pub(crate) prompt: D::Ids,
}

#[derive(Deserialize)]
#[serde(bound = "")]
pub(crate) struct CompletionRecord<D: Detail> {
    pub(crate) text: D::Text,
    pub(crate) finish: String,
    pub(crate) tokens: D::Ids,
}

#[derive(Deserialize)]
#[serde(bound = "")]
pub(crate) struct OutcomeRecord<D: Detail> {
    pub(crate) done: bool,
    pub(crate) truncated: bool,
    pub(crate) facts: D::Data,
    pub(crate) evidence: D::Text,
}

/// Scores of a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ScoresRecord {
    pub(crate) team: f64,
    pub(crate) local: Vec<AgentScoreRecord>,
    pub(crate) success: bool,
}

/// Score of one agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AgentScoreRecord {
    pub(crate) agent: String,
    pub(crate) reward: f64,
    pub(crate) success: bool,
}

#[derive(Deserialize)]
#[serde(bound = "")]
pub(crate) struct CallLogRecord<D: Detail> {
    pub(crate) function: String,
    pub(crate) events: D::Data,
}

/// Failure of an episode or a candidate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FaultRecord {
    pub(crate) stage: String,
    pub(crate) cause: String,
}

impl<'de, D: Detail> Deserialize<'de> for Kind<D> {
    fn deserialize<R: Deserializer<'de>>(deserializer: R) -> Result<Self, R::Error> {
        deserializer.deserialize_any(KindVisitor(PhantomData))
    }
}

/// Reads a name, or an object with one field.
struct KindVisitor<D>(PhantomData<D>);

impl<'de, D: Detail> Visitor<'de> for KindVisitor<D> {
    type Value = Kind<D>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_str<E>(self, name: &str) -> Result<Kind<D>, E> {
        Ok(if name == "skipped" { Kind::Skipped } else { Kind::Unknown })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind<D>, A::Error> {
        let mut kind = Kind::Unknown;
        while let Some(name) = map.next_key::<String>()? {
            kind = match name.as_str() {
                "prompted" => Kind::Prompted(map.next_value()?),
                "completion" => Kind::Completion(map.next_value()?),
                "tool_results" => Kind::ToolResults(map.next_value()?),
                "action" => Kind::Action(map.next_value()?),
                "outcome" => Kind::Outcome(map.next_value()?),
                "drawing" => Kind::Drawing(map.next_value()?),
                "scores" => Kind::Scores(map.next_value()?),
                "chosen" => Kind::Chosen(map.next_value()?),
                "call_log" => Kind::CallLog(map.next_value()?),
                "fault" => Kind::Fault(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    Kind::Unknown
                }
            };
        }
        Ok(kind)
    }
}
