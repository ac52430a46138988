//! `pl-host play`: one episode, shown as a conversation while it is played.

use std::io::Write;

use pl_run::play::{first_task, play, task_from_text};

use crate::app::App;
use crate::arguments::training::PlayArgs;
use crate::conversation;
use crate::exit::{CommandError, CommandResult};
use crate::visible;

pub fn run(app: &App, options: &PlayArgs) -> CommandResult {
    let (checked, session) =
        app.open_session(&options.source, &options.machine, options.checkpoint.as_deref())?;
    let scenario = checked.scenario(options.scenario.as_deref())?;
    checked.require_team(scenario)?;
    let player = session.player(scenario).ok_or_else(|| CommandError::failed("the scenario is missing"))?;
    let task = match &options.task {
        Some(text) => task_from_text(text)?,
        None => first_task(&app.host, &checked, &session, scenario)?,
    };
    let mut out = visible::stdout();
    writeln!(out, "task {}: {}", task.id, task.data)?;
    let summary = play(&app.host, &player, session.seed(), task, async |events| {
        conversation::show(&mut out, events).await.map_err(CommandError::from)
    })?;
    if let Some(summary) = summary {
        conversation::show_ending(&mut out, &summary)?;
    }
    Ok(())
}
