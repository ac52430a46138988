//! `pl-host compare`: differing settings and results of some runs.

use std::io::Write;

use comfy_table::Table;
use pl_run::compare::{ComparedRun, RunComparison};
use serde_json::Value;

use crate::arguments::runs::CompareArgs;
use crate::exit::{CommandError, CommandResult};
use crate::table::plain_table;
use crate::visible;

pub fn run(options: &CompareArgs) -> CommandResult {
    let comparison = RunComparison::new(&options.runs)?;
    let mut out = visible::stdout();
    if options.json {
        writeln!(out, "{}", serde_json::to_string(&comparison).map_err(CommandError::failed)?)?;
        return Ok(());
    }
    if comparison.settings.is_empty() {
        writeln!(out, "The runs have the same settings.\n")?;
    } else {
        writeln!(out, "{}\n", settings_table(&comparison).trim_fmt())?;
    }
    writeln!(out, "{}", results_table(&comparison.runs).trim_fmt())?;
    Ok(())
}

/// Returns a line for each setting that differs, with a column for each run.
fn settings_table(comparison: &RunComparison) -> Table {
    let folders = comparison.runs.iter().map(|run| run.folder.display().to_string());
    let mut table = plain_table(std::iter::once("setting".to_owned()).chain(folders));
    for setting in &comparison.settings {
        let value = |value: &Option<Value>| match value {
            None => "-".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        table.add_row(std::iter::once(setting.path.clone()).chain(setting.values.iter().map(value)));
    }
    table
}

/// Returns a line for each evaluation of each run. Success is in percent.
fn results_table(runs: &[ComparedRun]) -> Table {
    let mut table = plain_table(["run", "steps", "evaluation", "untrained", "last step", "best"]);
    let percent =
        |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
    for run in runs {
        let (folder, step) = (run.folder.display().to_string(), run.step.to_string());
        if run.evaluations.is_empty() {
            table.add_row([folder, step, "-".into(), "-".into(), "-".into(), "-".into()]);
            continue;
        }
        for evaluation in &run.evaluations {
            let [untrained, last, best] =
                [evaluation.untrained(), evaluation.last(), evaluation.best()].map(percent);
            table.add_row([folder.clone(), step.clone(), evaluation.name.clone(), untrained, last, best]);
        }
    }
    table
}
