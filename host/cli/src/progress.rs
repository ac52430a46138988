//! Progress for people, on stderr: a bar on a terminal, nothing elsewhere (each step's line is enough there).

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that counts `unit`s up to a total.
pub fn bar(what: &str, unit: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template =
        format!("{{prefix:>10}} {{bar:28}} {{pos}}/{{len}} {unit} · {{elapsed}} · {{eta}} left {{msg}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar.set_prefix(what.to_owned());
    bar
}

/// A spinner for work of unknown length.
pub fn spinner(what: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Shows how far a batch of episodes is.
pub fn follow(bar: &ProgressBar, progress: pl_rollout::Progress) {
    bar.set_length(progress.total as u64);
    bar.set_position(progress.done as u64);
    let seconds = bar.elapsed().as_secs_f64();
    if seconds > 0.0 {
        bar.set_message(format!("{:.0} tokens/s", progress.tokens as f64 / seconds));
    }
}
