//! Row of an attempt at an episode: what a table of many episodes shows, without their texts.
//!
//! A trace file ends with the rows of its lines ([`crate::trace_index`]), so that a table of a million episodes is sorted
//! and filtered without decompressing their traces. Rewards are kept as sums of their parts: their weights are settings
//! of the workflow.

use std::io::Read;

use pl_types::StreamKey;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Largest number of agents of a row.
const MOST_AGENTS: usize = 64;

/// Longest text of a row, in characters.
const LONGEST_TEXT: usize = 200;

/// Largest encoded rows that are written and read, in bytes: of some 500,000 episodes.
const LARGEST: u64 = 32 << 20;

/// Compression level of the rows.
const LEVEL: i32 = 3;

/// Rows of a trace file, in the order of its lines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EpisodeSummaries {
    /// Names of agents and scenarios, which rows refer to.
    pub names: Vec<Box<str>>,
    pub rows: Vec<EpisodeSummary>,
}

/// Name of an attempt at an episode within its step or evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AttemptKey {
    pub task: u32,
    pub sample: u32,
    pub attempt: u32,
}

/// Row of an attempt at an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpisodeSummary {
    pub key: AttemptKey,
    /// First line of the task's id.
    pub task_id: Box<str>,
    /// Position of the scenario's name. `None` in workflows without scenarios.
    pub scenario: Option<u32>,
    /// True if candidates were sampled as a tree.
    pub tree: bool,
    pub success: bool,
    pub truncated: bool,
    pub turns: u32,
    /// Number of sampled tokens.
    pub tokens: u64,
    /// First line of the failure, or of the fault that ended the episode.
    pub failure: Option<Box<str>>,
    /// Number of failed candidates of a tree.
    pub failed_candidates: u32,
    pub agents: Box<[AgentSummary]>,
}

/// Part of an agent in an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AgentSummary {
    /// Position of the agent's name.
    pub name: u32,
    /// Number of completions.
    pub completions: u32,
    /// Number of sampled tokens.
    pub tokens: u32,
    /// Number of steps of the agent that were scored.
    pub scored: u32,
    /// Sum of the shared part of its rewards.
    pub team: f32,
    /// Sum of its own part of its rewards.
    pub local: f32,
}

impl EpisodeSummaries {
    /// Adds the row of a line of a trace file.
    ///
    /// # Errors
    /// If the line is not a trace.
    pub fn add(&mut self, line: &[u8]) -> serde_json::Result<()> {
        let trace: TraceLine = serde_json::from_slice(line)?;
        let row = self.summarise(&trace);
        self.rows.push(row);
        Ok(())
    }

    /// Returns the name at a position.
    pub fn name(&self, position: u32) -> &str {
        self.names.get(position as usize).map_or("", |name| name)
    }

    fn summarise(&mut self, trace: &TraceLine) -> EpisodeSummary {
        let mut agents: Vec<(AgentSummary, f64, f64)> = Vec::new();
        // Agents whose completions are not scored yet.
        let mut acting: Vec<usize> = Vec::new();
        let mut failed_candidates = 0;
        let mut failure = trace.end.failure.as_deref();
        for event in &trace.events {
            if let (Some(completion), Some(agent)) = (&event.kind.completion, &event.position.agent) {
                let name = self.position(agent);
                let index = match agents.iter().position(|(agent, ..)| agent.name == name) {
                    Some(index) => index,
                    None if agents.len() == MOST_AGENTS => continue,
                    None => {
                        let agent = AgentSummary {
                            name,
                            completions: 0,
                            tokens: 0,
                            scored: 0,
                            team: 0.0,
                            local: 0.0,
                        };
                        agents.push((agent, 0.0, 0.0));
                        agents.len() - 1
                    }
                };
                if let Some((agent, ..)) = agents.get_mut(index) {
                    agent.completions += 1;
                    agent.tokens = agent.tokens.saturating_add(completion.tokens.0);
                }
                acting.push(index);
            }
            if let Some(scores) = &event.kind.scores {
                acting.sort_unstable();
                acting.dedup();
                for index in acting.drain(..) {
                    let Some((agent, team, local)) = agents.get_mut(index) else { continue };
                    let name = self.names.get(agent.name as usize);
                    let own =
                        scores.local.iter().find(|score| name.is_some_and(|name| *score.agent == **name));
                    agent.scored += 1;
                    *team += scores.team;
                    *local += own.map_or(0.0, |score| score.reward);
                }
            }
            if let Some(fault) = &event.kind.fault {
                match event.position.candidate {
                    Some(_) => failed_candidates += 1,
                    // A penalised one, which has ended the episode.
                    None => failure = failure.or(Some(&fault.cause)),
                }
                acting.clear();
            }
        }
        let sums = |(agent, team, local)| AgentSummary { team: team as f32, local: local as f32, ..agent };
        let StreamKey { task, sample, attempt, .. } = trace.key;
        EpisodeSummary {
            key: AttemptKey { task, sample, attempt },
            task_id: first_line(&trace.task.id),
            scenario: trace.scenario.as_ref().map(|name| self.position(name)),
            tree: trace.mode == Mode::Tree,
            success: trace.end.success,
            truncated: trace.end.truncated,
            turns: trace.end.turns,
            tokens: trace.end.tokens,
            failure: failure.map(first_line),
            failed_candidates,
            agents: agents.into_iter().map(sums).collect(),
        }
    }

    /// Returns the position of a name, which is added if it is new.
    fn position(&mut self, name: &str) -> u32 {
        let known = self.names.iter().position(|known| **known == *name);
        let position = known.unwrap_or_else(|| {
            self.names.push(name.into());
            self.names.len() - 1
        });
        position as u32
    }

    /// Returns the compressed rows. Returns `None` if they are too many for a reader.
    pub(crate) fn encode(&self) -> std::io::Result<Option<Vec<u8>>> {
        let bytes = postcard::to_allocvec(self).map_err(std::io::Error::other)?;
        if bytes.len() as u64 > LARGEST {
            return Ok(None);
        }
        let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
        encoder.include_checksum(true)?;
        std::io::Write::write_all(&mut encoder, &bytes)?;
        encoder.finish().map(Some)
    }

    /// Returns `None` if the bytes are not the rows of a file.
    pub(crate) fn decode(compressed: &[u8]) -> Option<EpisodeSummaries> {
        let mut bytes = Vec::new();
        let decoder = zstd::Decoder::with_buffer(compressed).ok()?;
        decoder.take(LARGEST + 1).read_to_end(&mut bytes).ok()?;
        match postcard::take_from_bytes(&bytes).ok()? {
            (rows, []) => Some(rows),
            _ => None,
        }
    }
}

fn first_line(text: &str) -> Box<str> {
    let line = text.lines().next().unwrap_or_default();
    let end = line.char_indices().nth(LONGEST_TEXT).map_or(line.len(), |(end, _)| end);
    line.split_at(end).0.into()
}

/// The parts of a trace that a row is made of. Everything else is passed over.
#[derive(Deserialize)]
struct TraceLine {
    key: StreamKey,
    #[serde(default)]
    scenario: Option<String>,
    task: TaskLine,
    mode: Mode,
    events: Vec<EventLine>,
    end: EndLine,
}

#[derive(Deserialize)]
struct TaskLine {
    id: String,
}

#[derive(PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Flat,
    Tree,
}

#[derive(Deserialize)]
struct EndLine {
    success: bool,
    truncated: bool,
    turns: u32,
    tokens: u64,
    #[serde(default)]
    failure: Option<String>,
}

#[derive(Deserialize)]
struct EventLine {
    position: PositionLine,
    #[serde(deserialize_with = "kind")]
    kind: KindLine,
}

#[derive(Deserialize)]
struct PositionLine {
    #[serde(default)]
    candidate: Option<IgnoredAny>,
    #[serde(default)]
    agent: Option<String>,
}

/// Kind of an event: a name, or an object with one field. At most one field is present.
#[derive(Default, Deserialize)]
struct KindLine {
    completion: Option<CompletionLine>,
    scores: Option<ScoresLine>,
    fault: Option<FaultLine>,
}

#[derive(Deserialize)]
struct FaultLine {
    cause: String,
}

#[derive(Deserialize)]
struct CompletionLine {
    tokens: Count,
}

#[derive(Deserialize)]
struct ScoresLine {
    team: f64,
    local: Vec<ScoreLine>,
}

#[derive(Deserialize)]
struct ScoreLine {
    agent: String,
    reward: f64,
}

fn kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<KindLine, D::Error> {
    deserializer.deserialize_any(KindVisitor)
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = KindLine;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an event")
    }

    fn visit_str<E>(self, _: &str) -> Result<KindLine, E> {
        Ok(KindLine::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<KindLine, A::Error> {
        KindLine::deserialize(MapAccessDeserializer::new(map))
    }
}

/// Number of elements of a list.
struct Count(u32);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(CountVisitor)
    }
}

struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Count, A::Error> {
        let mut count = 0;
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Count(count))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(events: &Value) -> Vec<u8> {
        let key = json!({ "seed": 0, "phase": "train", "step": 1, "task": 7, "sample": 1, "attempt": 2 });
        let end =
            json!({ "success": true, "truncated": false, "turns": 2, "tokens": 5, "failure": "one\ntwo" });
        json!({
            "key": key, "scenario": "sums", "task": { "id": "train-7\nmore", "data": "{}" }, "mode": "tree",
            "events": events, "end": end,
        })
        .to_string()
        .into_bytes()
    }

    fn event(agent: Option<&str>, branch: Option<u32>, kind: &Value) -> Value {
        let candidate = branch.map(|branch| json!({ "branch": branch, "retry": 0 }));
        json!({ "position": { "node_visit": 0, "agent": agent, "candidate": candidate }, "kind": kind })
    }

    #[test]
    fn a_row_has_the_sums_of_each_agent_and_the_end() {
        let completion =
            |tokens: &[u32]| json!({ "completion": { "text": "a", "finish": "stop", "tokens": tokens } });
        let local = json!([{ "agent": "tool", "reward": 0.5, "success": true }]);
        let scores = json!({ "scores": { "team": 1.0, "local": local, "success": true } });
        let fault = json!({ "fault": { "stage": "apply", "cause": "fuel", "reproducible": true } });
        let mut summaries = EpisodeSummaries::default();
        let events = json!([
            event(Some("other"), None, &json!("skipped")),
            event(Some("tool"), Some(0), &completion(&[1, 2, 3])),
            event(Some("reason"), Some(0), &completion(&[4])),
            event(None, Some(0), &scores),
            event(Some("tool"), Some(1), &completion(&[5])),
            event(None, Some(1), &fault),
            event(None, Some(1), &scores),
            event(None, None, &json!({ "invented_later": [1] })),
        ]);
        summaries.add(&line(&events)).unwrap();
        assert_eq!(summaries.names, ["tool".into(), "reason".into(), "sums".into()]);
        let agent = |name, completions, tokens, local| AgentSummary {
            name,
            completions,
            tokens,
            scored: 1,
            team: 1.0,
            local,
        };
        let row = EpisodeSummary {
            key: AttemptKey { task: 7, sample: 1, attempt: 2 },
            task_id: "train-7".into(),
            scenario: Some(2),
            tree: true,
            success: true,
            truncated: false,
            turns: 2,
            tokens: 5,
            failure: Some("one".into()),
            failed_candidates: 1,
            // A failed candidate is not scored.
            agents: [agent(0, 2, 4, 0.5), agent(1, 1, 1, 0.0)].into(),
        };
        assert_eq!(summaries.rows, [row]);
        assert!(summaries.add(b"{\"key\":1}").is_err());
    }

    #[test]
    fn a_fault_that_ended_an_episode_is_its_failure() {
        let fault = json!({ "fault": { "stage": "apply", "cause": "fuel\nmore", "reproducible": true } });
        let mut trace: Value = serde_json::from_slice(&line(&json!([event(None, None, &fault)]))).unwrap();
        trace["end"].as_object_mut().unwrap().remove("failure");
        let mut summaries = EpisodeSummaries::default();
        summaries.add(&serde_json::to_vec(&trace).unwrap()).unwrap();
        let row = &summaries.rows[0];
        assert_eq!((row.failure.as_deref(), row.failed_candidates), (Some("fuel"), 0));
    }

    #[test]
    fn rows_are_decoded_as_they_were_and_damaged_ones_not_at_all() {
        let mut summaries = EpisodeSummaries::default();
        for _ in 0..3 {
            summaries.add(&line(&json!([]))).unwrap();
        }
        let bytes = summaries.encode().unwrap().unwrap();
        assert_eq!(EpisodeSummaries::decode(&bytes).unwrap(), summaries);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x41;
            // A byte of the frame's header may only change how much memory is reserved.
            assert!(EpisodeSummaries::decode(&changed).is_none_or(|read| read == summaries), "byte {at}");
            assert_eq!(EpisodeSummaries::decode(&bytes[..at]), None, "{at} bytes");
        }
    }
}
