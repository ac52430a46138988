//! `pl-host design`: a designer proposes teams, which are checked, played and shown to it.

use std::io::Write;
use std::path::Path;

use pl_run::design::{DesignRecord, Outcome, SearchEnding, SearchOptions, search};

use crate::app::App;
use crate::arguments::design::DesignArgs;
use crate::exit::{CommandError, CommandResult};
use crate::interrupt::stop_on_signals;
use crate::stderr;
use crate::visible;

pub fn run(app: &App, options: &DesignArgs) -> CommandResult {
    let stop = stop_on_signals(app, "this design", || {
        "the same command goes on after the last recorded design".to_owned()
    });
    let (checked, session) = app.open_session(&options.source, &options.machine, None)?;
    let default = || Path::new("designs").join(&checked.workflow.name);
    let search_options = SearchOptions {
        scenario: options.scenario.clone(),
        rounds: options.rounds,
        budget: options.budget,
        folder: options.out.clone().unwrap_or_else(default),
    };
    let mut out = visible::stdout();
    let ending = search(&app.host, &checked, &session, &search_options, &stop, |record| {
        Ok::<(), CommandError>(writeln!(out, "{}", line(record))?)
    })?;
    let folder = search_options.folder.display();
    match ending {
        SearchEnding::Done => {}
        SearchEnding::Spent => stderr::line("the budget is spent"),
        SearchEnding::Interrupted => {
            let message = format!("stopped; the same command goes on with the designs in {folder}");
            return Err(CommandError::Interrupted(message));
        }
    }
    Ok(writeln!(out, "{folder}")?)
}

/// Describes a design in one line.
pub fn line(record: &DesignRecord) -> String {
    let DesignRecord { round, index, hash, origin, outcome, .. } = record;
    let outcome = match outcome {
        Outcome::Invalid { mistakes } => {
            let more = if mistakes.len() > 1 {
                format!(" (and {} more)", mistakes.len() - 1)
            } else {
                String::new()
            };
            format!("wrong: {}{more}", mistakes.first().map_or("", String::as_str))
        }
        Outcome::Costly { bound, most } => format!("up to {bound} tokens in an episode, more than {most}"),
        Outcome::Played { success, tokens, episodes, failure, .. } => {
            let failure = failure.as_ref().map(|failure| format!("; {failure}")).unwrap_or_default();
            format!("{:.1} % of {episodes}, {tokens:.0} tokens each{failure}", 100.0 * success)
        }
    };
    format!("{hash}  {round}.{index:<3} {origin:<10}  {outcome}")
}
