//! Times of a step, for `timings.jsonl`.

use std::time::Instant;

use chrono::{DateTime, SecondsFormat, Utc};
use pl_inference::EngineStats;
use pl_types::TaskKey;
use serde::Serialize;
use serde_json::{Value, json};

use crate::memory::ProcessMemory;
use crate::progress::StepSeconds;

/// Times of an episode.
#[derive(Debug, Clone, Copy)]
pub(super) struct EpisodeTime {
    /// Task that it belongs to.
    pub task: TaskKey,
    /// Lane of its scenario.
    pub lane: usize,
    pub started: Instant,
    pub ended: Instant,
    /// Number of sampled tokens.
    pub tokens: u64,
}

/// Clock of the loop.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    started: Instant,
    /// The same moment on the wall clock, by which readers see that a line is of another process.
    started_at: DateTime<Utc>,
}

/// Times and token counts of a step.
#[derive(Default)]
pub(super) struct StepTimes {
    pub step: u64,
    pub seconds: StepSeconds,
    pub sampled_tokens: u64,
    pub trained_tokens: u64,
    pub learners: Vec<LearnerTimes>,
    pub episodes: EpisodeColumns,
    pub engine: EngineStats,
    pub timeline: Vec<TimelinePart>,
}

/// Times of episodes, in the order in which they start.
#[derive(Default)]
pub(super) struct EpisodeColumns {
    /// Seconds from the start of the loop.
    episode_starts: Vec<f64>,
    episode_seconds: Vec<f64>,
    /// Sampled tokens.
    episode_tokens: Vec<u64>,
    /// Task of each episode, from 0.
    episode_tasks: Vec<u32>,
    /// Lane of each episode. Empty if there is one lane alone.
    episode_lanes: Vec<usize>,
}

/// Update of one learner. Those of several learners overlap.
#[derive(Serialize)]
pub(super) struct LearnerTimes {
    /// Names of its policies.
    pub policies: Vec<String>,
    pub lane: usize,
    /// Duration.
    pub seconds: f64,
    /// Seconds that it waited for the step.
    pub wait: f64,
    /// Seconds from the start of the loop.
    pub start: f64,
    pub end: f64,
}

/// Part of a step on the clock of the loop, in seconds since its start.
#[derive(Serialize)]
pub(super) struct TimelinePart {
    part: &'static str,
    start: f64,
    end: f64,
    /// Step that it belongs to. `None` for that of the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
}

impl Clock {
    /// Starts a clock.
    pub fn start() -> Clock {
        Clock { started: Instant::now(), started_at: Utc::now() }
    }

    /// Returns the moment of its start in UTC, as in RFC 3339.
    pub fn started_at(&self) -> String {
        self.started_at.to_rfc3339_opts(SecondsFormat::Millis, true)
    }

    /// Returns the time of a moment in seconds, to the millisecond.
    pub fn seconds(&self, moment: Instant) -> f64 {
        milliseconds(moment.saturating_duration_since(self.started).as_secs_f64())
    }

    /// Returns a part of a step that took some seconds up to `end`.
    pub fn part(&self, part: &'static str, end: Instant, seconds: f64) -> TimelinePart {
        let end = end.saturating_duration_since(self.started).as_secs_f64();
        let (start, end) = (milliseconds((end - seconds).max(0.0)), milliseconds(end));
        TimelinePart { part, start, end, step: None }
    }
}

impl TimelinePart {
    /// Returns the part as one of another step than that of its line.
    pub fn of_step(self, step: u64) -> TimelinePart {
        TimelinePart { step: Some(step), ..self }
    }
}

impl EpisodeColumns {
    pub fn new(times: &[EpisodeTime], tasks: &[u32], clock: Clock) -> EpisodeColumns {
        let lasted = |time: &EpisodeTime| time.ended.saturating_duration_since(time.started).as_secs_f64();
        EpisodeColumns {
            episode_starts: times.iter().map(|time| clock.seconds(time.started)).collect(),
            episode_seconds: times.iter().map(|time| milliseconds(lasted(time))).collect(),
            episode_tokens: times.iter().map(|time| time.tokens).collect(),
            episode_tasks: tasks.to_vec(),
            episode_lanes: match times.iter().any(|time| time.lane > 0) {
                true => times.iter().map(|time| time.lane).collect(),
                false => Vec::new(),
            },
        }
    }
}

impl StepTimes {
    /// Returns the line of the step on a clock. `slots` is the largest number of episodes at a time.
    pub fn line(&self, clock: Clock, slots: u32) -> Value {
        let memory = ProcessMemory::read();
        let EpisodeColumns { episode_starts, episode_seconds, episode_tokens, episode_tasks, episode_lanes } =
            &self.episodes;
        json!({
            "step": self.step,
            "clock_started": clock.started_at(),
            "seconds": self.seconds,
            "learners": self.learners,
            "slots": slots,
            "episode_starts": episode_starts,
            "episode_seconds": episode_seconds,
            "episode_tokens": episode_tokens,
            "episode_tasks": episode_tasks,
            "episode_lanes": episode_lanes,
            "sampled_tokens_per_second": self.sampled_tokens as f64 / self.seconds.play.max(1e-9),
            "trained_tokens_per_second": self.trained_tokens as f64 / self.seconds.train.max(1e-9),
            "engine": engine_fields(&self.engine),
            "memory_bytes": memory.map(|memory| memory.resident),
            "peak_memory_bytes": memory.map(|memory| memory.peak),
            "timeline": self.timeline,
        })
    }
}

/// Returns the work of the embedded engines: `seconds` in which they were busy, tokens, passes, and the passes and their
/// rows by ranges of rows (0, 1, 2 to 3, 4 to 7, and so on). Returns `None` if they ran no pass.
fn engine_fields(stats: &EngineStats) -> Option<Value> {
    let last = stats.passes_by_rows.iter().rposition(|range| range.passes > 0)?;
    let ranges = &stats.passes_by_rows[..=last];
    Some(json!({
        "seconds": milliseconds(stats.busy_nanoseconds as f64 / 1e9),
        "generated_tokens": stats.generated_tokens,
        "prefilled_tokens": stats.prefilled_tokens,
        "preemptions": stats.preemptions,
        "passes": stats.steps,
        "passes_by_rows": ranges.iter().map(|range| range.passes).collect::<Vec<_>>(),
        "rows": ranges.iter().map(|range| range.rows).collect::<Vec<_>>(),
    }))
}

/// Rounds seconds to milliseconds.
pub(super) fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}
