//! `pl-host evaluate`: success of each agent and of the team, pass@k, turns, tokens.

use std::io::Write;

use pl_run::evaluation::{EvaluationEnding, EvaluationResult, evaluate};

use crate::app::App;
use crate::arguments::training::EvaluateArgs;
use crate::exit::{CommandError, CommandResult};
use crate::interrupt::give_up_on_signals;
use crate::output_file::OutputFile;
use crate::report;
use crate::stderr;
use crate::visible;

pub fn run(app: &App, options: &EvaluateArgs) -> CommandResult {
    let (checked, session) =
        app.open_session(&options.source, &options.machine, options.checkpoint.as_deref())?;
    // Before the file is created, which is not left unfinished.
    let stop = give_up_on_signals(app);
    // Before any episode: a path that can't be written is found before hours of playing.
    let mut completions = options.out.as_deref().map(OutputFile::create).transpose()?;
    let mut out = visible::stdout();
    let mut is_written = false;
    let played = evaluate(&app.host, &checked, &session, &stop, |result| -> CommandResult {
        let EvaluationResult { report, seconds, tokens, .. } = result;
        // Timings differ from run to run and are not part of the report.
        let rate = *tokens as f64 / seconds;
        stderr::line(&format!("{}: {tokens} tokens in {seconds:.1} s, {rate:.1} tokens/s", report.name));
        if let Some(file) = &mut completions {
            result.write_completions(&session, file).map_err(|error| file.failure(&error))?;
            is_written = true;
        }
        if options.json {
            writeln!(out, "{}", serde_json::to_string(report).map_err(CommandError::failed)?)?;
        } else {
            report::write(report, &mut out)?;
        }
        Ok(())
    });
    let played = played.and_then(|ending| match ending {
        EvaluationEnding::Done => Ok(()),
        EvaluationEnding::Interrupted => {
            Err(CommandError::Interrupted("stopped; the evaluation in progress has no result".to_owned()))
        }
    });
    // The completions of an evaluation that has ended are kept if a later one fails or is stopped.
    let saved = completions.filter(|_| is_written || played.is_ok()).map_or(Ok(()), OutputFile::finish);
    played.and(saved)
}
