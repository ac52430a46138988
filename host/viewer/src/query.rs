//! Pages of a run's episodes: filtered, sorted, and read no further than needed.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pl_record::{AttemptKey, EpisodeSummary, TraceFile, Traces};
use pl_types::EpisodeId;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::index::{FileIndex, IndexCache};
use crate::reward_weights::{RewardWeights, ScenarioWeights};
use crate::rows::{EpisodeRow, reward, weights_of};
use crate::runs::FoundRun;
use crate::trace_file::IndexedFile;

/// Number of trace files that one request reads from start to end. The page asks again for the rest.
pub(crate) const READS_PER_REQUEST: u64 = 8;

/// Time after which a request reads no further rows. The page shows how many files are left, and asks again.
const READING: Duration = Duration::from_secs(2);

/// Largest number of rows of a page.
const LARGEST_PAGE: usize = 1000;

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
    /// Failed, not solved, solved.
    End,
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
pub(crate) fn episode_name(file: &TraceFile, key: AttemptKey) -> String {
    let TraceFile { step, evaluation } = file.clone();
    let AttemptKey { task, sample, attempt } = key;
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
    weights: &ScenarioWeights,
    cache: &IndexCache,
) -> Result<EpisodePage, Error> {
    let limit = query.limit.unwrap_or(DEFAULT_PAGE).clamp(1, LARGEST_PAGE);
    let wanted = query.offset..query.offset.saturating_add(limit);
    let filter = Filter::new(query)?;
    let mut files = Traces::for_run(&run.root).files()?;
    files.retain(|file| is_wanted(file, query));
    let by_file = query.sort == SortKey::Step;
    if query.descending && by_file {
        files.reverse();
    }
    let mut reader =
        Reader { cache, text: filter.text, started: Instant::now(), reads: cache.reads(), held: 0 };
    let (mut read, mut problems, mut unread) = (Vec::new(), Vec::new(), 0);
    let (mut counted, mut complete) = (0, true);
    for file in files {
        // In the order of the files, a page needs no file after it.
        if by_file && counted > wanted.end {
            complete = false;
            break;
        }
        if unread > 0 && by_file {
            unread += 1;
            continue;
        }
        let file = IndexedFile { run: run.root.clone(), file };
        let Some((index, with_text)) = reader.read(&file, !by_file)? else {
            unread += 1;
            continue;
        };
        problems.extend(index.problems.iter().take(20).cloned());
        let rows = filter.rows(&index, with_text.as_ref().map(|with| with.as_slice()));
        if by_file {
            counted += rows.len();
        }
        read.push((file.file, index, rows));
    }
    let row_of = |file: &TraceFile, index: &FileIndex, row: &EpisodeSummary| PageRow {
        episode: episode_name(file, row.key),
        step: file.step,
        set: set_of(file).to_owned(),
        row: EpisodeRow::new(&index.summaries, row, weights),
    };
    let mut found: Vec<Found<'_>> = Vec::new();
    for (file, (_, index, rows)) in read.iter().enumerate() {
        let agent =
            filter.agent.and_then(|agent| index.summaries.names.iter().position(|name| **name == *agent));
        let agent = agent.map(|agent| agent as u32);
        let rows = rows.iter().filter_map(|row| index.summaries.rows.get(*row as usize));
        let mut rows: Vec<Found<'_>> = rows
            .map(|row| {
                let weights = weights_of(&index.summaries, row, weights);
                Found { value: value(row, query.sort, agent, weights), file, row }
            })
            .collect();
        if by_file && query.descending {
            rows.reverse();
        }
        found.append(&mut rows);
    }
    let total = found.len();
    if !by_file {
        sort(&mut found, wanted.end, query.descending);
    }
    let rows = found.iter().skip(wanted.start).take(limit).filter_map(|found| {
        let (file, index, _) = read.get(found.file)?;
        Some(row_of(file, index, found.row))
    });
    Ok(EpisodePage {
        rows: rows.collect(),
        more: total > wanted.end || !complete,
        total: (complete && unread == 0).then_some(total),
        unread,
        problems,
    })
}

/// Index of a file, and the lines that have the text that is searched for.
type Read = (Arc<FileIndex>, Option<Arc<Vec<u32>>>);

/// Reads the indexes of files for one request, within its bounds.
struct Reader<'a> {
    cache: &'a IndexCache,
    text: Option<&'a str>,
    started: Instant,
    /// Number of files that were read before the request.
    reads: u64,
    /// Bytes of the indexes.
    held: usize,
}

impl Reader<'_> {
    /// Returns `None` if the request has read enough.
    fn read(&mut self, file: &IndexedFile, all: bool) -> Result<Option<Read>, Error> {
        let index = match self.started.elapsed() > READING {
            true => self.cache.kept_index(file)?,
            false => self.cache.recorded_index(file)?,
        };
        let is_spent = self.cache.reads() - self.reads >= READS_PER_REQUEST;
        let index = match index {
            Some(index) => index,
            None if is_spent || self.started.elapsed() > READING => return Ok(None),
            None => self.cache.index(file)?,
        };
        self.held += index.bytes();
        if all && self.held > self.cache.limit() {
            return Err(Error::TooMany);
        }
        let Some(text) = self.text else { return Ok(Some((index, None))) };
        let with_text = match self.cache.kept_search(file, text)? {
            Some(kept) => kept,
            None if self.cache.reads() - self.reads >= READS_PER_REQUEST => return Ok(None),
            None => self.cache.search(file, text)?,
        };
        Ok(Some((index, Some(with_text))))
    }
}

/// Row that may be on the page.
struct Found<'a> {
    value: Value<'a>,
    /// Position of its file among those that were read.
    file: usize,
    row: &'a EpisodeSummary,
}

/// Value that rows are sorted by.
#[derive(Clone, Copy)]
enum Value<'a> {
    None,
    Number(f64),
    Text(&'a str),
}

impl Value<'_> {
    fn order(&self, other: &Value<'_>) -> Ordering {
        match (self, other) {
            (Value::Number(a), Value::Number(b)) => a.total_cmp(b),
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }
}

fn value(row: &EpisodeSummary, sort: SortKey, agent: Option<u32>, weights: RewardWeights) -> Value<'_> {
    Value::Number(match sort {
        SortKey::Step => return Value::None,
        SortKey::Task => return Value::Text(&row.task_id),
        SortKey::End => match (&row.failure, row.success) {
            (Some(_), _) => 0.0,
            (None, solved) => 1.0 + f64::from(u8::from(solved)),
        },
        SortKey::Reward => reward(row, agent, weights).map_or(f64::NEG_INFINITY, f64::from),
        SortKey::Turns => f64::from(row.turns),
        SortKey::Tokens => match agent {
            Some(agent) => {
                let part = row.agents.iter().find(|part| part.name == agent);
                part.map_or(0.0, |part| f64::from(part.tokens))
            }
            None => row.tokens as f64,
        },
    })
}

/// Sorts the first `end` rows to the front. Equal ones stay in the order of the files.
fn sort(rows: &mut Vec<Found<'_>>, end: usize, descending: bool) {
    let order = |a: &Found<'_>, b: &Found<'_>| {
        let order = a.value.order(&b.value);
        let order = if descending { order.reverse() } else { order };
        order.then(a.file.cmp(&b.file)).then(a.row.key.cmp(&b.row.key))
    };
    if end < rows.len() {
        rows.select_nth_unstable_by(end, order);
        let (first, _) = rows.split_at_mut(end);
        first.sort_unstable_by(order);
    } else {
        rows.sort_unstable_by(order);
    }
}

/// Conditions that rows of a page meet.
struct Filter<'a> {
    outcome: fn(&EpisodeSummary) -> bool,
    task: Option<&'a str>,
    agent: Option<&'a str>,
    text: Option<&'a str>,
}

impl<'a> Filter<'a> {
    fn new(query: &'a EpisodeQuery) -> Result<Filter<'a>, Error> {
        let given = |text: &'a Option<String>| text.as_deref().map(str::trim).filter(|text| !text.is_empty());
        Ok(Filter {
            outcome: outcome_filter(query)?,
            task: given(&query.task),
            agent: given(&query.agent),
            text: given(&query.text),
        })
    }

    /// Returns the positions of the rows of a file that meet all conditions. `with_text` has the lines with the text.
    fn rows(&self, index: &FileIndex, with_text: Option<&[u32]>) -> Vec<u32> {
        let names = &index.summaries.names;
        let agent = self.agent.map(|agent| names.iter().position(|name| **name == *agent));
        let meets = |position: usize, row: &EpisodeSummary| {
            (self.outcome)(row)
                && self.task.is_none_or(|task| row.task_id.contains(task))
                && agent.is_none_or(|agent| row.agents.iter().any(|part| Some(part.name as usize) == agent))
                && with_text.is_none_or(|with| with.binary_search(&index.line(position)).is_ok())
        };
        let rows = index.summaries.rows.iter().enumerate();
        rows.filter(|(position, row)| meets(*position, row)).map(|(position, _)| position as u32).collect()
    }
}

fn is_wanted(file: &TraceFile, query: &EpisodeQuery) -> bool {
    query.from.is_none_or(|from| file.step >= from)
        && query.to.is_none_or(|to| file.step <= to)
        && query.set.as_ref().is_none_or(|set| set.is_empty() || set == set_of(file))
}

fn outcome_filter(query: &EpisodeQuery) -> Result<fn(&EpisodeSummary) -> bool, Error> {
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
