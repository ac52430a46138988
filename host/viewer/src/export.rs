//! Exporting a run's episodes as JSON lines, one trace at a time.
//!
//! Examples and preferences have the columns of TRL's standard formats, `prompt` and `completion`, or `prompt`,
//! `chosen` and `rejected`. Prompts are texts as the model was given them, with the markers of its chat template.

use std::io::Write;
use std::path::Path;

use pl_record::Traces;
use serde_json::{Value, json};

use crate::episode::{Branch, EpisodeDetails, NodeVisit, Prompt, ReadTrace, arrange};
use crate::error::Error;
use crate::event::Full;
use crate::runs::find;
use crate::trace_file::{IndexedFile, READ_LIMITS, read_all};
use crate::viewer::weights;
use crate::workflow::Workflows;

/// Form of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// An episode per line, with all that is recorded.
    Episodes,
    /// A completion per line, of solved episodes: `prompt`, `completion`, `episode`, `agent`, `reward`. In a tree,
    /// of the path that the episode took.
    Examples,
    /// A pair of siblings per line, of trees: `prompt`, `chosen` and `rejected` with the highest and the lowest
    /// reward of the node, `episode`, `agent`, `chosen_reward`, `rejected_reward`. Nodes with equal rewards have none.
    Preferences,
}

/// Result of an export.
#[derive(Debug, PartialEq, Eq)]
pub struct Exported {
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
    out: &mut impl Write,
) -> Result<Exported, Error> {
    let run = find(&[folder.to_path_buf()]).into_iter().find(|run| run.root == folder);
    let run = run.ok_or_else(|| Error::NoRuns { path: folder.to_path_buf() })?;
    let weights = weights(&run);
    let mut exported = Exported { lines: 0, problems: Vec::new() };
    for file in Traces::for_run(&run.root).files()? {
        let indexed = IndexedFile { run: run.root.clone(), file };
        let mut failure = None;
        let result = read_all::<Full>(&indexed, READ_LIMITS, |_, trace| {
            if failure.is_some() {
                return;
            }
            let trace = ReadTrace { trace, file: indexed.file.clone(), neighbours: [None, None] };
            let episode = arrange(&run, trace, weights, workflows, usize::MAX);
            match write(&episode, format, folder, out) {
                Ok(lines) => exported.lines += lines,
                Err(error) => failure = Some(error),
            }
        });
        if let Some(error) = failure {
            return Err(error);
        }
        match result {
            Ok(problems) => exported.problems.extend(problems),
            Err(error) => exported.problems.push(error.to_string()),
        }
    }
    out.flush().map_err(Error::Output)?;
    Ok(exported)
}

/// Writes the lines of an episode and returns their number.
fn write(
    episode: &EpisodeDetails,
    format: ExportFormat,
    folder: &Path,
    out: &mut impl Write,
) -> Result<u64, Error> {
    let lines = match format {
        ExportFormat::Episodes => vec![json!(episode)],
        _ if episode.failure.is_some() => Vec::new(),
        ExportFormat::Examples if !episode.success => Vec::new(),
        ExportFormat::Examples => examples(episode),
        ExportFormat::Preferences => preferences(episode),
    };
    if let (false, ExportFormat::Examples | ExportFormat::Preferences, Some(note)) =
        (lines.is_empty(), format, episode.notes.first())
    {
        return Err(Error::NoPrompts { path: folder.to_path_buf(), reason: note.clone() });
    }
    for line in &lines {
        writeln!(out, "{line}").map_err(Error::Output)?;
    }
    Ok(lines.len() as u64)
}

fn examples(episode: &EpisodeDetails) -> Vec<Value> {
    let mut lines = Vec::new();
    for visit in &episode.visits {
        let taken = |branch: &&Branch| {
            branch.fault.is_none() && visit.chosen.is_none_or(|chosen| branch.branch == chosen)
        };
        let Some(branch) = visit.branches.iter().find(taken) else { continue };
        for prompt in &visit.prompts {
            if let Some((text, reward)) = scored(branch, &prompt.agent) {
                lines.push(json!({
                    "prompt": prompt.text, "completion": text,
                    "episode": episode.episode, "agent": prompt.agent, "reward": reward,
                }));
            }
        }
    }
    lines
}

fn preferences(episode: &EpisodeDetails) -> Vec<Value> {
    let pair = |visit: &NodeVisit, prompt: &Prompt| {
        let siblings = || visit.branches.iter().filter_map(|branch| scored(branch, &prompt.agent));
        let (chosen, best) = siblings().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let (rejected, worst) = siblings().min_by(|a, b| a.1.total_cmp(&b.1))?;
        (best > worst).then(|| {
            json!({
                "prompt": prompt.text, "chosen": chosen, "rejected": rejected,
                "episode": episode.episode, "agent": prompt.agent, "chosen_reward": best, "rejected_reward": worst,
            })
        })
    };
    let visits = episode.visits.iter().filter(|_| episode.tree);
    visits.flat_map(|visit| visit.prompts.iter().filter_map(move |prompt| pair(visit, prompt))).collect()
}

/// Returns the completion of an agent in a branch, with its reward. Returns `None` if it was not scored.
fn scored<'b>(branch: &'b Branch, agent: &str) -> Option<(&'b str, f64)> {
    let turn = branch.turns.iter().find(|turn| turn.agent == agent)?;
    let reward = branch.rewards.iter().find(|reward| reward.agent == agent)?;
    Some((&turn.text, reward.reward))
}
