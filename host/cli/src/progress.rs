//! Progress on stderr: a panel and bars on a terminal, nothing elsewhere. A line for each step is shown in both.

use std::fmt::Write;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use parking_lot::Mutex;
use pl_run::Progress;
use pl_run::progress::{Activity, MetricsLine, Notice, Tracker};
use pl_telemetry::RunGauges;
use serde_json::Value;

use crate::diagnostics;
use crate::diagnostics::DiagnosticFormat;
use crate::panel::PanelState;
use crate::stderr;
use crate::visible::visible;

/// Interval of updates between the steps of the work.
const TICK: Duration = Duration::from_millis(200);

/// Interval of updates of the panel, which shows whole seconds.
const PANEL_TICK: Duration = Duration::from_secs(1);

/// Progress bars and messages on stderr.
#[derive(Default)]
pub struct Terminal {
    bars: MultiProgress,
    panel: Mutex<Option<Arc<Mutex<PanelState>>>>,
    gauges: OnceLock<Arc<RunGauges>>,
}

impl Terminal {
    /// Shows a panel of the run, above the bars, until the returned value is dropped.
    pub fn show_panel(&self, state: PanelState) -> Panel<'_> {
        let state = Arc::new(Mutex::new(state));
        *self.panel.lock() = Some(Arc::clone(&state));
        let bar = self.bars.insert(0, ProgressBar::new_spinner());
        let draw = move |_: &ProgressState, out: &mut dyn Write| state.lock().draw(out);
        if let Ok(style) = ProgressStyle::with_template("{panel}") {
            bar.set_style(style.with_key("panel", draw));
        }
        bar.enable_steady_tick(PANEL_TICK);
        Panel { terminal: self, bar }
    }

    /// Keeps the run's metrics in gauges, too.
    pub fn record_metrics(&self, gauges: Arc<RunGauges>) {
        // A program trains one run with gauges.
        let _ = self.gauges.set(gauges);
    }

    /// Shows that the program stops after what `until` names, and what a second request does.
    pub fn show_stop(&self, until: &str) {
        if let Some(panel) = &*self.panel.lock() {
            panel.lock().stop();
        }
        let text = format!("stopping after {until} (press Ctrl-C again to stop at once)");
        self.suspend(|| stderr::line(&text));
    }

    /// Takes back what a terminal has shown of Ctrl-C: bars end at the right edge, so `^C` has begun a line below them.
    pub fn undo_echo(&self) {
        let stderr = Term::stderr();
        if stderr.is_term() && self.panel.lock().is_some() {
            // A terminal that can't be written to shows nothing.
            let _ = stderr.clear_line().and_then(|()| stderr.move_cursor_up(1));
        }
    }

    /// Removes all bars, before the program ends at once.
    pub fn clear(&self) {
        // A terminal that can't be written to shows nothing.
        let _ = self.bars.clear();
    }

    /// Writes something while all bars are hidden.
    pub fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bars.suspend(write)
    }

    /// Shows a spinner for work of unknown length.
    pub fn spinner(&self, message: &str) -> ProgressBar {
        let bar = self.bars.add(ProgressBar::new_spinner());
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(TICK);
        bar
    }

    fn bar(&self, title: &str, columns: &str) -> ProgressBar {
        self.styled_bar(title, ProgressStyle::with_template(&template(columns)).ok())
    }

    fn styled_bar(&self, title: &str, style: Option<ProgressStyle>) -> ProgressBar {
        let bar = self.bars.add(ProgressBar::new(0));
        if let Some(style) = style {
            bar.set_style(style);
        }
        bar.set_prefix(title.to_owned());
        bar.enable_steady_tick(TICK);
        bar
    }
}

/// Panel on the terminal. It disappears when it is dropped.
pub struct Panel<'t> {
    terminal: &'t Terminal,
    bar: ProgressBar,
}

impl Drop for Panel<'_> {
    fn drop(&mut self) {
        *self.terminal.panel.lock() = None;
        self.bar.finish_and_clear();
    }
}

fn template(columns: &str) -> String {
    format!("{{prefix:>10}} {{bar:28}} {columns}")
}

impl Progress for Terminal {
    fn start(&self, activity: Activity<'_>) -> Box<dyn Tracker> {
        let bar = match activity {
            Activity::Download { file } => {
                self.bar(file, "{bytes}/{total_bytes} · {bytes_per_sec} · {eta} left")
            }
            Activity::IndexingCorpus { corpus } => {
                self.bar(corpus, "{bytes}/{total_bytes} indexed · {eta} left")
            }
            Activity::LoadingModels => self.spinner("loading models"),
            Activity::LoadingPythonWorker => {
                self.spinner("loading the Python worker (compiled once, then cached)")
            }
            Activity::StartingContainers => self.bar("sandbox", "{pos}/{len} containers"),
            Activity::Episodes { title, generated_tokens } => {
                let before = generated_tokens();
                let rate = move |state: &ProgressState, out: &mut dyn Write| {
                    let tokens = generated_tokens().saturating_sub(before) as f64;
                    // A terminal that can't be written to shows nothing; the run continues.
                    let _ = write!(out, "{:.0}", tokens / state.elapsed().as_secs_f64().max(1e-3));
                };
                let columns = "{pos}/{len} episodes · {elapsed} · {eta} left · {rate} tokens/s";
                let style = ProgressStyle::with_template(&template(columns)).ok();
                self.styled_bar(title, style.map(|style| style.with_key("rate", rate)))
            }
            Activity::Update => self.bar("training", "{pos}/{len} batches · {elapsed} · {eta} left"),
            Activity::Replay => self.bar("replay", "{pos}/{len} episodes"),
        };
        Box::new(Bar(bar))
    }

    fn notice(&self, notice: &Notice) {
        self.suspend(|| match notice {
            // Human diagnostics go to stderr, which is written to without an error.
            Notice::Diagnostics(found) => drop(diagnostics::show(found, DiagnosticFormat::Human)),
            notice => stderr::line(&visible(&notice.to_string())),
        });
    }

    fn metrics(&self, line: &MetricsLine<'_>) {
        if let Some(panel) = &*self.panel.lock() {
            panel.lock().add(line);
        }
        if let Some(gauges) = self.gauges.get() {
            record(gauges, line);
        }
        self.suspend(|| stderr::line(&visible(&summary(line))));
    }
}

/// Bar that disappears when its activity ends.
struct Bar(ProgressBar);

impl Tracker for Bar {
    fn update(&mut self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Takes over a line of metrics, and on that of a step the time that its parts took.
fn record(gauges: &RunGauges, report: &MetricsLine<'_>) {
    gauges.record(report.step, report.steps, report.line);
    if report.evaluation.is_none() {
        gauges.add_seconds("rollouts", report.seconds.play);
        gauges.add_seconds("wait", report.seconds.wait);
        gauges.add_seconds("training", report.seconds.train);
        gauges.add_seconds("publishing", report.seconds.publish);
    }
}

/// Returns a line of metrics for people.
fn summary(report: &MetricsLine<'_>) -> String {
    let MetricsLine { step, steps, evaluation, line, seconds } = report;
    let percent = |value: &Value| value.as_f64().map_or("-".to_owned(), |v| format!("{:.0} %", 100.0 * v));
    let success = if evaluation.is_some() { "success" } else { "rollout_success" };
    let agents: Vec<String> = line["agents"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, agent)| format!("{name} {}", percent(&agent[success])))
        .collect();
    let agents = agents.join(", ");
    let lost = match line["lost"].as_u64() {
        None | Some(0) => String::new(),
        Some(lost) => format!(", {lost} episodes lost"),
    };
    match evaluation {
        Some(name) => {
            format!("after step {step}, {name}: success {} ({agents}){lost}", percent(&line[success]))
        }
        None => format!(
            "step {step}/{steps}: rollout success {} ({agents}){lost}, {:.1} s rollouts, {:.1} s training",
            percent(&line[success]),
            seconds.play,
            seconds.train
        ),
    }
}

#[cfg(test)]
mod tests {
    use pl_run::progress::StepSeconds;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_step_and_an_evaluation_take_a_line_each() {
        let agents = json!({ "a": { "success": 0.75, "rollout_success": 0.5 }, "b": {} });
        let line = json!({ "success": 0.25, "rollout_success": 0.5, "lost": 2, "agents": agents });
        let seconds = StepSeconds { play: 1.25, train: 2.0, ..StepSeconds::default() };
        let shown =
            |evaluation| summary(&MetricsLine { step: 3, steps: 9, evaluation, line: &line, seconds });
        assert_eq!(
            shown(None),
            "step 3/9: rollout success 50 % (a 50 %, b -), 2 episodes lost, 1.2 s rollouts, 2.0 s training"
        );
        assert_eq!(shown(Some("test")), "after step 3, test: success 25 % (a 75 %, b -), 2 episodes lost");
    }
}
