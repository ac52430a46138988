//! Progress for people, on stderr: a bar on a terminal, nothing elsewhere (each step's line is enough there).

use std::fmt::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use pl_inference::Engine;
use pl_model::FetchProgress;

/// How often what is shown is brought up to date, between steps of the work too.
const TICK: Duration = Duration::from_millis(200);

/// A bar over packed batches.
pub fn batches(what: &str) -> ProgressBar {
    let template = "{prefix:>10} {bar:28} {pos}/{len} batches · {elapsed} · {eta} left";
    start(what, ProgressStyle::with_template(template).ok())
}

/// A bar over episodes, with the engine's rate of tokens since now.
pub fn episodes(what: &str, engine: &Engine) -> ProgressBar {
    let engine = engine.clone();
    let before = engine.stats().generated_tokens;
    let rate = move |state: &ProgressState, out: &mut dyn Write| {
        let tokens = engine.stats().generated_tokens.saturating_sub(before) as f64;
        // A terminal that can't be written to shows nothing; the run goes on.
        let _ = write!(out, "{:.0}", tokens / state.elapsed().as_secs_f64().max(1e-3));
    };
    let template = "{prefix:>10} {bar:28} {pos}/{len} episodes · {elapsed} · {eta} left · {rate} tokens/s";
    start(what, ProgressStyle::with_template(template).ok().map(|style| style.with_key("rate", rate)))
}

/// A bar over episodes that are played again.
pub fn replays(count: usize) -> ProgressBar {
    let bar =
        start("replay", ProgressStyle::with_template("{prefix:>10} {bar:28} {pos}/{len} episodes").ok());
    bar.set_length(count as u64);
    bar
}

/// A bar over containers that are being started.
pub fn containers(count: u32) -> ProgressBar {
    let bar =
        start("sandbox", ProgressStyle::with_template("{prefix:>10} {bar:28} {pos}/{len} containers").ok());
    bar.set_length(u64::from(count));
    bar
}

fn start(what: &str, style: Option<ProgressStyle>) -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Some(style) = style {
        bar.set_style(style);
    }
    bar.set_prefix(what.to_owned());
    bar.enable_steady_tick(TICK);
    bar
}

/// A bar per file that is fetched.
#[derive(Default)]
pub struct Downloads {
    current: Option<(String, ProgressBar)>,
}

impl Downloads {
    /// Shows how far a file is; the first report of another file ends the bar before.
    pub fn follow(&mut self, progress: FetchProgress<'_>) {
        if self.current.as_ref().is_none_or(|(file, _)| file != progress.file) {
            self.finish();
            let template = "{prefix:>10} {bar:28} {bytes}/{total_bytes} · {bytes_per_sec} · {eta} left";
            let bar = start(progress.file, ProgressStyle::with_template(template).ok());
            self.current = Some((progress.file.to_owned(), bar));
        }
        if let Some((_, bar)) = &self.current {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
        }
    }

    /// Takes the last bar away.
    pub fn finish(&mut self) {
        if let Some((_, bar)) = self.current.take() {
            bar.finish_and_clear();
        }
    }
}

/// A spinner for work of unknown length.
pub fn spinner(what: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(TICK);
    bar
}

/// Shows how far a batch of episodes is.
pub fn follow(bar: &ProgressBar, progress: pl_rollout::Progress) {
    bar.set_length(progress.total as u64);
    bar.set_position(progress.done as u64);
}
