//! `pl-host replay`: runs the plugins of recorded episodes again and shows every difference.

use std::collections::BTreeMap;
use std::io::Write;

use pl_plugin::call_log::{Channel, Event, Level};
use pl_rollout::{Agreement, EventKind, EventPosition, Trace};
use pl_run::replay::{Replayer, RunTraces, has_fault};
use pl_types::EpisodeId;

use crate::app::App;
use crate::arguments::runs::ReplayArgs;
use crate::conversation;
use crate::exit::{CommandError, CommandResult};
use crate::plan::Counted;
use crate::visible;

/// Number of differences that are shown of a whole run. The others are only counted.
const SHOWN: usize = 10;

pub fn run(app: &App, options: &ReplayArgs) -> CommandResult {
    let run = RunTraces::open(&options.run)?;
    match &options.episode {
        Some(id) => replay_one(app, options, &run.find(id)?),
        None if options.all => replay_all(app, options, &run),
        None => list(options, &run),
    }
}

/// Writes a line for each attempt.
fn list(options: &ReplayArgs, run: &RunTraces) -> CommandResult {
    let mut out = visible::stdout();
    for trace in run.traces() {
        let trace = trace?;
        if !options.failed || has_fault(&trace) {
            let id = EpisodeId::from_key(&trace.key).to_string();
            writeln!(out, "{id:<16} {:<18} {}", trace.task.id, describe_end(&trace))?;
        }
    }
    Ok(())
}

/// Describes the end of an attempt in a line.
fn describe_end(trace: &Trace) -> String {
    let end = &trace.end;
    let faults = || {
        trace.events.iter().filter_map(|event| match &event.kind {
            EventKind::Fault { stage, cause, .. } => Some((&event.position, stage, cause)),
            _ => None,
        })
    };
    let failed_candidates = faults().filter(|(position, ..)| position.candidate.is_some()).count();
    let mut line = match (&end.failure, end.success, end.truncated) {
        (Some(failure), ..) => format!("failed: {}", failure.lines().next().unwrap_or_default()),
        (None, true, _) => "solved".to_owned(),
        (None, false, true) => "not solved, truncated".to_owned(),
        (None, false, false) => "not solved".to_owned(),
    };
    if end.failure.is_none() {
        let (turns, tokens) = (Counted(end.turns.into(), "turn"), Counted(end.tokens, "token"));
        line.push_str(&format!(", {turns}, {tokens}"));
        // A penalised one, which has ended the episode.
        if let Some((_, stage, cause)) = faults().find(|(position, ..)| position.candidate.is_none()) {
            let cause = cause.lines().next().unwrap_or_default();
            line.push_str(&format!("; fault in {stage}: {cause}"));
        }
        if let Some((agent, tokens, context)) = trace.long_prompt() {
            line.push_str(&format!(
                "; the prompt of {agent} is too long: {tokens} tokens in a context of {context}"
            ));
        }
    }
    if failed_candidates > 0 {
        line.push_str(&format!("; failed candidates: {failed_candidates}"));
    }
    line
}

fn replayer(app: &App, options: &ReplayArgs) -> Result<Replayer, CommandError> {
    let plugins: BTreeMap<_, _> = options.plugins.iter().cloned().collect();
    app.with_consent(|| Replayer::new(&app.host, &options.run, &plugins, options.trust))
}

fn replay_one(app: &App, options: &ReplayArgs, trace: &Trace) -> CommandResult {
    let replayer = replayer(app, options)?;
    let mut out = visible::stdout();
    let replay = if options.show {
        writeln!(out, "task {}: {}", trace.task.id, trace.task.data)?;
        let replay = replayer.replay_watched(&app.host, trace, async |events| {
            conversation::show(&mut out, events).await.map_err(CommandError::from)
        })?;
        write_call_logs(&replay.attempt.trace, &mut out)?;
        if replay.attempt.failure.is_none() {
            conversation::show_ending(&mut out, &replay.attempt.result.summary)?;
        }
        replay
    } else {
        replayer.replay(&app.host, trace)
    };
    for fault in &replay.attempt.result.failures {
        let candidate = fault.branch.map(|branch| format!(" of candidate {branch}")).unwrap_or_default();
        writeln!(out, "a fault{candidate}, node visit {}: {}", fault.node_visit, fault.describe())?;
    }
    if let Some(failure) = &replay.attempt.failure {
        writeln!(out, "it fails: {}", failure.describe())?;
    }
    let id = EpisodeId::from_key(&trace.key);
    match &replay.agreement {
        Agreement::Full => writeln!(out, "episode {id}: as recorded")?,
        Agreement::UpToTimeout => writeln!(
            out,
            "episode {id}: as recorded up to a call that a wall clock ended, which can't be reproduced"
        )?,
        Agreement::Differs(difference) => return Err(CommandError::failed(replayer.describe(difference))),
    }
    Ok(())
}

/// Writes the log messages, the output and the requests of plugins.
fn write_call_logs(trace: &Trace, out: &mut impl Write) -> CommandResult {
    for event in &trace.events {
        let EventKind::CallLog { function, events } = &event.kind else { continue };
        let EventPosition { node_visit, candidate, agent } = &event.position;
        let candidate = candidate.map(|c| format!(", candidate {}", c.branch)).unwrap_or_default();
        let agent = agent.as_ref().map(|agent| format!(", {agent}")).unwrap_or_default();
        writeln!(out, "\n── node visit {node_visit}{candidate}{agent}: {function} ──")?;
        for event in events {
            write_event(event, out)?;
        }
    }
    Ok(())
}

fn write_event(event: &Event, out: &mut impl Write) -> CommandResult {
    match event {
        Event::Log { level, message } => {
            let level = match level {
                Level::Debug => "debug",
                Level::Info => "info",
                Level::Warn => "warn",
            };
            writeln!(out, "[{level}] {message}")?;
        }
        Event::Output { stream, text } => {
            let stream = if *stream == Channel::Stdout { "stdout" } else { "stderr" };
            writeln!(out, "[{stream}] {}", text.trim_end())?;
        }
        Event::Sandbox { verdicts, .. } => {
            for verdict in verdicts {
                writeln!(out, "[sandbox] {}", verdict.ending.as_str())?;
            }
        }
        Event::Retrieval { query, answer, .. } => match &answer.passages {
            Ok(passages) => {
                let ids: Vec<&str> = passages.iter().map(|passage| passage.id.as_str()).collect();
                writeln!(out, "[corpus] {query}: {}", ids.join(", "))?;
            }
            Err(reason) => writeln!(out, "[corpus] {query}: {reason}")?,
        },
        Event::Question { question, answer } => match &answer.text {
            Ok(text) => writeln!(out, "[policy {}] {text}", question.policy)?,
            Err(reason) => writeln!(out, "[policy {}] {reason}", question.policy)?,
        },
        Event::Http { request, answer, .. } => {
            let response = match answer {
                Some(Ok(response)) => format!("{}, {} bytes", response.status, response.body.len()),
                Some(Err(failure)) => failure.to_string(),
                None => "the response was not awaited".to_owned(),
            };
            writeln!(out, "[http] {request}: {response}")?;
        }
        Event::Truncated { events, bytes } => {
            writeln!(out, "[cut] {events} more lines or pieces of output, {bytes} bytes")?;
        }
    }
    Ok(())
}

/// Replays every attempt of a run.
fn replay_all(app: &App, options: &ReplayArgs, run: &RunTraces) -> CommandResult {
    let replayer = replayer(app, options)?;
    let mut out = visible::stdout();
    let (mut equal, mut up_to_timeout, mut different) = (0usize, 0usize, 0usize);
    replayer.replay_all(&app.host, run, options.failed, |agreement| {
        match agreement {
            Agreement::Full => equal += 1,
            Agreement::UpToTimeout => up_to_timeout += 1,
            Agreement::Differs(difference) => {
                different += 1;
                if different <= SHOWN {
                    app.terminal.suspend(|| writeln!(out, "{}", replayer.describe(&difference)))?;
                }
            }
        }
        Ok::<(), CommandError>(())
    })?;
    writeln!(out, "{} episodes: {equal} as recorded", equal + up_to_timeout + different)?;
    if up_to_timeout > 0 {
        writeln!(out, "{up_to_timeout} as recorded up to a call that a wall clock ended")?;
    }
    let missing = run.missing()?;
    for path in &missing {
        writeln!(out, "{} is missing, with its episodes", path.display())?;
    }
    match (different, missing.len() as u64) {
        (0, 0) => Ok(()),
        (0, missing) => Err(CommandError::failed(format!("{} missing", Counted(missing, "trace file")))),
        (different, _) => {
            Err(CommandError::failed(format!("{different} of the episodes differ from the recording")))
        }
    }
}
