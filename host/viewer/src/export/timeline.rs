//! A run's times as a Chrome trace, the Trace Event Format that Perfetto and `chrome://tracing` open.
//!
//! Processes of the trace are rollouts and training. The rollouts of steps that play at the same time are on rows of
//! their own; training has a row for each learner. What is not covered by an event is idle.

use std::path::Path;

use pl_record::ProcessClock;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Error;
use crate::logs::{self, Log};

const ROLLOUTS: u32 = 1;
const TRAINING: u32 = 2;

/// Seconds that are shown between the processes of a resumed run, however long it stood still.
const RESUME_GAP: f64 = 1.0;

/// Times in `timings.jsonl` are rounded to milliseconds.
const ROUNDING: f64 = 0.002;

/// Line of `timings.jsonl`. Those of earlier versions have no timeline, no learners or no start of the clock.
#[derive(Deserialize)]
struct Line {
    step: u64,
    /// Moment at which the clock of its process started.
    clock_started: Option<String>,
    #[serde(default)]
    seconds: Seconds,
    #[serde(default)]
    learners: Vec<Learner>,
    #[serde(default)]
    timeline: Vec<Part>,
}

impl Line {
    fn clock(&self) -> ProcessClock {
        let train = self.timeline.iter().find(|part| part.part == "train");
        ProcessClock { started: self.clock_started.clone(), trained: train.map(|train| train.end) }
    }

    /// Returns true if the line is of another process than that of the line before.
    fn is_after_resume(&self, before: &Line) -> bool {
        self.clock().is_after_resume(&before.clock())
    }
}

#[derive(Default, Deserialize)]
struct Seconds {
    #[serde(default)]
    wait: f64,
}

#[derive(Deserialize)]
struct Learner {
    policies: Vec<String>,
    seconds: f64,
    /// Earlier versions have none of the following: their learners start together.
    wait: Option<f64>,
    start: Option<f64>,
    end: Option<f64>,
}

impl Learner {
    /// Time from which the learner waits for this step.
    fn waits_from(&self) -> Option<f64> {
        Some(self.start? - self.wait.unwrap_or(0.0))
    }
}

/// Part of a step, in seconds since the start of its process.
#[derive(Deserialize)]
struct Part {
    part: String,
    start: f64,
    end: f64,
    /// `None` for the step of the line.
    step: Option<u64>,
}

/// Activity of the rollouts, on the clock of the trace.
struct Rollout {
    span: (f64, f64),
    step: u64,
    category: &'static str,
}

/// Events of a run, and the lines that can't be read.
pub(super) struct Timeline {
    pub events: Vec<Value>,
    pub problems: Vec<String>,
}

impl Timeline {
    /// Reads the times of a run.
    ///
    /// # Errors
    /// If `timings.jsonl` can't be read.
    pub fn read(root: &Path) -> Result<Timeline, Error> {
        let mut timeline = Timeline { events: Vec::new(), problems: Vec::new() };
        let mut lines: Vec<Line> = Vec::new();
        let (mut offset, mut number, mut more) = (0, 0, true);
        while more {
            let piece = logs::read(root, Log::Timings, offset, number)?;
            (offset, number, more) = (piece.offset, piece.line, piece.more);
            timeline.problems.extend(piece.problems);
            for line in piece.lines {
                match serde_json::from_value(line) {
                    Ok(line) => lines.push(line),
                    Err(error) => timeline.problems.push(format!("timings.jsonl: {error}")),
                }
            }
        }
        timeline.add(&lines);
        Ok(timeline)
    }

    fn add(&mut self, lines: &[Line]) {
        let name = |pid: u32, name: &str| json!({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}});
        self.events.extend([name(ROLLOUTS, "rollouts"), name(TRAINING, "training")]);
        let mut rollouts: Vec<Rollout> = Vec::new();
        let mut learners: Vec<String> = Vec::new();
        let (mut shift, mut latest) = (0.0, 0.0_f64);
        for (index, line) in lines.iter().enumerate() {
            if index.checked_sub(1).is_some_and(|before| line.is_after_resume(&lines[before])) {
                shift = latest + RESUME_GAP;
            }
            for part in &line.timeline {
                let (start, end) = (shift + part.start, shift + part.end);
                latest = latest.max(end);
                if part.part == "train" {
                    let next = lines.get(index + 1).filter(|next| !next.is_after_resume(line));
                    let next = next.map_or(&[][..], |next| &next.learners);
                    self.add_update(line, next, shift, (start, end), &mut learners);
                    continue;
                }
                let category = match part.part.as_str() {
                    "play" => "generating",
                    "publish" => "publishing weights",
                    _ => "evaluating",
                };
                rollouts.push(Rollout { span: (start, end), step: part.step.unwrap_or(line.step), category });
            }
        }
        self.add_rollouts(rollouts);
    }

    /// Adds what the rollouts were at, each on the first row that is free then. A line has weights that were made ready before the
    /// evaluation in the line before it.
    fn add_rollouts(&mut self, mut rollouts: Vec<Rollout>) {
        rollouts.sort_by(|a, b| a.span.0.total_cmp(&b.span.0));
        // Ends of what is on each row.
        let mut rows: Vec<f64> = Vec::new();
        for Rollout { span: (start, end), step, category } in rollouts {
            let is_free = |busy_until: &f64| *busy_until <= start + ROUNDING;
            let row = rows.iter().position(is_free).unwrap_or(rows.len());
            if row == rows.len() {
                rows.push(end);
                self.name_row(ROLLOUTS, row, &format!("rollouts {}", row + 1));
            }
            if let Some(busy_until) = rows.get_mut(row) {
                *busy_until = end;
            }
            self.event(ROLLOUTS, row, &format!("step {step}"), category, (start, end));
        }
    }

    /// Adds the update of each learner, the time in which it waits for the step, and for the others. `next` are the
    /// learners in the next step, `shift` is the start of the process.
    fn add_update(
        &mut self,
        line: &Line,
        next: &[Learner],
        shift: f64,
        (start, end): (f64, f64),
        learners: &mut Vec<String>,
    ) {
        // Earlier versions have only the whole.
        let policies = vec!["all policies".to_owned()];
        let whole = Learner { policies, seconds: end - start, wait: None, start: None, end: None };
        let own = if line.learners.is_empty() { std::slice::from_ref(&whole) } else { &line.learners };
        for learner in own {
            let name = learner.policies.join(", ");
            let row = learners.iter().position(|known| *known == name).unwrap_or(learners.len());
            if row == learners.len() {
                self.name_row(TRAINING, row, &name);
                learners.push(name);
            }
            let began = learner.start.map_or(start, |own| shift + own);
            let trained = learner.end.map_or((start + learner.seconds).min(end), |own| shift + own);
            let step = format!("step {}", line.step);
            let wait = learner.wait.unwrap_or(line.seconds.wait);
            if wait > 0.0 {
                self.event(TRAINING, row, &step, "waiting for episodes", ((began - wait).max(0.0), began));
            }
            self.event(TRAINING, row, &step, "training", (began, trained));
            // A learner at its own pace is at the next step by then.
            let later = next.iter().find(|other| other.policies == learner.policies);
            let later = later
                .and_then(Learner::waits_from)
                .map(|own| shift + own)
                .filter(|own| *own >= trained - ROUNDING);
            let until = later.map_or(end, |own| own.max(trained).min(end));
            if own.len() > 1 && trained < until {
                self.event(TRAINING, row, &step, "waiting for other learners", (trained, until));
            }
        }
    }

    fn name_row(&mut self, process: u32, row: usize, name: &str) {
        self.events.push(
            json!({"ph": "M", "pid": process, "tid": row, "name": "thread_name", "args": {"name": name}}),
        );
    }

    fn event(&mut self, process: u32, row: usize, step: &str, category: &str, (start, end): (f64, f64)) {
        let microseconds = |seconds: f64| (seconds * 1e6).round() as u64;
        self.events.push(json!({
            "ph": "X",
            "pid": process,
            "tid": row,
            "name": format!("{step}: {category}"),
            "cat": category,
            "ts": microseconds(start),
            "dur": microseconds(end - start),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(timeline: &Timeline) -> Vec<(u64, u64, String, u64, u64)> {
        let of = |event: &Value| {
            let number = |key: &str| event[key].as_u64().unwrap();
            (
                number("pid"),
                number("tid"),
                event["name"].as_str().unwrap().to_owned(),
                number("ts"),
                number("dur"),
            )
        };
        timeline.events.iter().filter(|event| event["ph"] == "X").map(of).collect()
    }

    #[test]
    fn steps_that_play_together_and_learners_have_rows_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let line = |step, wait, play: (f64, f64), train: (f64, f64)| {
            json!({
                "step": step, "seconds": {"wait": wait},
                "learners": [{"policies": ["a", "b"], "seconds": 1.0}, {"policies": ["c"], "seconds": train.1 - train.0}],
                "timeline": [
                    {"part": "play", "start": play.0, "end": play.1}, {"part": "train", "start": train.0, "end": train.1},
                ],
            })
        };
        let lines = [
            line(1, 4.0, (0.0, 4.0), (4.0, 6.0)),
            line(2, 0.0, (1.0, 5.0), (6.0, 8.0)),
            // Resumed.
            line(3, 0.0, (0.0, 1.0), (1.0, 3.0)),
        ];
        let text = lines.map(|line| format!("{line}\n")).concat() + "no JSON\n";
        std::fs::write(folder.path().join("timings.jsonl"), text).unwrap();
        let timeline = Timeline::read(folder.path()).unwrap();
        assert_eq!(timeline.problems.len(), 1);
        let all = spans(&timeline);
        let has = |pid, tid, name: &str, ts: u64, dur: u64| {
            assert!(
                all.contains(&(pid, tid, name.to_owned(), ts * 1_000_000, dur * 1_000_000)),
                "{name}: {all:?}"
            );
        };
        has(1, 0, "step 1: generating", 0, 4);
        has(1, 1, "step 2: generating", 1, 4);
        has(2, 0, "step 1: waiting for episodes", 0, 4);
        has(2, 0, "step 1: training", 4, 1);
        has(2, 0, "step 1: waiting for other learners", 5, 1);
        has(2, 1, "step 2: training", 6, 2);
        has(1, 0, "step 3: generating", 9, 1);
        let names: Vec<&str> =
            timeline.events.iter().filter_map(|event| event["args"]["name"].as_str()).collect();
        assert_eq!(names, ["rollouts", "training", "a, b", "c", "rollouts 1", "rollouts 2"]);
    }

    /// Every process ends its first update later than the one before it.
    #[test]
    fn a_resumed_run_goes_on_after_the_last_step() {
        let folder = tempfile::tempdir().unwrap();
        let line = |step: u64, clock: &str, end: f64| {
            json!({"step": step, "clock_started": clock, "timeline": [
                {"part": "play", "start": 0.0, "end": 1.0}, {"part": "train", "start": 1.0, "end": end},
            ]})
        };
        let (first, second) = ("2026-01-01T10:00:00.000Z", "2026-01-01T12:00:00.000Z");
        let lines = [line(1, first, 2.0), line(2, second, 3.0), line(3, "2026-01-02T12:00:00.000Z", 4.0)];
        std::fs::write(folder.path().join("timings.jsonl"), lines.map(|line| format!("{line}\n")).concat())
            .unwrap();
        let all = spans(&Timeline::read(folder.path()).unwrap());
        let rollouts: Vec<(u64, u64)> =
            all.iter().filter(|own| own.0 == 1).map(|own| (own.1, own.3 / 1_000_000)).collect();
        assert_eq!(rollouts, [(0, 0), (0, 3), (0, 7)]);
    }

    /// The weights of step 2 are made ready before the evaluation after step 1, which plays with them, and times are rounded.
    #[test]
    fn a_run_in_step_has_one_row_of_rollouts_with_all_evaluations() {
        let folder = tempfile::tempdir().unwrap();
        let part = |part: &str, start: f64, end: f64| json!({"part": part, "start": start, "end": end});
        let baseline = json!({"part": "evaluate", "start": 0.5, "end": 2.0, "step": 0});
        let lines = [
            json!({"step": 1, "timeline": [
                baseline, part("publish", 0.0, 0.5), part("play", 2.0, 4.0), part("train", 4.0, 6.0),
                part("evaluate", 6.5, 8.001),
            ]}),
            json!({"step": 2, "timeline": [
                part("publish", 6.0, 6.5), part("play", 8.0, 9.0), part("train", 9.0, 10.0),
            ]}),
        ];
        std::fs::write(folder.path().join("timings.jsonl"), lines.map(|line| format!("{line}\n")).concat())
            .unwrap();
        let timeline = Timeline::read(folder.path()).unwrap();
        let all = spans(&timeline);
        let rollouts: Vec<(u64, &str)> =
            all.iter().filter(|own| own.0 == 1).map(|own| (own.1, own.2.as_str())).collect();
        let expected = [
            "step 1: publishing weights",
            "step 0: evaluating",
            "step 1: generating",
            "step 2: publishing weights",
            "step 1: evaluating",
            "step 2: generating",
        ];
        assert_eq!(rollouts, expected.map(|name| (0, name)));
    }
}
