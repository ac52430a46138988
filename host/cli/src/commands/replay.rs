//! `pl-host replay`: the components of a run's episodes run again, on the completions and verdicts that were recorded,
//! and whatever they do otherwise is shown.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use futures::{StreamExt, stream};
use pl_model::Model;
use pl_plugin::journal::{Channel, Event, Level};
use pl_record::{Lock, RunFolder, TraceFile, Traces};
use pl_rollout::{Agreement, Cast, EpisodeId, NoModel, Position, Replayed, Trace, What, replay};
use pl_sandbox::Refuse;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::unbounded_channel;

use crate::arguments::Replay;
use crate::conversation::{conclude, follow};
use crate::exit::{Outcome, Stop};
use crate::places;
use crate::progress;
use crate::session::{self, Loaded, Text};
use crate::stored::Stored;

/// Episodes that are played again at a time.
const IN_FLIGHT: usize = 32;

/// Differences that are shown of a whole run; the others are counted.
const SHOWN: usize = 10;

pub fn run(options: &Replay) -> Outcome {
    let traces = Traces::of(&options.run);
    let stored = Stored::read(&options.run)?;
    let files = traces.files()?;
    if files.is_empty() {
        return Err(none_yet(&options.run));
    }
    match &options.episode {
        Some(id) => one(options, stored, &find(&traces, &files, id)?),
        None if options.all => all(options, stored, &traces, &files),
        None => list(options, &traces, &files),
    }
}

/// The episode that a run recorded last.
pub fn last(run: &Path) -> Result<EpisodeId, Stop> {
    let traces = Traces::of(run);
    let newest = traces.files()?.pop();
    let newest = newest.map(|file| traces.read::<Trace>(&file)).transpose()?;
    let trace = newest.and_then(Iterator::last).transpose()?;
    trace.map(|trace| trace.place.id()).ok_or_else(|| none_yet(run))
}

fn none_yet(run: &Path) -> Stop {
    let run = run.display();
    Stop::input(format!("{run} has no traces yet: its first step or evaluation is not over"))
}

/// A line for each attempt.
fn list(options: &Replay, traces: &Traces, files: &[TraceFile]) -> Outcome {
    let mut out = std::io::stdout().lock();
    for file in files {
        for trace in traces.read::<Trace>(file)? {
            let trace = trace?;
            if !options.failed || failed(&trace) {
                let id = trace.place.id().to_string();
                writeln!(out, "{id:<16} {:<18} {}", trace.task.id, ending(&trace))?;
            }
        }
    }
    Ok(())
}

fn failed(trace: &Trace) -> bool {
    trace.end.failure.is_some() || trace.entries.iter().any(|entry| matches!(entry.what, What::Fault { .. }))
}

fn ending(trace: &Trace) -> String {
    let end = &trace.end;
    let candidates = trace
        .entries
        .iter()
        .filter(|entry| entry.at.candidate.is_some() && matches!(entry.what, What::Fault { .. }))
        .count();
    let mut words = match (&end.failure, end.success, end.truncated) {
        (Some(failure), ..) => format!("failed: {}", failure.lines().next().unwrap_or_default()),
        (None, true, _) => "solved".to_owned(),
        (None, false, true) => "not solved, cut short".to_owned(),
        (None, false, false) => "not solved".to_owned(),
    };
    if end.failure.is_none() {
        words.push_str(&format!(", {} turns, {} tokens", end.turns, end.tokens));
    }
    if candidates > 0 {
        words.push_str(&format!("; candidates that failed: {candidates}"));
    }
    words
}

/// The attempt that is meant: of several, the last.
fn find(traces: &Traces, files: &[TraceFile], id: &EpisodeId) -> Result<Trace, Stop> {
    let run = traces.run().display();
    let file = TraceFile { step: id.step, evaluation: id.evaluation.clone() };
    if !files.contains(&file) {
        let what = match &id.evaluation {
            Some(name) => format!("no evaluation {name} after step {}", id.step),
            None => format!("no step {}", id.step),
        };
        return Err(Stop::input(format!("{run} has {what}; `pl-host replay {run}` lists what there is")));
    }
    let mut found = None;
    for trace in traces.read::<Trace>(&file)? {
        let trace = trace?;
        if id.names(&trace.place) {
            found = Some(trace);
        }
    }
    found.ok_or_else(|| {
        Stop::input(format!("{run} has no episode {id}; `pl-host replay {run}` lists what there is"))
    })
}

fn one(options: &Replay, stored: Stored, trace: &Trace) -> Outcome {
    let runtime = Runtime::new().map_err(Stop::failed)?;
    let again = Again::set_up(&runtime, options, stored)?;
    let mut out = std::io::stdout().lock();
    let replayed = if options.show {
        writeln!(out, "task {}: {}", trace.task.id, trace.task.data)?;
        let replayed = runtime.block_on(shown(&again.cast, trace, &mut out))?;
        write_events(&replayed.now.trace, &mut out)?;
        if replayed.now.failure.is_none() {
            conclude(&mut out, &replayed.now.played.summary)?;
        }
        replayed
    } else {
        runtime.block_on(replay(&again.cast, trace))
    };
    if let Some(failure) = &replayed.now.failure {
        writeln!(out, "it fails: {}", failure.in_words())?;
    }
    match &replayed.agreement {
        Agreement::Whole => writeln!(out, "episode {}: as recorded", trace.place.id())?,
        Agreement::UpToClock => {
            writeln!(
                out,
                "episode {}: as recorded up to where a wall clock ended a call, which is not to be repeated",
                trace.place.id()
            )?;
        }
        Agreement::Differs(difference) => return Err(Stop::failed(again.show(difference))),
    }
    Ok(())
}

/// Plays a trace again as a conversation.
async fn shown(cast: &Cast, trace: &Trace, out: &mut impl Write) -> Result<Replayed, Stop> {
    let (sender, heard) = unbounded_channel();
    let cast = Cast { listener: Some(sender), ..cast.clone() };
    // The conversation ends when nobody is left who holds the sender.
    let playing = async move { Ok::<_, Stop>(replay(&cast, trace).await) };
    let (replayed, ()) = tokio::try_join!(playing, async { follow(out, heard).await.map_err(Stop::from) })?;
    Ok(replayed)
}

/// What plugins logged and printed, and what the sandbox said.
fn write_events(trace: &Trace, out: &mut impl Write) -> Outcome {
    for entry in &trace.entries {
        let What::Did { function, events } = &entry.what else { continue };
        let Position { stop, candidate, agent } = &entry.at;
        let candidate = candidate.map(|c| format!(", candidate {}", c.branch)).unwrap_or_default();
        let agent = agent.as_ref().map(|agent| format!(", {agent}")).unwrap_or_default();
        writeln!(out, "\n── stop {stop}{candidate}{agent}: {function} ──")?;
        for event in events {
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
                Event::Http { request, answer, .. } => {
                    let told = match answer {
                        Some(Ok(answer)) => format!("{}, {} bytes", answer.status, answer.body.len()),
                        Some(Err(failure)) => failure.to_string(),
                        None => "not waited for".to_owned(),
                    };
                    writeln!(out, "[http] {request}: {told}")?;
                }
                Event::Cut { events, bytes } => {
                    writeln!(out, "[cut] {events} more lines or pieces of output, {bytes} bytes")?;
                }
            }
        }
    }
    Ok(())
}

/// Every attempt of a run.
fn all(options: &Replay, stored: Stored, traces: &Traces, files: &[TraceFile]) -> Outcome {
    let runtime = Runtime::new().map_err(Stop::failed)?;
    let again = Again::set_up(&runtime, options, stored)?;
    let mut out = std::io::stdout().lock();
    let mut tally = Tally::default();
    for file in files {
        let wanted: Vec<Trace> = traces
            .read::<Trace>(file)?
            .filter(|trace| !options.failed || trace.as_ref().map_or(true, failed))
            .collect::<Result<_, _>>()?;
        let bar = progress::replays(wanted.len());
        runtime.block_on(async {
            let mut replays = stream::iter(wanted.into_iter().map(|trace| {
                let cast = Arc::clone(&again.cast);
                tokio::spawn(async move { replay(&cast, &trace).await.agreement })
            }))
            .buffered(IN_FLIGHT);
            while let Some(agreement) = replays.next().await {
                bar.inc(1);
                if let Agreement::Differs(difference) = tally.count(agreement.map_err(Stop::failed)?) {
                    bar.suspend(|| writeln!(out, "{}", again.show(&difference)))?;
                }
            }
            Ok::<_, Stop>(())
        })?;
        bar.finish_and_clear();
    }
    tally.conclude(&mut out)
}

/// How many attempts went which way.
#[derive(Default)]
struct Tally {
    whole: usize,
    up_to_clock: usize,
    differ: usize,
}

impl Tally {
    /// Counts, and hands back what is to be shown.
    fn count(&mut self, agreement: Agreement) -> Agreement {
        match agreement {
            Agreement::Whole => self.whole += 1,
            Agreement::UpToClock => self.up_to_clock += 1,
            Agreement::Differs(_) => {
                self.differ += 1;
                if self.differ > SHOWN {
                    return Agreement::Whole;
                }
            }
        }
        agreement
    }

    fn conclude(&self, out: &mut impl Write) -> Outcome {
        let Tally { whole, up_to_clock, differ } = self;
        writeln!(out, "{} episodes: {whole} as recorded", whole + up_to_clock + differ)?;
        if *up_to_clock > 0 {
            writeln!(out, "{up_to_clock} as recorded up to where a wall clock ended a call")?;
        }
        match differ {
            0 => Ok(()),
            differ => Err(Stop::failed(format!("{differ} of the episodes differ from what was recorded"))),
        }
    }
}

/// A run's components, ready to play again.
struct Again {
    cast: Arc<Cast>,
    /// By agent index.
    texts: Vec<Text>,
}

impl Again {
    /// Loads the plugins that the run was played with, or the builds that are to be tried, and the tokenizers and
    /// chat templates of its models; no weights.
    fn set_up(runtime: &Runtime, options: &Replay, mut stored: Stored) -> Result<Again, Stop> {
        let lock: Lock = RunFolder::read_json(&options.run, "lock.json").map_err(Stop::input)?;
        for (name, file) in &options.plugins {
            let known = stored.workflow.plugins.iter_mut().find(|plugin| plugin.name == *name);
            let Some(plugin) = known else {
                let names: Vec<&str> =
                    stored.workflow.plugins.iter().map(|plugin| plugin.name.as_str()).collect();
                let names = names.join(", ");
                return Err(Stop::input(format!(
                    "--plugin {name}: the run has no such plugin; it has {names}"
                )));
            };
            let file = std::path::absolute(file).map_err(Stop::input)?;
            plugin.path = Some(file.display().to_string());
        }
        let loaded = stored.load(runtime, &options.run)?;
        same_builds(&loaded, &lock, options)?;
        let texts = texts(&loaded)?;
        let refuse = Refuse("a replay runs no code".to_owned());
        let environment = Arc::new(loaded.environment_on(Arc::new(refuse))?);
        let cast = session::cast(&loaded, &texts, environment, Arc::new(NoModel))?;
        let texts = loaded.workflow.agents.iter().map(|agent| texts[agent.policy].clone()).collect();
        Ok(Again { cast: Arc::new(cast), texts })
    }

    fn show(&self, difference: &pl_rollout::Difference) -> String {
        difference.show(|agent, tokens| {
            let at = self.cast.players.iter().position(|player| player.name == agent);
            let text = at.and_then(|at| self.texts.get(at));
            text.map(|(tokenizer, _)| tokenizer.decode(tokens, false)).unwrap_or_default()
        })
    }
}

/// Refuses plugins, but for those that are to be tried, and folders granted to them that are not the run's.
fn same_builds(loaded: &Loaded, lock: &Lock, options: &Replay) -> Outcome {
    for wanted in &loaded.workflow.plugins {
        let plugin =
            loaded.plugins.get(wanted).map_err(|e| Stop::input(format!("plugin {}: {e}", wanted.name)))?;
        let tried = options.plugins.iter().any(|(name, _)| *name == wanted.name);
        let Some(hash) = lock.plugins.get(&wanted.name).filter(|hash| !tried && **hash != plugin.hash())
        else {
            continue;
        };
        let place = match loaded.plugins.place(wanted) {
            Some(place) => place.display().to_string(),
            None => "the one built into this pl-host".to_owned(),
        };
        let digits = |hash: &str| hash.chars().take(12).collect::<String>();
        return Err(Stop::input(format!(
            "plugin {name}: {place} is the build {}, the run was played with {}\nhint: put that build back, or try \
             another one with --plugin {name}=FILE",
            digits(&plugin.hash()),
            digits(hash),
            name = wanted.name
        )));
    }
    let open = loaded.plugins.grants(&loaded.workflow.plugins);
    match lock.grants.iter().find(|(door, content)| open.get(*door) != Some(content)) {
        Some((door, _)) => Err(Stop::input(format!(
            "{door}: the folder holds something else than when the run was played\nhint: put its files back"
        ))),
        None => Ok(()),
    }
}

/// Tokenizer and chat template of each policy's model.
fn texts(loaded: &Loaded) -> Result<Vec<Text>, Stop> {
    let text = |model: &pl_dsl::workflow::Model| -> Result<Text, Stop> {
        let named = |reason: String| Stop::input(format!("model {}: {reason}", model.name));
        let path = places::model_here(&loaded.folder, &model.source).map_err(named)?;
        let (tokenizer, template) = Model::text(&path).map_err(|e| named(e.to_string()))?;
        Ok((Arc::new(tokenizer), Arc::new(template)))
    };
    let texts = loaded.workflow.models.iter().map(text).collect::<Result<Vec<Text>, Stop>>()?;
    Ok(loaded.workflow.policies.iter().map(|policy| texts[policy.model].clone()).collect())
}
