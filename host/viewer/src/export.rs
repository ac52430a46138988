//! Exporting a run's episodes, numbers or times for other programs, one trace at a time.
//!
//! Examples and preferences have the columns of TRL's standard formats, `prompt` and `completion`, or `prompt`,
//! `chosen` and `rejected`. Prompts are texts as the model was given them, with the markers of its chat template.

mod atif;
mod drawing;
mod scalars;
mod table;
mod timeline;

use std::io::Write;
use std::path::Path;

use parquet::errors::ParquetError;
use pl_record::{RunFolder, TraceFile, Traces, missing_traces};
use serde_json::{Value, json};

use crate::episode::{AgentTurn, Branch, EpisodeDetails, ModelCall, NodeVisit, Prompt, ReadTrace, arrange};
use crate::error::Error;
use crate::event::{Full, TraceRecord};
use crate::runs::{FoundRun, find, read_workflow};
use crate::trace_file::{IndexedFile, READ_LIMITS, read_all};
use crate::trained::PenalisedRewards;
use crate::viewer::weights;
use crate::workflow::Workflows;

use self::atif::{Producer, trajectory};
use self::scalars::write_scalars;
use self::table::TableWriter;
use self::timeline::Timeline;

/// Form of an export. All but a table, a Chrome trace and a timeline are lines of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// An episode per line, with all that is recorded.
    Episodes,
    /// A completion per line, of solved training episodes: `prompt`, `completion`, `episode`, `agent`, `reward`. In a tree, of
    /// the path that the episode took. Those of evaluations are left out: a model that is trained on their tasks can't be
    /// evaluated by them.
    Examples,
    /// A pair of siblings per line, of trees: `prompt`, `chosen` and `rejected` with the highest and the lowest
    /// reward of the node, `episode`, `agent`, `chosen_reward`, `rejected_reward`. Of turns with several model calls,
    /// the first calls whose completions differ. Siblings with equal completions are no pair, and neither are those
    /// whose prompts differ before their completions do: of several siblings with these rewards, the first pair that
    /// is one. Nodes with equal rewards have none.
    Preferences,
    /// A trajectory of ATIF per line: an attempt at an episode. In a tree, the path that it took.
    Trajectories,
    /// A Parquet file with a row per completion, candidates that the episode did not go on from included.
    Table,
    /// A line per step with the numbers of the logs, by the names that they have in TensorBoard, without episodes.
    Scalars,
    /// The times of rollouts and training as one Chrome trace, without episodes.
    ChromeTrace,
    /// The times of rollouts and training drawn as text, without episodes.
    Timeline,
}

/// Result of an export.
#[derive(Debug, PartialEq, Eq)]
pub struct Exported {
    /// Lines, rows of a table, or events of a Chrome trace.
    pub lines: u64,
    /// Files and lines that can't be read.
    pub problems: Vec<String>,
}

/// Writes the episodes of a run folder, in the order of its files. Attempts that failed are left out of examples
/// and preferences.
///
/// # Errors
/// [`Error::NoRuns`] if it is not a run folder; [`Error::NoPrompts`] if prompts are needed and a tokenizer is not
/// available; [`Error::Output`].
pub fn export(
    folder: &Path,
    format: ExportFormat,
    workflows: &dyn Workflows,
    out: &mut (impl Write + Send),
) -> Result<Exported, Error> {
    let run = find(&[folder.to_path_buf()]).into_iter().find(|run| run.root == folder);
    let run = run.ok_or_else(|| Error::NoRuns { path: folder.to_path_buf() })?;
    if format == ExportFormat::ChromeTrace {
        let Timeline { events, problems } = Timeline::read(&run.root)?;
        let lines = events.len() as u64;
        writeln!(out, "{}", json!({ "displayTimeUnit": "ms", "traceEvents": events }))
            .map_err(Error::Output)?;
        out.flush().map_err(Error::Output)?;
        return Ok(Exported { lines, problems });
    }
    if format == ExportFormat::Timeline {
        let Timeline { events, problems } = Timeline::read(&run.root)?;
        let text = drawing::draw(&events);
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::Output)?;
        return Ok(Exported { lines: text.lines().count() as u64, problems });
    }
    if format == ExportFormat::Scalars {
        return write_scalars(&run.root, out);
    }
    let weights = weights(&run);
    let mut exported = Exported { lines: 0, problems: Vec::new() };
    let (mut writer, unknown_version) = Writer::new(format, &run, out)?;
    let traces = Traces::for_run(&run.root);
    let mut penalties = PenalisedRewards::new(&run);
    for file in traces.files()?.into_iter().filter(|file| is_wanted(format, file)) {
        let indexed = IndexedFile { run: run.root.clone(), file };
        let (mut failure, mut unread) = (None, Vec::new());
        let result = read_all(&indexed, READ_LIMITS, |_, line| {
            if failure.is_some() {
                return Ok(());
            }
            let trace = serde_json::from_slice::<TraceRecord<Full>>(line)?;
            let trace = ReadTrace { trace, file: indexed.file.clone(), neighbours: [None, None] };
            let mut episode = arrange(&run, trace, &weights, workflows, usize::MAX);
            // Elsewhere, completions without scores are no examples.
            if matches!(format, ExportFormat::Episodes | ExportFormat::Trajectories | ExportFormat::Table)
                && let Err(error) = penalties.add(&mut episode)
            {
                let problem = error.to_string();
                if !unread.contains(&problem) {
                    unread.push(problem);
                }
            }
            match writer.add(&episode) {
                Ok(lines) => exported.lines += lines,
                Err(error) => failure = Some(error),
            }
            Ok(())
        });
        if let Some(error) = failure {
            return Err(error);
        }
        exported.problems.append(&mut unread);
        match result {
            Ok(problems) => exported.problems.extend(problems),
            Err(error) => exported.problems.push(error.to_string()),
        }
    }
    writer.finish()?;
    match missing_traces(&run.root) {
        Ok(missing) => {
            let missing = missing.into_iter().filter(|file| is_wanted(format, file));
            let problem = |file| format!("{} is missing, with its episodes", traces.path(&file).display());
            exported.problems.extend(missing.map(problem));
        }
        Err(error) => exported.problems.push(error.to_string()),
    }
    // Nothing is lost by it where no line names the version.
    if exported.lines > 0 {
        exported.problems.extend(unknown_version);
    }
    Ok(exported)
}

/// Returns true if an export has the episodes of a file.
fn is_wanted(format: ExportFormat, file: &TraceFile) -> bool {
    format != ExportFormat::Examples || file.evaluation.is_none()
}

/// Writer of one form.
enum Writer<'w, W: Write + Send> {
    Lines { format: ExportFormat, run: &'w FoundRun, producer: Producer, out: &'w mut W },
    Table(Box<TableWriter<&'w mut W>>),
}

impl<'w, W: Write + Send> Writer<'w, W> {
    /// Returns the writer, and the reason for which the version of the run is unknown, if it is.
    fn new(format: ExportFormat, run: &'w FoundRun, out: &'w mut W) -> Result<(Self, Option<String>), Error> {
        if format == ExportFormat::Table {
            return Ok((Writer::Table(Box::new(TableWriter::new(out).map_err(table_error)?)), None));
        }
        let workflow = read_workflow(&run.root)?;
        let team = workflow.get("name").and_then(Value::as_str).unwrap_or(&run.name).to_owned();
        let (version, problem) = match RunFolder::read_lock(&run.root) {
            Ok(lock) => (lock.version, None),
            Err(error) => ("unknown".to_owned(), Some(error.to_string())),
        };
        Ok((Writer::Lines { format, run, producer: Producer { team, version }, out }, problem))
    }

    /// Writes an episode. Returns the number of its lines or rows.
    fn add(&mut self, episode: &EpisodeDetails) -> Result<u64, Error> {
        match self {
            Writer::Table(table) => table.add(episode).map_err(table_error),
            Writer::Lines { format, run, producer, out } => write(episode, *format, run, producer, *out),
        }
    }

    fn finish(self) -> Result<(), Error> {
        match self {
            Writer::Table(table) => table.finish().map_err(table_error),
            Writer::Lines { out, .. } => out.flush().map_err(Error::Output),
        }
    }
}

fn table_error(error: ParquetError) -> Error {
    Error::Output(std::io::Error::other(error))
}

/// Writes the lines of an episode and returns their number.
fn write(
    episode: &EpisodeDetails,
    format: ExportFormat,
    run: &FoundRun,
    producer: &Producer,
    out: &mut impl Write,
) -> Result<u64, Error> {
    let lines = match format {
        ExportFormat::Episodes => {
            let mut line = json!(episode);
            line["failure"] = json!(episode.cause());
            vec![line]
        }
        ExportFormat::Trajectories => return write_trajectory(episode, run, producer, out),
        _ if episode.failure.is_some() => Vec::new(),
        ExportFormat::Examples if !episode.success => Vec::new(),
        ExportFormat::Examples => examples(episode),
        ExportFormat::Preferences => preferences(episode),
        // Written elsewhere.
        ExportFormat::Table | ExportFormat::Scalars | ExportFormat::ChromeTrace | ExportFormat::Timeline => {
            Vec::new()
        }
    };
    if let (false, ExportFormat::Examples | ExportFormat::Preferences, Some(note)) =
        (lines.is_empty(), format, episode.notes.first())
    {
        return Err(no_prompts(run, note));
    }
    for line in &lines {
        writeln!(out, "{line}").map_err(Error::Output)?;
    }
    Ok(lines.len() as u64)
}

fn no_prompts(run: &FoundRun, note: &str) -> Error {
    Error::NoPrompts { path: run.root.clone(), reason: note.to_owned() }
}

fn write_trajectory(
    episode: &EpisodeDetails,
    run: &FoundRun,
    producer: &Producer,
    out: &mut impl Write,
) -> Result<u64, Error> {
    match trajectory(episode, producer) {
        Some(line) => writeln!(out, "{line}").map(|()| 1).map_err(Error::Output),
        // An episode that failed before its first prompt has none.
        None => episode.notes.first().map_or(Ok(0), |note| Err(no_prompts(run, note))),
    }
}

fn examples(episode: &EpisodeDetails) -> Vec<Value> {
    let mut lines = Vec::new();
    for visit in &episode.visits {
        let Some(branch) = visit.taken() else { continue };
        for prompt in &visit.prompts {
            let Some((turn, reward)) = scored(branch, &prompt.agent) else { continue };
            lines.extend(turn.calls(Some(prompt)).iter().map(|call| {
                json!({
                    "prompt": call.prompt, "completion": call.text,
                    "episode": episode.episode, "agent": prompt.agent, "reward": reward,
                })
            }));
        }
    }
    lines
}

fn preferences(episode: &EpisodeDetails) -> Vec<Value> {
    let pair = |visit: &NodeVisit, prompt: &Prompt| {
        let siblings = || visit.branches.iter().filter_map(|branch| scored(branch, &prompt.agent));
        let best = siblings().map(|(_, reward)| reward).max_by(f64::total_cmp)?;
        let worst = siblings().map(|(_, reward)| reward).min_by(f64::total_cmp)?;
        if best <= worst {
            return None;
        }
        let turns =
            |wanted: f64| siblings().filter(move |(_, reward)| *reward == wanted).map(|(turn, _)| turn);
        // Rewards are often equal: another sibling may make a pair if the first one makes none.
        let mut pairs = turns(best).flat_map(|chosen| turns(worst).map(move |rejected| (chosen, rejected)));
        let (chosen, rejected) =
            pairs.find_map(|(chosen, rejected)| first_difference(prompt, chosen, rejected))?;
        Some(json!({
            "prompt": chosen.prompt, "chosen": chosen.text, "rejected": rejected.text,
            "episode": episode.episode, "agent": prompt.agent, "chosen_reward": best, "rejected_reward": worst,
        }))
    };
    let visits = episode.visits.iter().filter(|_| episode.tree);
    visits.flat_map(|visit| visit.prompts.iter().filter_map(move |prompt| pair(visit, prompt))).collect()
}

/// Returns the first model calls of two turns whose completions differ. Returns `None` if all completions are equal, or
/// if the prompts of these calls differ: a preference compares completions of one prompt.
fn first_difference<'t>(
    prompt: &'t Prompt,
    one: &'t AgentTurn,
    other: &'t AgentTurn,
) -> Option<(ModelCall<'t>, ModelCall<'t>)> {
    // Not whole turns: prompts are recorded as texts, not as messages, and TRL would train on the tools' results as if
    // the model had written them.
    let mut calls = one.calls(Some(prompt)).into_iter().zip(other.calls(Some(prompt)));
    calls.find(|(one, other)| one.text != other.text).filter(|(one, other)| one.prompt == other.prompt)
}

/// Returns the turn of an agent in a branch, with its reward. Returns `None` if it was not scored.
fn scored<'b>(branch: &'b Branch, agent: &str) -> Option<(&'b AgentTurn, f64)> {
    let turn = branch.turns.iter().find(|turn| turn.agent == agent)?;
    let reward = branch.rewards.iter().find(|reward| reward.agent == agent)?;
    Some((turn, reward.reward))
}
