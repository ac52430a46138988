//! `pl-host run`: trains the policies of a workflow.

use std::io::Write;

use pl_run::{CheckedWorkflow, Ending, RunOptions, TrainingRun, select_device};

use crate::App;
use crate::arguments::Run;
use crate::exit::{CommandError, CommandResult};
use crate::interrupt::stop_on_signals;

pub fn run(app: &App, options: &Run) -> CommandResult {
    let host = &app.host;
    let stop = stop_on_signals(host);
    let device = select_device(host, options.device.into())?;
    let mut run = match (&options.resume, &options.file) {
        (Some(folder), _) => TrainingRun::resume(host, folder, &options.given.command_line()?, device)?,
        (None, Some(file)) => {
            let checked = CheckedWorkflow::open(host, file, &options.given.all()?)?;
            app.show_warnings(&checked)?;
            let run = RunOptions { folder: options.out.clone(), seed: options.seed.unwrap_or(0) };
            TrainingRun::start(host, &checked, device, &run)?
        }
        (None, None) => return Err(CommandError::input("give a workflow, or --resume DIR")),
    };
    let folder = run.folder().display().to_string();
    eprintln!("run folder {folder}");
    eprint!("{}", run.memory());
    match run.train(&stop)? {
        Ending::Done => Ok(writeln!(std::io::stdout(), "{folder}")?),
        Ending::Interrupted => Err(CommandError::Interrupted(format!(
            "stopped after a checkpoint; continue with: pl-host run --resume {folder}"
        ))),
    }
}
