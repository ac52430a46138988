//! Pages of a run's episodes: filtered, sorted, and read no further than needed.

use std::cmp::Ordering;

use pl_record::{TraceFile, Traces};
use pl_types::EpisodeId;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::event::RewardWeights;
use crate::index::IndexCache;
use crate::rows::EpisodeRow;
use crate::runs::FoundRun;
use crate::trace_file::IndexedFile;

/// Number of trace files that one request reads from start to end. The page asks again for the rest.
pub(crate) const READS_PER_REQUEST: u64 = 8;

/// Largest number of rows of a page.
const LARGEST_PAGE: usize = 1000;

/// Number of rows that are collected before those that can't be on the page are dropped.
const SORTED_ROWS: usize = 10_000;

/// Rows of a page if a request does not say.
const DEFAULT_PAGE: usize = 100;

/// Request for a page of episodes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct EpisodeQuery {
    /// First step.
    pub from: Option<u64>,
    /// Last step.
    pub to: Option<u64>,
    /// `train`, or the name of an evaluation. `None` for all.
    pub set: Option<String>,
    /// Part of the task's id.
    pub task: Option<String>,
    /// Agent that takes part. Rewards and tokens are then those of the agent.
    pub agent: Option<String>,
    /// `solved`, `unsolved`, `truncated` or `failed`.
    pub outcome: Option<String>,
    /// Text in the task, a completion, an action or a failure, in any case.
    pub text: Option<String>,
    pub sort: SortKey,
    /// True for the largest first.
    pub descending: bool,
    /// Number of rows before the page.
    pub offset: usize,
    /// Number of rows of the page.
    pub limit: Option<usize>,
}

/// Column that episodes are sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SortKey {
    /// Step, task and sample: the order of the files.
    #[default]
    Step,
    Task,
    Reward,
    Turns,
    Tokens,
}

/// Page of episodes.
#[derive(Debug, Serialize)]
pub struct EpisodePage {
    pub rows: Vec<PageRow>,
    /// True if further rows follow.
    pub more: bool,
    /// Number of all rows. `None` until every file was read.
    pub total: Option<usize>,
    /// Number of files that were not read yet and may have rows of the page: the request must be repeated.
    pub unread: usize,
    /// Files and lines that can't be read.
    pub problems: Vec<String>,
}

/// Row of a page.
#[derive(Debug, Clone, Serialize)]
pub struct PageRow {
    /// Name of the episode, as `pl-host replay` takes it.
    pub episode: String,
    pub step: u64,
    pub set: String,
    #[serde(flatten)]
    row: EpisodeRow,
}

/// Returns the name of an episode, as `pl-host replay` takes it.
pub(crate) fn episode_name(file: &TraceFile, task: u32, sample: u32, attempt: u32) -> String {
    let TraceFile { step, evaluation } = file.clone();
    EpisodeId { evaluation, step, task, sample, attempt: Some(attempt) }.to_string()
}

/// Name of the set of training episodes.
const TRAIN: &str = "train";

fn set_of(file: &TraceFile) -> &str {
    file.evaluation.as_deref().unwrap_or(TRAIN)
}

/// Returns a page.
pub(crate) fn page(
    run: &FoundRun,
    query: &EpisodeQuery,
    weights: RewardWeights,
    cache: &IndexCache,
) -> Result<EpisodePage, Error> {
    let limit = query.limit.unwrap_or(DEFAULT_PAGE).clamp(1, LARGEST_PAGE);
    let end = query.offset.saturating_add(limit);
    let outcome = outcome_filter(query)?;
    let mut files = Traces::for_run(&run.root).files()?;
    files.retain(|file| is_wanted(file, query));
    if query.descending && query.sort == SortKey::Step {
        files.reverse();
    }
    let text = query.text.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let sorted_by_file = query.sort == SortKey::Step;
    let (mut found, mut problems, mut unread) = (Vec::<PageRow>::new(), Vec::new(), 0);
    let (mut counted, mut complete, mut held) = (0, true, 0);
    let before = cache.reads();
    for file in files {
        if sorted_by_file && counted > end {
            complete = false;
            break;
        }
        let indexed = IndexedFile { run: run.root.clone(), file };
        let spent = cache.reads() - before >= READS_PER_REQUEST;
        let is_kept = cache.kept_index(&indexed)?.is_some()
            && (text.is_none() || cache.kept_search(&indexed, text.unwrap_or_default())?.is_some());
        if unread > 0 && sorted_by_file || spent && !is_kept {
            unread += 1;
            continue;
        }
        let index = cache.index(&indexed, weights)?;
        held += index.bytes();
        if !sorted_by_file && held > cache.limit() {
            return Err(Error::TooMany);
        }
        problems.extend(index.problems.iter().take(20).cloned());
        let with_text = text.map(|text| cache.search(&indexed, text)).transpose()?;
        let mut rows: Vec<&EpisodeRow> = index
            .rows
            .iter()
            .filter(|row| outcome(row) && has_task(row, query) && has_agent(row, query))
            .filter(|row| with_text.as_ref().is_none_or(|with| with.binary_search(&row.position).is_ok()))
            .collect();
        if sorted_by_file && query.descending {
            rows.reverse();
        }
        // In the order of the files, rows before and after the page are only counted.
        let (skipped, taken) = match sorted_by_file {
            true => (query.offset.saturating_sub(counted), limit.saturating_sub(found.len())),
            false => (0, usize::MAX),
        };
        counted += rows.len();
        found.extend(rows.into_iter().skip(skipped).take(taken).map(|row| page_row(&indexed.file, row)));
        if !sorted_by_file && found.len() > end.saturating_mul(2).max(SORTED_ROWS) {
            sort(&mut found, query);
            found.truncate(end);
        }
    }
    if !sorted_by_file {
        sort(&mut found, query);
    }
    let first = if sorted_by_file { 0 } else { query.offset };
    let rows: Vec<PageRow> = found.into_iter().skip(first).take(limit).collect();
    let total = (complete && unread == 0).then_some(counted);
    Ok(EpisodePage { rows, more: counted > end || !complete, total, unread, problems })
}

/// Sorts the rows.
fn sort(rows: &mut [PageRow], query: &EpisodeQuery) {
    let agent = query.agent.as_deref();
    let reward = |row: &PageRow| match agent {
        Some(agent) => row.row.agents.iter().find(|part| *part.name == *agent).and_then(|part| part.reward),
        None => row.row.reward,
    };
    let tokens = |row: &PageRow| match agent {
        Some(agent) => row.row.agents.iter().find(|part| *part.name == *agent).map_or(0, |part| part.tokens),
        None => row.row.tokens,
    };
    rows.sort_by(|a, b| {
        let order = match query.sort {
            SortKey::Step => Ordering::Equal,
            SortKey::Task => a.row.task_id.cmp(&b.row.task_id),
            SortKey::Reward => {
                let value = |row| reward(row).unwrap_or(f32::NEG_INFINITY);
                value(a).total_cmp(&value(b))
            }
            SortKey::Turns => a.row.turns.cmp(&b.row.turns),
            SortKey::Tokens => tokens(a).cmp(&tokens(b)),
        };
        if query.descending { order.reverse() } else { order }
    });
}

fn page_row(file: &TraceFile, row: &EpisodeRow) -> PageRow {
    PageRow {
        episode: episode_name(file, row.task, row.sample, row.attempt),
        step: file.step,
        set: set_of(file).to_owned(),
        row: row.clone(),
    }
}

fn is_wanted(file: &TraceFile, query: &EpisodeQuery) -> bool {
    query.from.is_none_or(|from| file.step >= from)
        && query.to.is_none_or(|to| file.step <= to)
        && query.set.as_ref().is_none_or(|set| set.is_empty() || set == set_of(file))
}

fn outcome_filter(query: &EpisodeQuery) -> Result<fn(&EpisodeRow) -> bool, Error> {
    Ok(match query.outcome.as_deref() {
        None | Some("") => |_| true,
        Some("solved") => |row| row.success && row.failure.is_none(),
        Some("unsolved") => |row| !row.success && row.failure.is_none(),
        Some("truncated") => |row| row.truncated,
        Some("failed") => |row| row.failure.is_some() || row.failed_candidates > 0,
        Some(other) => {
            return Err(Error::Parameter {
                name: "outcome",
                value: other.to_owned(),
                expected: "it is solved, unsolved, truncated or failed",
            });
        }
    })
}

fn has_task(row: &EpisodeRow, query: &EpisodeQuery) -> bool {
    query.task.as_ref().is_none_or(|task| row.task_id.contains(task.trim()))
}

fn has_agent(row: &EpisodeRow, query: &EpisodeQuery) -> bool {
    query
        .agent
        .as_ref()
        .is_none_or(|agent| agent.is_empty() || row.agents.iter().any(|part| *part.name == **agent))
}
