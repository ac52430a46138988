//! `pl-host sweep`: trains a workflow with every combination of some settings and seeds.

use std::io::Write;
use std::path::PathBuf;

use comfy_table::Table;
use pl_run::results::MeanInterval;
use pl_run::sweep::{CellResults, Sweep};
use pl_run::{RunEnding, select_device};

use crate::app::App;
use crate::arguments::training::SweepArgs;
use crate::exit::{CommandError, CommandResult};
use crate::interrupt::stop_on_signals;
use crate::table::plain_table;
use crate::visible;

pub fn run(app: &App, options: &SweepArgs) -> CommandResult {
    let rest = "the same command continues the sweep, from the last checkpoint of the run that was stopped if it has one";
    let stop = stop_on_signals(app, "this step", || rest.to_owned());
    let device = select_device(&app.host, options.device.into())?;
    let file = options.source.file.clone();
    let sweep = Sweep {
        given: options.source.given.all()?,
        grid: options.grid.clone(),
        seeds: options.seeds.clone(),
        folder: options.out.clone().unwrap_or_else(|| default_folder(&file)),
        file,
    };
    let mut started = None;
    let ended = app.with_consent(|| started.insert(sweep.check(&app.host)?).run(&app.host, device, &stop));
    let results = started.map_or_else(|| Ok(Vec::new()), |checked| checked.results());
    let ending = match ended {
        Ok(ending) => ending,
        Err(error) => {
            // The runs before the one that failed.
            if let Ok(results) = results
                && results.iter().any(|cell| cell.finished > 0)
            {
                // The error of the run is the one to report.
                drop(write_results(options, &results));
            }
            return Err(error);
        }
    };
    write_results(options, &results?)?;
    match ending {
        RunEnding::Done => Ok(()),
        RunEnding::Interrupted => Err(CommandError::Interrupted(
            "stopped after a checkpoint; the same command continues the sweep".to_owned(),
        )),
    }
}

fn write_results(options: &SweepArgs, results: &[CellResults]) -> CommandResult {
    let mut out = visible::stdout();
    if options.json {
        writeln!(out, "{}", serde_json::to_string(results).map_err(CommandError::failed)?)?;
    } else {
        writeln!(out, "{}", table(results, options.seeds.len()).trim_fmt())?;
    }
    Ok(())
}

fn default_folder(file: &std::path::Path) -> PathBuf {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    PathBuf::from(format!("runs/{name}-sweep"))
}

/// Returns a line for each combination and evaluation. Success is in percent, with the 95 % interval over
/// seeds.
fn table(results: &[CellResults], seeds: usize) -> Table {
    let mut table = plain_table(["settings", "runs", "evaluation", "untrained", "last step", "gain"]);
    for CellResults { cell, finished, evaluations } in results {
        let settings = if cell.settings.is_empty() { "-".to_owned() } else { cell.settings.join(", ") };
        let runs = format!("{finished}/{seeds}");
        if evaluations.is_empty() {
            table.add_row([settings, runs, "-".into(), "-".into(), "-".into(), "-".into()]);
            continue;
        }
        for evaluation in evaluations {
            let [untrained, last, gain] =
                [evaluation.untrained, evaluation.last, evaluation.gain].map(percent);
            table.add_row([settings.clone(), runs.clone(), evaluation.name.clone(), untrained, last, gain]);
        }
    }
    table
}

fn percent(value: Option<MeanInterval>) -> String {
    match value {
        None => "-".to_owned(),
        Some(MeanInterval { mean, margin: None, .. }) => format!("{:.1} %", 100.0 * mean),
        Some(MeanInterval { mean, margin: Some(margin), .. }) => {
            format!("{:.1} ± {:.1} %", 100.0 * mean, 100.0 * margin)
        }
    }
}

#[cfg(test)]
mod tests {
    use pl_run::sweep::{CellEvaluation, SweepCell};

    use super::*;

    #[test]
    fn means_have_their_intervals() {
        let cell = |setting: &str| SweepCell { settings: vec![setting.to_owned()] };
        let evaluation = CellEvaluation {
            name: "test".to_owned(),
            untrained: MeanInterval::new(&[0.25, 0.25]),
            last: MeanInterval::new(&[0.5]),
            gain: None,
        };
        let results = [
            CellResults { cell: cell("samples=4"), finished: 2, evaluations: vec![evaluation] },
            CellResults { cell: cell("samples=8"), finished: 0, evaluations: Vec::new() },
        ];
        let shown = table(&results, 2).trim_fmt();
        let expected = [
            "settings   runs  evaluation  untrained     last step  gain",
            "samples=4  2/2   test        25.0 ± 0.0 %  50.0 %     -",
            "samples=8  0/2   -           -             -          -",
        ];
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
    }
}
