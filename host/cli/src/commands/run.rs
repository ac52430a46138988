//! `pl-host run`: trains the policies of a workflow.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use pl_record::RunFolder;
use pl_run::{ResumeOptions, RunEnding, RunOptions, TrainingRun, last_checkpoint, select_device};
use pl_telemetry::RunGauges;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::app::App;
use crate::arguments::training::RunArgs;
use crate::commands::{cluster, view};
use crate::exit::{CommandError, CommandResult};
use crate::interrupt::stop_on_signals;
use crate::panel::PanelState;
use crate::plan::Counted;
use crate::stderr;

pub fn run(app: &App, options: &RunArgs) -> CommandResult {
    let host = &app.host;
    // Known from the beginning if a run is resumed, and else once it is created.
    let shared = Arc::new(options.resume.clone().map_or_else(OnceLock::new, OnceLock::from));
    let known: Arc<OnceLock<PathBuf>> = Arc::clone(&shared);
    let stop = stop_on_signals(app, "this step", move || match known.get() {
        Some(folder) => describe_checkpoint(folder),
        None => "no step was played".to_owned(),
    });
    let device = select_device(host, options.device.into())?;
    let device_name = if device.is_cuda() { "cuda" } else { "cpu" };
    let cluster = cluster::options(&options.cluster, &["--device", device_name])?;
    // Before the run folder is created, which is not left behind for a port in use.
    let metrics = options.metrics_listen.map(|address| listen(app, address)).transpose()?;
    let viewer = options.view.map(|address| view::bind_beside_run(host, address)).transpose()?;
    let mut run = match (&options.resume, &options.file) {
        (Some(folder), _) => {
            let overrides = options.given.command_line()?;
            let resume = ResumeOptions {
                overrides,
                from_start: options.from_start,
                replay_schedule: options.replay_schedule.clone(),
                trust: options.trust,
                cluster,
            };
            app.with_consent(|| TrainingRun::resume(host, folder, device, &resume))?
        }
        (None, Some(file)) => {
            let checked = cluster.applied_to(app.open_with_consent(file, &options.given.all()?)?)?;
            let run = RunOptions {
                folder: options.out.clone(),
                seed: options.seed.unwrap_or(0),
                replay_schedule: options.replay_schedule.clone(),
                cluster,
            };
            app.with_consent(|| TrainingRun::start(host, &checked, device, &run))?
        }
        (None, None) => return Err(CommandError::input("give a workflow, or --resume DIR")),
    };
    // That of a resumed run is there already.
    let _ = shared.set(run.folder().to_path_buf());
    let folder = run.folder().display().to_string();
    stderr::line(&format!("run folder {folder}"));
    if run.finished_steps() >= run.planned_steps() {
        stderr::line(&nothing_to_do(&folder, run.planned_steps()));
    } else {
        stderr::text(&run.memory().to_string());
    }
    if let Some(bound) = viewer {
        view::beside_run(host, run.folder(), bound);
    }
    let _metrics = metrics.map(|listener| serve_metrics(app, listener)).transpose()?;
    let panel = app.terminal.show_panel(PanelState::new(run.finished_steps(), run.planned_steps()));
    let ended = run.train(&stop);
    drop(panel);
    match ended {
        Ok(RunEnding::Done) => Ok(writeln!(std::io::stdout(), "{folder}")?),
        Err(error) => Err(CommandError::Stopped { error: Box::new(error), saved: describe_saved(&run) }),
        Ok(RunEnding::Interrupted) => Err(CommandError::Interrupted(format!(
            "stopped after a checkpoint; continue with: pl-host run --resume {folder}"
        ))),
    }
}

fn listen(app: &App, address: SocketAddr) -> Result<TcpListener, CommandError> {
    let failed = |error| CommandError::failed(format!("cannot listen on {address}: {error}"));
    app.host.block_on(TcpListener::bind(address)).map_err(failed)
}

/// Lets Prometheus read the run's metrics until the returned value is dropped.
fn serve_metrics(app: &App, listener: TcpListener) -> Result<MetricsServer, CommandError> {
    let address = listener.local_addr().map_err(CommandError::failed)?;
    stderr::line(&format!("metrics on http://{address}/metrics"));
    let gauges = Arc::new(RunGauges::default());
    app.terminal.record_metrics(Arc::clone(&gauges));
    Ok(MetricsServer(app.host.handle().spawn(pl_telemetry::serve_metrics(listener, gauges))))
}

/// Server of metrics, which ends when it is dropped.
struct MetricsServer(JoinHandle<std::io::Result<()>>);

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Describes what is left of a run that failed, and how to continue it.
fn describe_saved(run: &TrainingRun) -> String {
    let finished = Counted(run.finished_steps(), "finished step");
    format!("the run stopped after {finished}; {}", describe_checkpoint(run.folder()))
}

/// Describes a run that has all of its steps.
fn nothing_to_do(folder: &str, steps: u64) -> String {
    format!(
        "nothing is left to do: all {} of the run are finished; more steps are played by\n  \
         pl-host run --resume {folder} --set train.steps=NUMBER",
        Counted(steps, "step")
    )
}

/// Describes the last checkpoint in a run folder, and how to continue the run.
fn describe_checkpoint(run: &Path) -> String {
    let folder = run.display();
    match last_checkpoint(run) {
        Ok(Some(step)) => format!(
            "the checkpoint after step {step} is complete, and what came later is played again by\n  \
             pl-host run --resume {folder}"
        ),
        Ok(None) => {
            // What was recorded is only given up if the user wants that.
            let flag = if RunFolder::has_episodes(run).unwrap_or(true) { " --from-start" } else { "" };
            format!(
                "no checkpoint is complete yet, and the run is played again from its start by\n  \
                 pl-host run --resume {folder}{flag}"
            )
        }
        Err(error) => format!("the checkpoints can't be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_a_checkpoint_is_not_said_to_have_one() {
        let folder = tempfile::tempdir().unwrap();
        let command = format!("pl-host run --resume {}", folder.path().display());
        for (metrics, flag) in [("", ""), ("{}\n", " --from-start")] {
            std::fs::write(folder.path().join("metrics.jsonl"), metrics).unwrap();
            let text = describe_checkpoint(folder.path());
            let whole = format!("{command}{flag}");
            assert!(text.starts_with("no checkpoint is complete yet") && text.ends_with(&whole), "{text}");
        }
    }

    #[test]
    fn a_finished_run_says_how_it_is_continued() {
        let text = nothing_to_do("runs/a", 2);
        assert!(
            text.contains("all 2 steps") && text.ends_with("--resume runs/a --set train.steps=NUMBER"),
            "{text}"
        );
    }
}
