//! Logs for curves: of many steps, only as many lines as a screen shows.
//!
//! Neighbouring lines of one kind are merged until few enough are left. Of merged lines, three are sent: the least of every
//! number, the largest, and the mean. A curve through the first two covers the same pixels as one through all lines.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::Error;
use crate::logs::{self, Log};

/// Numbers of merged lines that a request may ask for.
const MERGED: std::ops::RangeInclusive<usize> = 50..=2000;

/// Range and detail of curves.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct CurveRequest {
    /// Largest number of merged lines of a kind. Twice as many lines are sent unmerged.
    pub(crate) points: usize,
    /// First step.
    #[serde(default)]
    pub(crate) from: u64,
    /// Last step.
    pub(crate) to: Option<u64>,
}

/// Lines of a log for curves.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct CurveLines {
    /// Merged lines have a field `merged`: `low`, `high` or `mean`.
    pub(crate) lines: Vec<Value>,
    /// Lines that are not JSON, with the file and the number of the line.
    pub(crate) problems: Vec<String>,
    /// Position after the lines, in bytes, and the number of lines before it: where [`logs::read`] goes on.
    pub(crate) offset: u64,
    pub(crate) line: u64,
}

/// Neighbouring lines.
struct Bucket {
    count: u64,
    /// Steps of the first and the last line.
    steps: [Value; 2],
    low: Value,
    high: Value,
    sum: Value,
    /// Number of lines that have each number of `sum`.
    counts: Value,
}

/// Lines of one kind, in order.
#[derive(Default)]
struct Series {
    buckets: Vec<Bucket>,
    /// Lines of each bucket but the last. 0 is as 1.
    size: u64,
}

/// Reads a log from its start, and merges its lines.
///
/// # Errors
/// Those of [`logs::read`].
pub(crate) fn read(root: &Path, log: Log, request: CurveRequest) -> Result<CurveLines, Error> {
    let points = request.points.clamp(*MERGED.start(), *MERGED.end());
    let (mut series, mut elapsed) = (BTreeMap::<String, Series>::new(), 0.0);
    let mut result = CurveLines { lines: Vec::new(), problems: Vec::new(), offset: 0, line: 0 };
    loop {
        let piece = logs::read(root, log, result.offset, result.line)?;
        if piece.restarted {
            // The run was resumed at an earlier step meanwhile.
            (series, elapsed) = (BTreeMap::new(), 0.0);
            result.problems.clear();
        }
        for mut line in piece.lines {
            add_elapsed(&mut line, &mut elapsed);
            let step = line.get("step").and_then(Value::as_u64);
            if step.is_some_and(|step| step >= request.from && request.to.is_none_or(|to| step <= to)) {
                series.entry(kind(&line)).or_default().add(line, points);
            }
        }
        result.problems.extend(piece.problems.into_iter().take(20));
        (result.offset, result.line) = (piece.offset, piece.line);
        if !piece.more {
            break;
        }
    }
    result.lines = series.into_values().flat_map(Series::lines).collect();
    Ok(result)
}

/// Returns the name of the lines that a line is merged with.
fn kind(line: &Value) -> String {
    let field = |name| line.get(name).and_then(Value::as_str).unwrap_or_default();
    format!("{} {}", field("kind"), field("name"))
}

/// Adds the seconds from the start of the run to the end of a step to its timings: they are sums over all lines before.
fn add_elapsed(line: &mut Value, elapsed: &mut f64) {
    let Some(seconds) = line.get("seconds").and_then(Value::as_object) else { return };
    let part = |name: &str| seconds.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let rollouts = if part("wait") > 0.0 { part("wait") } else { part("play") };
    *elapsed += rollouts + part("train") + part("evaluate") + part("baseline");
    line["elapsed"] = json!(*elapsed);
}

impl Series {
    fn add(&mut self, line: Value, points: usize) {
        let step = line.get("step").cloned().unwrap_or_default();
        match self.buckets.last_mut() {
            Some(last) if last.count < self.size => last.add(1, step, [&line, &line, &line, &ones(&line)]),
            _ => self.buckets.push(Bucket {
                count: 1,
                steps: [step.clone(), step],
                low: line.clone(),
                high: line.clone(),
                counts: ones(&line),
                sum: line,
            }),
        }
        if self.buckets.len() > 2 * points {
            self.size = 2 * self.size.max(1);
            let mut merged: Vec<Bucket> = Vec::with_capacity(points + 1);
            for bucket in self.buckets.drain(..) {
                match merged.last_mut() {
                    Some(last) if last.count + bucket.count <= self.size => {
                        let Bucket { count, steps: [_, step], low, high, sum, counts } = bucket;
                        last.add(count, step, [&low, &high, &sum, &counts]);
                    }
                    _ => merged.push(bucket),
                }
            }
            self.buckets = merged;
        }
    }

    fn lines(self) -> Vec<Value> {
        self.buckets.into_iter().flat_map(Bucket::lines).collect()
    }
}

impl Bucket {
    /// Adds `count` lines up to `step`, of which the least, the largest and the summed numbers and their counts are given.
    fn add(&mut self, count: u64, step: Value, [low, high, sum, counts]: [&Value; 4]) {
        self.count += count;
        let [_, last] = &mut self.steps;
        *last = step;
        combine(&mut self.low, low, f64::min);
        combine(&mut self.high, high, f64::max);
        combine(&mut self.sum, sum, |a, b| a + b);
        combine(&mut self.counts, counts, |a, b| a + b);
    }

    fn lines(mut self) -> Vec<Value> {
        if self.count == 1 {
            return vec![self.low];
        }
        divide(&mut self.sum, &self.counts);
        let [first, last] = self.steps;
        let middle = first.as_f64().zip(last.as_f64()).map(|(first, last)| json!(f64::midpoint(first, last)));
        let marked = |mut line: Value, name: &str, step: Value| {
            line["merged"] = json!(name);
            line["step"] = step;
            line
        };
        vec![
            marked(self.low, "low", first.clone()),
            marked(self.sum, "mean", middle.unwrap_or(first)),
            marked(self.high, "high", last),
        ]
    }
}

/// Combines the numbers of two lines. What only one of them has, or is no number in one, is kept.
fn combine(into: &mut Value, other: &Value, with: fn(f64, f64) -> f64) {
    match (into, other) {
        (Value::Object(into), Value::Object(other)) => {
            for (name, value) in other {
                match into.get_mut(name) {
                    Some(known) => combine(known, value, with),
                    None => drop(into.insert(name.clone(), value.clone())),
                }
            }
        }
        (Value::Array(into), Value::Array(other)) => {
            into.iter_mut().zip(other).for_each(|(into, other)| combine(into, other, with));
            into.extend(other.iter().skip(into.len()).cloned());
        }
        (into @ Value::Number(_), Value::Number(other)) => {
            if let Some((a, b)) = into.as_f64().zip(other.as_f64()) {
                *into = json!(with(a, b));
            }
        }
        (into @ Value::Null, other) => *into = other.clone(),
        _ => {}
    }
}

/// Returns a line with a 1 in place of each number.
fn ones(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, field)| (name.clone(), ones(field))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(ones).collect()),
        Value::Number(_) => json!(1),
        other => other.clone(),
    }
}

/// Divides all numbers by their counts: some lines have null, or nothing, where others have a number.
fn divide(value: &mut Value, counts: &Value) {
    match (value, counts) {
        (Value::Object(fields), Value::Object(counts)) => {
            for (name, field) in fields.iter_mut() {
                counts.get(name).into_iter().for_each(|count| divide(field, count));
            }
        }
        (Value::Array(items), Value::Array(counts)) => {
            for (item, count) in items.iter_mut().zip(counts) {
                // Shares that a shorter list leaves out are 0.
                let count = if item.is_number() { counts.first().unwrap_or(count) } else { count };
                divide(item, count);
            }
        }
        (number @ Value::Number(_), Value::Number(count)) => {
            let mean = number.as_f64().zip(count.as_f64()).map(|(number, count)| number / count);
            *number = mean.map_or(Value::Null, |mean| json!(mean));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    /// A log of many steps, with an evaluation every tenth.
    fn run(steps: u64) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let (mut metrics, mut timings) = (String::new(), String::new());
        for step in 1..=steps {
            // One peak, of one step.
            let reward = if step == 777 { 9.0 } else { (step % 3) as f64 };
            // An agent that acts in every third step.
            let rare = (step % 3 == 0).then_some(5.0);
            let turns: Vec<Value> = rare.iter().map(|reward| json!({ "reward": reward })).collect();
            let agents = json!({
                "tool": { "reward": reward, "by_turn": [{ "reward": -reward }] },
                "rare": { "reward": rare, "by_turn": turns },
            });
            // Half of the tokens of every second step are stale.
            let stale = if step % 2 == 0 { json!([0.5, 0.5]) } else { json!([1.0]) };
            let line =
                json!({ "kind": "step", "step": step, "agents": agents, "kl": null, "staleness": stale });
            writeln!(metrics, "{line}").unwrap();
            if step % 10 == 0 {
                writeln!(
                    metrics,
                    "{}",
                    json!({ "kind": "evaluation", "name": "test", "step": step, "success": 0.5 })
                )
                .unwrap();
            }
            writeln!(timings, "{}", json!({ "step": step, "seconds": { "play": 1.0, "train": 2.0 } }))
                .unwrap();
        }
        std::fs::write(folder.path().join("metrics.jsonl"), metrics).unwrap();
        std::fs::write(folder.path().join("timings.jsonl"), timings).unwrap();
        folder
    }

    fn lines(folder: &Path, log: Log, from: u64, to: Option<u64>) -> Vec<Value> {
        read(folder, log, CurveRequest { points: 100, from, to }).unwrap().lines
    }

    #[test]
    fn of_many_steps_the_lowest_and_highest_values_are_kept() {
        let folder = run(5000);
        let all = lines(folder.path(), Log::Metrics, 0, None);
        assert!((300..=1200).contains(&all.len()), "{} lines", all.len());
        let rewards = |merged: &str| -> Vec<f64> {
            let of = all.iter().filter(|line| line["merged"] == merged && line["kind"] == "step");
            of.map(|line| line["agents"]["tool"]["reward"].as_f64().unwrap()).collect()
        };
        assert!(rewards("high").contains(&9.0) && rewards("low").iter().all(|low| *low == 0.0));
        assert!(rewards("mean").iter().all(|mean| (0.8..1.5).contains(mean)), "{:?}", rewards("mean"));
        // Steps without a number are in no mean.
        let means: Vec<&Value> =
            all.iter().filter(|line| line["merged"] == "mean" && line["kind"] == "step").collect();
        assert!(means.len() > 10);
        for line in means {
            let rare = &line["agents"]["rare"];
            assert_eq!(
                (&rare["reward"], &rare["by_turn"][0]["reward"]),
                (&json!(5.0), &json!(5.0)),
                "{line}"
            );
            let stale = line["staleness"][1].as_f64().unwrap();
            assert!((stale - 0.25).abs() < 0.05, "{line}");
        }
        let peak = all.iter().find(|line| line["agents"]["tool"]["by_turn"][0]["reward"] == -9.0).unwrap();
        assert_eq!(peak["merged"], "low");
        let steps: Vec<f64> = all
            .iter()
            .filter(|line| line["kind"] == "step")
            .map(|line| line["step"].as_f64().unwrap())
            .collect();
        assert!(steps.is_sorted() && steps.first() == Some(&1.0) && steps.last() == Some(&5000.0));
        let evaluations: Vec<&Value> = all.iter().filter(|line| line["name"] == "test").collect();
        assert!(evaluations.len() >= 100 && evaluations.iter().all(|line| line["success"] == 0.5));
    }

    #[test]
    fn a_range_and_a_short_log_have_every_line_with_the_time_since_the_start() {
        let folder = run(5000);
        let range = lines(folder.path(), Log::Timings, 1001, Some(1100));
        assert_eq!(range.len(), 100);
        assert_eq!((&range[0]["step"], &range[0]["elapsed"]), (&json!(1001), &json!(3003.0)));
        assert!(range.iter().all(|line| line.get("merged").is_none()));
        let last = lines(folder.path(), Log::Timings, 0, None).pop().unwrap();
        assert_eq!((&last["step"], &last["elapsed"]), (&json!(5000), &json!(15_000.0)));
        assert_eq!(lines(run(30).path(), Log::Metrics, 0, None).len(), 33);
    }
}
