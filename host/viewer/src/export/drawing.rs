//! A run's times drawn for a terminal: a row for each set of rollouts at a time and for each learner, a column for each
//! part of the run's time, and the share of each row's time that each activity took.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// Columns of the time.
const COLUMNS: usize = 96;

/// An activity in a row, with times in microseconds.
struct Span {
    category: String,
    /// Last digit of the step.
    digit: char,
    start: f64,
    end: f64,
}

#[derive(Default)]
struct Row {
    name: String,
    spans: Vec<Span>,
}

/// Draws the events of a Chrome trace.
pub(super) fn draw(events: &[Value]) -> String {
    let rows = rows(events);
    let end = rows.values().flat_map(|row| &row.spans).map(|span| span.end).fold(0.0, f64::max);
    if end <= 0.0 {
        return "no step has ended\n".to_owned();
    }
    let width = rows.values().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "{:width$}  0 s{:>rest$}", "", format!("{:.1} s", end / 1e6), rest = COLUMNS - 3);
    for row in rows.values() {
        let _ = writeln!(text, "{:width$}  {}", row.name, line(row, end));
    }
    let _ = writeln!(
        text,
        "\ndigit: step that is played or trained on · e: evaluation · w: weights that are published · .: waiting for episodes · :: waiting for other learners\n"
    );
    for row in rows.values() {
        let _ = writeln!(text, "{:width$}  {}", row.name, shares(row, end));
    }
    text
}

/// Collects the rows of a trace by process and thread.
fn rows(events: &[Value]) -> BTreeMap<(u64, u64), Row> {
    let mut rows: BTreeMap<(u64, u64), Row> = BTreeMap::new();
    for event in events {
        let (Some(process), Some(thread)) = (event["pid"].as_u64(), event["tid"].as_u64()) else { continue };
        let row = rows.entry((process, thread)).or_default();
        let name = event["name"].as_str().unwrap_or_default();
        if event["ph"] == "M" {
            row.name = event["args"]["name"].as_str().unwrap_or_default().to_owned();
            continue;
        }
        let start = event["ts"].as_f64().unwrap_or(0.0);
        let step = name.split(':').next().unwrap_or_default();
        row.spans.push(Span {
            category: event["cat"].as_str().unwrap_or_default().to_owned(),
            digit: step.chars().last().unwrap_or(' '),
            start,
            end: start + event["dur"].as_f64().unwrap_or(0.0),
        });
    }
    rows
}

/// Returns the columns of a row: in each, the activity that took most of its time.
fn line(row: &Row, end: f64) -> String {
    let column = |index: usize| {
        let (from, to) = (end * index as f64 / COLUMNS as f64, end * (index + 1) as f64 / COLUMNS as f64);
        let part = |span: &Span| (span.end.min(to) - span.start.max(from)).max(0.0);
        let most = row.spans.iter().max_by(|a, b| part(a).total_cmp(&part(b)));
        match most {
            Some(span) if part(span) * 2.0 >= to - from => match span.category.as_str() {
                "generating" | "training" => span.digit,
                "evaluating" => 'e',
                "publishing weights" => 'w',
                "waiting for episodes" => '.',
                _ => ':',
            },
            _ => ' ',
        }
    };
    (0..COLUMNS).map(column).collect::<String>().trim_end().to_owned()
}

/// Returns the shares of a row's time, largest first.
fn shares(row: &Row, end: f64) -> String {
    let mut seconds: BTreeMap<&str, f64> = BTreeMap::new();
    for span in &row.spans {
        *seconds.entry(&span.category).or_default() += span.end - span.start;
    }
    let idle = (end - seconds.values().sum::<f64>()).max(0.0);
    let mut all: Vec<(&str, f64)> = seconds.into_iter().chain([("idle", idle)]).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let share = |(name, own): &(&str, f64)| format!("{name} {:.0} %", own / end * 100.0);
    all.iter().map(share).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_and_shares_are_those_of_the_trace() {
        let name = |pid: u32, tid: u32, name: &str| json!({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}});
        let event = |pid: u32, tid: u32, step: u32, category: &str, start: u32, end: u32| {
            let (ts, dur) = (start * 1_000_000, (end - start) * 1_000_000);
            json!({"ph": "X", "pid": pid, "tid": tid, "name": format!("step {step}: {category}"), "cat": category, "ts": ts, "dur": dur})
        };
        let text = draw(&[
            name(1, 0, "rollouts 1"),
            name(2, 0, "coder"),
            event(1, 0, 11, "generating", 0, 12),
            event(1, 0, 11, "evaluating", 18, 24),
            event(2, 0, 11, "waiting for episodes", 0, 12),
            event(2, 0, 11, "training", 12, 18),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("            0 s") && lines[0].ends_with("24.0 s"), "{text}");
        assert_eq!(lines[1], format!("rollouts 1  {}{}{}", "1".repeat(48), " ".repeat(24), "e".repeat(24)));
        assert_eq!(lines[2], format!("coder       {}{}", ".".repeat(48), "1".repeat(24)));
        assert!(lines.contains(&"rollouts 1  generating 50 %, evaluating 25 %, idle 25 %"), "{text}");
        assert!(lines.contains(&"coder       waiting for episodes 50 %, training 25 %, idle 25 %"), "{text}");
        assert_eq!(draw(&[]), "no step has ended\n");
    }
}
