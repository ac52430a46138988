//! The live panel of a training run on a terminal: step, time left, success, rewards, rates, where the time goes.
//!
//! The text is made anew at each draw, for the window's size at that moment: lines are cut at its width, and in a low
//! window only the first line is shown.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use console::{Term, measure_text_width, truncate_str};
use pl_run::progress::{MetricsLine, StepSeconds};
use serde_json::Value;

use crate::visible::visible;

/// Rows below which only the first line is shown: the panel, a bar and some lines of history need more.
const LOW: u16 = 12;

/// Width of the bar of steps.
const BAR: usize = 24;

/// Width of the first column.
const TITLE: usize = 9;

/// Content of the panel.
#[derive(Debug)]
pub struct PanelState {
    started: Instant,
    /// Steps that were finished before this process.
    first: Option<u64>,
    step: u64,
    steps: u64,
    rollouts: Option<f64>,
    /// Success of the agents' rollouts.
    agents: Vec<(String, f64)>,
    /// Name, first and last success of each evaluation.
    evaluations: Vec<(String, f64, f64)>,
    /// Mean reward of the agents in the last step.
    rewards: Vec<(String, f64)>,
    /// Sampled tokens per second of the last step.
    rate: Option<f64>,
    /// Sums over the steps of this process.
    seconds: StepSeconds,
    /// Step whose evaluations were counted last.
    evaluated: Option<u64>,
    stopping: bool,
}

impl PanelState {
    /// Creates the panel of a run of some steps, of which `step` are finished.
    pub fn new(step: u64, steps: u64) -> PanelState {
        PanelState {
            started: Instant::now(),
            first: None,
            step,
            steps,
            rollouts: None,
            agents: Vec::new(),
            evaluations: Vec::new(),
            rewards: Vec::new(),
            rate: None,
            seconds: StepSeconds::default(),
            evaluated: None,
            stopping: false,
        }
    }

    /// Takes over a line of metrics.
    pub fn add(&mut self, report: &MetricsLine<'_>) {
        let MetricsLine { step, steps, evaluation, line, seconds } = *report;
        self.first.get_or_insert(if evaluation.is_some() { step } else { step.saturating_sub(1) });
        (self.step, self.steps) = (step, steps);
        match evaluation {
            Some(name) => self.add_evaluation(name, line, step, seconds),
            None => self.add_step(line, seconds),
        }
    }

    fn add_evaluation(&mut self, name: &str, line: &Value, step: u64, seconds: StepSeconds) {
        // Each evaluation of a step reports the seconds of all.
        if self.evaluated.replace(step) != Some(step) {
            self.seconds.evaluate += seconds.evaluate;
        }
        let Some(success) = line.get("success").and_then(Value::as_f64) else { return };
        match self.evaluations.iter_mut().find(|(known, ..)| known == name) {
            Some((_, _, last)) => *last = success,
            None => self.evaluations.push((name.to_owned(), success, success)),
        }
    }

    fn add_step(&mut self, line: &Value, seconds: StepSeconds) {
        self.seconds.wait += seconds.wait;
        self.seconds.train += seconds.train;
        self.rollouts = line.get("rollout_success").and_then(Value::as_f64);
        let tokens = line.get("tokens").and_then(Value::as_f64);
        self.rate = tokens.filter(|_| seconds.play > 0.0).map(|tokens| tokens / seconds.play);
        let of_agents = |field: &str| {
            let agents = line.get("agents").and_then(Value::as_object).into_iter().flatten();
            let values = agents.filter_map(|(name, agent)| Some((name.clone(), agent.get(field)?.as_f64()?)));
            values.collect::<Vec<_>>()
        };
        (self.agents, self.rewards) = (of_agents("rollout_success"), of_agents("reward"));
    }

    /// Shows that the run ends after the present step.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Writes the lines for the present size of the window.
    pub fn draw(&self, out: &mut dyn std::fmt::Write) {
        let (rows, columns) = Term::stderr().size_checked().unwrap_or((24, 80));
        let text = self.lines(self.started.elapsed(), rows, columns).join("\n");
        // A terminal that can't be written to shows nothing; the run continues.
        let _ = out.write_str(&text);
    }

    fn lines(&self, elapsed: Duration, rows: u16, columns: u16) -> Vec<String> {
        let mut lines = vec![self.step_line(elapsed)];
        if rows >= LOW {
            lines.extend(self.success_line());
            lines.extend(self.reward_line());
            lines.extend(self.time_line(elapsed));
        }
        // A line as wide as the window makes some terminals begin another one.
        let width = usize::from(columns.saturating_sub(1));
        lines.iter().map(|line| truncate_str(&visible(line), width, "…").into_owned()).collect()
    }

    fn step_line(&self, elapsed: Duration) -> String {
        let share = if self.steps == 0 { 0.0 } else { self.step as f64 / self.steps as f64 };
        let done = ((share * BAR as f64) as usize).min(BAR);
        let bar = "█".repeat(done) + &"░".repeat(BAR - done);
        let left = match (self.stopping, self.left(elapsed)) {
            (true, _) => " · stopping after this step".to_owned(),
            (false, Some(left)) => format!(" · {} left", duration(left)),
            (false, None) => String::new(),
        };
        titled("step", &format!("{bar} {}/{} · {}{left}", self.step, self.steps, duration(elapsed)))
    }

    /// Returns the time that the remaining steps take, at the pace of those of this process.
    fn left(&self, elapsed: Duration) -> Option<Duration> {
        let done = self.step.checked_sub(self.first?).filter(|done| *done > 0)?;
        let remaining = self.steps.saturating_sub(self.step);
        Duration::try_from_secs_f64(elapsed.as_secs_f64() / done as f64 * remaining as f64).ok()
    }

    fn success_line(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(success) = self.rollouts {
            let agents: Vec<String> =
                self.agents.iter().map(|(name, success)| format!("{name} {}", percent(*success))).collect();
            parts.push(format!("rollouts {} ({})", percent(success), agents.join(", ")));
        }
        for (name, first, last) in &self.evaluations {
            let arrow = format!("{name} {} → {}", percent(*first), percent(*last));
            parts.push(if first == last { format!("{name} {}", percent(*last)) } else { arrow });
        }
        (!parts.is_empty()).then(|| titled("success", &parts.join(" · ")))
    }

    fn reward_line(&self) -> Option<String> {
        let mut parts: Vec<String> =
            self.rewards.iter().map(|(name, reward)| format!("{name} {reward:.2}")).collect();
        parts.extend(self.rate.map(|rate| format!("{rate:.0} tokens/s sampled")));
        (!parts.is_empty()).then(|| titled("reward", &parts.join(" · ")))
    }

    /// Returns the shares of the time that the trainer waited for rollouts, trained and waited for evaluations.
    fn time_line(&self, elapsed: Duration) -> Option<String> {
        let StepSeconds { wait, train, evaluate, .. } = self.seconds;
        let known = wait + train + evaluate;
        if known <= 0.0 {
            return None;
        }
        let total = elapsed.as_secs_f64().max(known);
        let share = |seconds: f64| percent(seconds / total);
        let mut text =
            format!("rollouts {} · training {} · evaluations {}", share(wait), share(train), share(evaluate));
        let _ = write!(text, " · rest {}", share(total - known));
        Some(titled("time", &text))
    }
}

fn titled(title: &str, text: &str) -> String {
    let padding = " ".repeat(TITLE.saturating_sub(measure_text_width(title)));
    format!("{padding}{title}  {text}")
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn panel() -> PanelState {
        let mut panel = PanelState::new(0, 8);
        let evaluation = |step, success: f64| (step, json!({ "success": success }));
        let seconds = StepSeconds { play: 10.0, wait: 10.0, train: 20.0, ..StepSeconds::default() };
        let (step, line) = evaluation(0, 0.25);
        panel.add(&MetricsLine {
            step,
            steps: 8,
            evaluation: Some("test"),
            line: &line,
            seconds: StepSeconds::default(),
        });
        let line = json!({ "rollout_success": 0.5, "tokens": 1000,
            "agents": { "tool": { "rollout_success": 0.75, "reward": 1.25 }, "reason": { "rollout_success": 0.5, "reward": 0.5 } } });
        for step in 1..=2 {
            panel.add(&MetricsLine { step, steps: 8, evaluation: None, line: &line, seconds });
        }
        let (step, line) = evaluation(2, 0.5);
        let seconds = StepSeconds { evaluate: 10.0, ..seconds };
        for name in ["test", "hard"] {
            panel.add(&MetricsLine { step, steps: 8, evaluation: Some(name), line: &line, seconds });
        }
        panel
    }

    #[test]
    fn the_panel_shows_progress_results_and_where_the_time_goes() {
        let lines = panel().lines(Duration::from_secs(100), 40, 120);
        assert_eq!(
            lines,
            [
                "     step  ██████░░░░░░░░░░░░░░░░░░ 2/8 · 1 min 40 s · 5 min 00 s left",
                "  success  rollouts 50 % (tool 75 %, reason 50 %) · test 25 % → 50 % · hard 50 %",
                "   reward  tool 1.25 · reason 0.50 · 100 tokens/s sampled",
                "     time  rollouts 20 % · training 40 % · evaluations 10 % · rest 30 %",
            ]
        );
    }

    #[test]
    fn a_small_window_gets_fewer_and_shorter_lines() {
        let lines = panel().lines(Duration::from_secs(100), 6, 30);
        assert_eq!(lines, ["     step  ██████░░░░░░░░░░░…"]);
        for line in panel().lines(Duration::from_secs(100), 40, 30) {
            assert!(measure_text_width(&line) < 30, "{line}");
        }
        assert_eq!(panel().lines(Duration::ZERO, 40, 0).len(), 4);
    }

    #[test]
    fn a_stop_is_shown_in_place_of_the_time_left() {
        let mut panel = panel();
        panel.stop();
        assert!(panel.step_line(Duration::from_secs(9)).ends_with("2/8 · 9 s · stopping after this step"));
    }

    #[test]
    fn a_resumed_run_counts_its_own_steps_for_the_time_left() {
        let mut panel = PanelState::new(6, 8);
        let line = json!({});
        panel.add(&MetricsLine {
            step: 7,
            steps: 8,
            evaluation: None,
            line: &line,
            seconds: StepSeconds::default(),
        });
        assert_eq!(panel.left(Duration::from_secs(30)), Some(Duration::from_secs(30)));
    }
}
