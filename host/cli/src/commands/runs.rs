//! `pl-host runs`: a table of runs.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pl_viewer::{RunState, RunSummary, list_runs};

use crate::arguments::view::RunsArgs;
use crate::exit::{CommandError, CommandResult};
use crate::stderr;
use crate::table::plain_table;
use crate::visible;

pub fn run(options: &RunsArgs) -> CommandResult {
    let runs = list_runs(&options.folder).map_err(CommandError::input)?;
    let mut out = visible::stdout();
    if options.json {
        writeln!(out, "{}", serde_json::to_string(&runs).map_err(CommandError::failed)?)?;
        return Ok(());
    }
    let mut table = plain_table(["run", "state", "step", "success", "changed"]);
    for run in &runs {
        let steps = run.steps.map(|steps| format!("/{steps}")).unwrap_or_default();
        table.add_row([
            run.name.clone(),
            state(run.state).to_owned(),
            format!("{}{steps}", run.step),
            success(run),
            run.changed.map_or("-".to_owned(), age),
        ]);
    }
    writeln!(out, "{}", table.trim_fmt())?;
    for run in &runs {
        if let Some(problem) = &run.problem {
            stderr::line(&visible::visible(&format!("warning: {}: {problem}", run.name)));
        }
    }
    Ok(())
}

fn state(state: RunState) -> &'static str {
    match state {
        RunState::Running => "running",
        RunState::Finished => "finished",
        RunState::Stopped => "stopped",
    }
}

/// Returns the success of the last evaluation, or of the last training step.
fn success(run: &RunSummary) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    match (&run.evaluation, run.success) {
        (Some((name, share)), _) => format!("{} ({name})", percent(*share)),
        (None, Some(share)) => format!("{} (training)", percent(share)),
        (None, None) => "-".to_owned(),
    }
}

/// Returns the time since a moment, in its largest unit.
fn age(seconds: u64) -> String {
    let then = UNIX_EPOCH + Duration::from_secs(seconds);
    let passed = SystemTime::now().duration_since(then).unwrap_or_default().as_secs();
    match passed {
        0..60 => format!("{passed} s ago"),
        60..3600 => format!("{} min ago", passed / 60),
        3600..86400 => format!("{} h ago", passed / 3600),
        _ => format!("{} d ago", passed / 86400),
    }
}
