//! One episode: its node visits, and at each of them what the agents saw, wrote, did and earned.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use pl_record::{AttemptKey, TraceFile, TraceIndex, TraceLine, Traces};
use pl_types::EpisodeId;
use serde::Serialize;
use serde_json::Value;

use crate::error::Error;
use crate::event::{EventRecord, Full, Kind, Mode, ScoresRecord, TraceRecord};
use crate::index::IndexCache;
use crate::query::episode_name;
use crate::reward_weights::{RewardWeights, ScenarioWeights};
use crate::runs::FoundRun;
use crate::trace_file::{IndexedFile, path};
use crate::workflow::{TokenTexts, Workflows};

/// Longest text that is sent to a page, in bytes. A model's context is far shorter.
pub(crate) const LONGEST_TEXT: usize = 256 << 10;

/// Largest drawing that is shown, in bytes. Plugins may return no larger ones.
const LARGEST_DRAWING: usize = 256 << 10;

/// Largest numbers of node visits and of candidates that are shown. A file from elsewhere may have millions.
const MOST_VISITS: usize = 4096;
const MOST_BRANCHES: usize = 1024;

/// An attempt at an episode with all that is recorded.
#[derive(Debug, Serialize)]
pub struct EpisodeDetails {
    /// Name, as `pl-host replay` takes it.
    pub episode: String,
    /// Run folder.
    pub folder: String,
    pub step: u64,
    /// `train`, or the name of the evaluation.
    pub set: String,
    pub task_id: String,
    /// `None` in workflows without scenarios.
    pub scenario: Option<String>,
    /// Text of the design that wrote the team, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub design: Option<String>,
    /// Graph of the design in the JSON format of `pl-host graph`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub design_graph: Option<Value>,
    /// The task, JSON.
    pub task: String,
    pub tree: bool,
    pub success: bool,
    pub truncated: bool,
    pub tokens: u64,
    pub failure: Option<String>,
    pub visits: Vec<NodeVisit>,
    /// Reasons for which parts are not shown.
    pub notes: Vec<String>,
    /// Episode before and after it in the file.
    pub previous: Option<String>,
    pub next: Option<String>,
}

impl EpisodeDetails {
    /// Returns the failure, or the cause of the fault that ended the episode.
    pub(crate) fn cause(&self) -> Option<&str> {
        let fault = || self.visits.iter().rev().find_map(|visit| visit.fault.as_ref());
        self.failure.as_deref().or_else(|| fault().map(|fault| fault.cause.as_str()))
    }
}

/// Visit of a node of the turn graph.
#[derive(Debug, Default, Serialize)]
pub struct NodeVisit {
    /// Number of node visits before this one.
    pub node_visit: u32,
    pub prompts: Vec<Prompt>,
    /// Agents that skipped the turn.
    pub skipped: Vec<String>,
    /// Candidates of a tree. One in flat sampling.
    pub branches: Vec<Branch>,
    /// Drawing of the state before the first visit, an SVG document. Untrusted: only for the source of an image.
    pub drawing: Option<String>,
    /// Tree: the branch that the episode continued from.
    pub chosen: Option<u32>,
    /// Activity of plugins that all branches share.
    pub logs: Vec<PluginLog>,
    /// Failure that all branches share.
    pub fault: Option<Fault>,
}

impl NodeVisit {
    /// Returns true if the episode went on from a branch.
    pub(crate) fn is_taken(&self, branch: &Branch) -> bool {
        branch.fault.is_none() && self.chosen.is_none_or(|chosen| branch.branch == chosen)
    }

    /// Returns the branch that the episode went on from. Returns `None` if it ended with a fault in all of them.
    pub(crate) fn taken(&self) -> Option<&Branch> {
        self.branches.iter().find(|branch| self.is_taken(branch))
    }
}

/// Prompt of an agent.
#[derive(Debug, Serialize)]
pub struct Prompt {
    pub agent: String,
    /// Number of the agent's earlier visits.
    pub visit: u32,
    /// Number of tokens.
    pub tokens: usize,
    /// `None` if the model's tokenizer is not available.
    pub text: Option<String>,
}

/// A candidate of a node visit.
#[derive(Debug, Default, Serialize)]
pub struct Branch {
    pub branch: u32,
    /// Number of earlier attempts at the candidate that failed.
    pub retry: u32,
    pub turns: Vec<AgentTurn>,
    pub outcome: Option<Outcome>,
    /// Drawing of the state after the step, an SVG document. Untrusted: only for the source of an image.
    pub drawing: Option<String>,
    scores: Option<ScoresRecord>,
    pub rewards: Vec<Reward>,
    pub logs: Vec<PluginLog>,
    pub fault: Option<Fault>,
}

/// A later completion of a turn, after the results of tool calls.
#[derive(Debug, Default, Serialize)]
pub struct FollowUp {
    pub tool_results: Vec<String>,
    /// Text of the prompt with the results. `None` if the model's tokenizer is not available.
    pub prompt: Option<String>,
    /// Number of tokens of the prompt.
    pub prompt_tokens: usize,
    pub text: String,
    /// Reason for its end. Empty if the episode failed before.
    pub finish: String,
    /// Number of tokens.
    pub tokens: usize,
}

/// A model call of a turn.
pub(crate) struct ModelCall<'t> {
    /// Number of the turn's earlier calls.
    pub(crate) index: u32,
    /// Text of its prompt. `None` if the model's tokenizer is not available.
    pub(crate) prompt: Option<&'t str>,
    /// Number of tokens of the prompt.
    pub(crate) prompt_tokens: usize,
    /// Completion.
    pub(crate) text: &'t str,
    /// Reason for the completion's end.
    pub(crate) finish: &'t str,
    /// Number of tokens of the completion.
    pub(crate) tokens: usize,
    /// Results of the tool calls in the completion.
    pub(crate) tool_results: &'t [String],
    /// True for the turn's last call: the action was parsed from its completion.
    pub(crate) is_last: bool,
}

/// Turn of an agent, with its first completion.
#[derive(Debug, Serialize)]
pub struct AgentTurn {
    pub agent: String,
    pub text: String,
    /// Reason for its end.
    pub finish: String,
    /// Number of tokens.
    pub tokens: usize,
    /// Later completions, after the results of tool calls.
    pub follow_ups: Vec<FollowUp>,
    /// Action, JSON. `None` if the episode failed before.
    pub action: Option<String>,
}

impl AgentTurn {
    /// The turn's later completion that is not there yet.
    fn pending(&mut self) -> Option<&mut FollowUp> {
        self.follow_ups.last_mut().filter(|last| last.finish.is_empty())
    }

    /// Returns the model calls of the turn, the first of which has this prompt. Tool results have no call after them
    /// if the episode ended first, or if their prompt was too long.
    pub(crate) fn calls<'t>(&'t self, prompt: Option<&'t Prompt>) -> Vec<ModelCall<'t>> {
        let first = ModelCall {
            index: 0,
            prompt: prompt.and_then(|prompt| prompt.text.as_deref()),
            prompt_tokens: prompt.map_or(0, |prompt| prompt.tokens),
            text: &self.text,
            finish: &self.finish,
            tokens: self.tokens,
            tool_results: &[],
            is_last: false,
        };
        let later = self.follow_ups.iter().filter(|later| !later.finish.is_empty());
        let later = (1..).zip(later).map(|(index, later)| ModelCall {
            index,
            prompt: later.prompt.as_deref(),
            prompt_tokens: later.prompt_tokens,
            text: &later.text,
            finish: &later.finish,
            tokens: later.tokens,
            tool_results: &[],
            is_last: false,
        });
        let mut calls: Vec<ModelCall<'t>> = std::iter::once(first).chain(later).collect();
        for (call, follow_up) in calls.iter_mut().zip(&self.follow_ups) {
            call.tool_results = follow_up.tool_results.as_slice();
        }
        if let Some(last) = calls.last_mut() {
            last.is_last = true;
        }
        calls
    }
}

/// Outcome of a step.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub done: bool,
    pub truncated: bool,
    pub facts: Value,
    /// Evidence, JSON: only the reward sees it.
    pub evidence: String,
}

/// Reward of an agent for a step.
#[derive(Debug, Serialize)]
pub struct Reward {
    pub agent: String,
    pub reward: f64,
    /// Tree: difference from the mean over the siblings that were scored.
    pub relative: Option<f64>,
    /// Mean advantage of the tokens of the turn's last completion. `None` if the update has recorded none.
    pub advantage: Option<f64>,
}

/// Activity of a plugin in one call.
#[derive(Debug, Serialize)]
pub struct PluginLog {
    pub agent: Option<String>,
    pub function: String,
    pub events: Value,
}

/// Failure of an episode or a candidate.
#[derive(Debug, Serialize)]
pub struct Fault {
    pub agent: Option<String>,
    pub stage: String,
    pub cause: String,
}

/// A trace with its place in the run.
pub(crate) struct ReadTrace {
    pub(crate) trace: TraceRecord<Full>,
    pub(crate) file: TraceFile,
    /// Episode before and after it in the file.
    pub(crate) neighbours: [Option<String>; 2],
}

/// Reads an episode. Its file is one that the run has: the name can't lead to another place.
pub(crate) fn read_trace(run: &FoundRun, name: &str, cache: &IndexCache) -> Result<ReadTrace, Error> {
    let unknown = || Error::UnknownEpisode { run: run.name.clone(), episode: name.to_owned() };
    let id: EpisodeId = name.parse().map_err(|_| unknown())?;
    let file = TraceFile { step: id.step, evaluation: id.evaluation.clone() };
    let traces = Traces::for_run(&run.root);
    if !traces.files()?.contains(&file) {
        return Err(unknown());
    }
    let file = IndexedFile { run: run.root.clone(), file };
    // Refuses links.
    let path = path(&file)?;
    if let Some(index) = traces.index(&file.file)? {
        return read_indexed(&traces, file.file, &index, &id, unknown);
    }
    let index = cache.index(&file)?;
    let rows = &index.summaries.rows;
    let row = rows.iter().rposition(|row| is_wanted(&id, row.key)).ok_or_else(unknown)?;
    let name_of = |row: usize| rows.get(row).map(|row| episode_name(&file.file, row.key));
    let neighbours = [row.checked_sub(1).and_then(name_of), name_of(row + 1)];
    let position = index.line(row) as usize;
    let mut lines = traces.lines(&file.file)?.skip(position);
    let line = lines.next().ok_or_else(unknown)??;
    Ok(ReadTrace { trace: parse(&path, &line)?, file: file.file, neighbours })
}

/// Reads an episode by the index of its file. No other episode is read.
fn read_indexed(
    traces: &Traces,
    file: TraceFile,
    index: &TraceIndex,
    id: &EpisodeId,
    unknown: impl Fn() -> Error,
) -> Result<ReadTrace, Error> {
    let row = index.attempts.iter().rposition(|key| is_wanted(id, *key)).ok_or_else(unknown)?;
    let name_of = |row: usize| index.attempts.get(row).map(|key| episode_name(&file, *key));
    let neighbours = [row.checked_sub(1).and_then(name_of), name_of(row + 1)];
    let line = traces.indexed_line(&file, index, row)?;
    Ok(ReadTrace { trace: parse(&traces.path(&file), &line)?, file, neighbours })
}

fn is_wanted(id: &EpisodeId, key: AttemptKey) -> bool {
    (key.task, key.sample) == (id.task, id.sample) && id.attempt.is_none_or(|attempt| attempt == key.attempt)
}

fn parse(path: &Path, line: &TraceLine) -> Result<TraceRecord<Full>, Error> {
    let trace = serde_json::from_slice(&line.text).map_err(|error| pl_record::Error::Line {
        path: path.to_path_buf(),
        line: line.number,
        message: error.to_string(),
    })?;
    Ok(trace)
}

/// Arranges a trace for reading. Texts of more than `longest` bytes are cut.
pub(crate) fn arrange(
    run: &FoundRun,
    ReadTrace { trace, file, neighbours: [previous, next] }: ReadTrace,
    weights: &ScenarioWeights,
    workflows: &dyn Workflows,
    longest: usize,
) -> EpisodeDetails {
    let mut prompts = PromptTexts {
        run,
        workflows,
        evaluation: EpisodeId::from_key(&trace.key).evaluation,
        tokenizers: HashMap::new(),
        notes: Vec::new(),
        longest,
    };
    let mut visits: Vec<NodeVisit> = Vec::new();
    let mut complete = true;
    for event in trace.events {
        complete &= add(&mut visits, event, &mut prompts).is_some();
    }
    if !complete {
        let note = format!(
            "Only {MOST_VISITS} turns and {MOST_BRANCHES} candidates of each are shown: this trace has more"
        );
        prompts.notes.push(note);
    }
    let weights = weights.for_scenario(trace.scenario.as_deref());
    for visit in &mut visits {
        add_rewards(visit, weights, trace.mode);
    }
    let graph = |design: &String| {
        let graph = workflows.design_graph(&run.root, trace.scenario.as_deref(), design);
        graph.map_err(|error| prompts.notes.push(error.to_string())).ok()
    };
    let design_graph = trace.design.as_ref().and_then(graph);
    let key = trace.key;
    EpisodeDetails {
        episode: episode_name(&file, AttemptKey { task: key.task, sample: key.sample, attempt: key.attempt }),
        folder: run.root.display().to_string(),
        step: file.step,
        set: file.evaluation.unwrap_or_else(|| "train".to_owned()),
        task_id: trace.task.id,
        scenario: trace.scenario,
        design: trace.design.map(|design| cut(design, longest)),
        design_graph,
        task: cut(trace.task.data, longest),
        tree: trace.mode == Mode::Tree,
        success: trace.end.success,
        truncated: trace.end.truncated,
        tokens: trace.end.tokens,
        failure: trace.end.failure,
        visits,
        notes: prompts.notes,
        previous,
        next,
    }
}

/// Texts of prompts, each through its agent's tokenizer.
struct PromptTexts<'a> {
    run: &'a FoundRun,
    workflows: &'a dyn Workflows,
    evaluation: Option<String>,
    tokenizers: HashMap<String, Option<Arc<dyn TokenTexts>>>,
    notes: Vec<String>,
    /// Longest text in bytes.
    longest: usize,
}

impl PromptTexts<'_> {
    fn text(&mut self, agent: &str, ids: &[u32]) -> Option<String> {
        if !self.tokenizers.contains_key(agent) {
            let tokenizer = self.workflows.tokenizer(&self.run.root, self.evaluation.as_deref(), agent);
            let tokenizer = tokenizer.map_err(|error| {
                let note = format!("Prompts are not shown: {error}");
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            });
            self.tokenizers.insert(agent.to_owned(), tokenizer.ok());
        }
        let tokenizer = self.tokenizers.get(agent)?.as_ref()?;
        Some(cut(tokenizer.text(ids), self.longest))
    }
}

/// Adds an event. Returns `None` if there are more visits or candidates than are shown.
fn add(visits: &mut Vec<NodeVisit>, event: EventRecord<Full>, prompts: &mut PromptTexts<'_>) -> Option<()> {
    let EventRecord { position, kind } = event;
    let visit = visit_of(visits, position.node_visit)?;
    let agent = position.agent;
    let named = || agent.clone().unwrap_or_default();
    let (branch, retry) = position.candidate.map_or((0, 0), |c| (c.branch, c.retry));
    let longest = prompts.longest;
    match kind {
        Kind::Prompted(prompt) => {
            let (agent, tokens) = (named(), prompt.prompt.len());
            let text = prompts.text(&agent, &prompt.prompt);
            let turns = visit.branches.iter_mut().filter(|own| (own.branch, own.retry) == (branch, retry));
            let mut turns = turns.flat_map(|own| own.turns.iter_mut()).filter(|turn| turn.agent == agent);
            if let Some(pending) = turns.find_map(AgentTurn::pending) {
                (pending.prompt, pending.prompt_tokens) = (text, tokens);
                return Some(());
            }
            visit.prompts.push(Prompt { agent, visit: prompt.visit, tokens, text });
        }
        Kind::Skipped => visit.skipped.push(named()),
        Kind::Completion(completion) => {
            let turns = &mut branch_of(visit, branch, retry)?.turns;
            let (text, tokens) = (cut(completion.text, longest), completion.tokens.len());
            let turn = turns.iter_mut().rfind(|turn| Some(&turn.agent) == agent.as_ref());
            match turn.and_then(AgentTurn::pending) {
                Some(pending) => {
                    (pending.text, pending.finish, pending.tokens) = (text, completion.finish, tokens);
                }
                None => turns.push(AgentTurn {
                    agent: named(),
                    text,
                    finish: completion.finish,
                    tokens,
                    follow_ups: Vec::new(),
                    action: None,
                }),
            }
        }
        Kind::ToolResults(results) => {
            let turns = &mut branch_of(visit, branch, retry)?.turns;
            if let Some(turn) = turns.iter_mut().rfind(|turn| Some(&turn.agent) == agent.as_ref()) {
                let tool_results = results.into_iter().map(|result| cut(result, longest)).collect();
                turn.follow_ups.push(FollowUp { tool_results, ..FollowUp::default() });
            }
        }
        Kind::Action(action) => {
            let turns = &mut branch_of(visit, branch, retry)?.turns;
            let turn = turns.iter_mut().rfind(|turn| Some(&turn.agent) == agent.as_ref());
            if let Some(turn) = turn {
                turn.action = Some(cut(action, longest));
            }
        }
        Kind::Outcome(outcome) => {
            let (done, truncated, facts) = (outcome.done, outcome.truncated, outcome.facts);
            let outcome = Outcome { done, truncated, facts, evidence: cut(outcome.evidence, longest) };
            branch_of(visit, branch, retry)?.outcome = Some(outcome);
        }
        Kind::Drawing(drawing) => {
            // Half of a document can't be shown.
            let drawing = Some(drawing).filter(|drawing| drawing.len() <= LARGEST_DRAWING);
            let is_start =
                position.candidate.is_none() && visit.branches.iter().all(|own| own.outcome.is_none());
            match is_start {
                true => visit.drawing = drawing,
                false => branch_of(visit, branch, retry)?.drawing = drawing,
            }
        }
        Kind::Scores(scores) => branch_of(visit, branch, retry)?.scores = Some(scores),
        Kind::Chosen(branch) => visit.chosen = Some(branch),
        Kind::CallLog(log) => {
            let log = PluginLog { agent, function: log.function, events: log.events };
            match position.candidate {
                Some(_) => branch_of(visit, branch, retry)?.logs.push(log),
                None => visit.logs.push(log),
            }
        }
        Kind::Fault(fault) => {
            let fault = Fault { agent, stage: fault.stage, cause: cut(fault.cause, longest) };
            match position.candidate {
                Some(_) => branch_of(visit, branch, retry)?.fault = Some(fault),
                None => visit.fault = Some(fault),
            }
        }
        Kind::Unknown => {}
    }
    Some(())
}

fn visit_of(visits: &mut Vec<NodeVisit>, node_visit: u32) -> Option<&mut NodeVisit> {
    let index = match visits.iter().rposition(|visit| visit.node_visit == node_visit) {
        Some(index) => index,
        None if visits.len() == MOST_VISITS => return None,
        None => {
            visits.push(NodeVisit { node_visit, ..NodeVisit::default() });
            visits.len() - 1
        }
    };
    visits.get_mut(index)
}

fn branch_of(visit: &mut NodeVisit, branch: u32, retry: u32) -> Option<&mut Branch> {
    let same = |known: &Branch| (known.branch, known.retry) == (branch, retry);
    let index = match visit.branches.iter().rposition(same) {
        Some(index) => index,
        None if visit.branches.len() == MOST_BRANCHES => return None,
        None => {
            visit.branches.push(Branch { branch, retry, ..Branch::default() });
            visit.branches.len() - 1
        }
    };
    visit.branches.get_mut(index)
}

/// Adds the rewards of the agents that acted, and in a tree their differences from the siblings' means.
fn add_rewards(visit: &mut NodeVisit, weights: RewardWeights, mode: Mode) {
    let mut sums: HashMap<String, (f64, u32)> = HashMap::new();
    for branch in &mut visit.branches {
        let Some(scores) = &branch.scores else { continue };
        for turn in &branch.turns {
            if branch.rewards.iter().any(|reward| reward.agent == turn.agent) {
                continue;
            }
            let reward = weights.reward(scores, &turn.agent);
            let (sum, count) = sums.entry(turn.agent.clone()).or_default();
            *sum += reward;
            *count += 1;
            branch.rewards.push(Reward {
                agent: turn.agent.clone(),
                reward,
                relative: None,
                advantage: None,
            });
        }
    }
    if mode == Mode::Flat {
        return;
    }
    for reward in visit.branches.iter_mut().flat_map(|branch| &mut branch.rewards) {
        if let Some((sum, count)) = sums.get(&reward.agent) {
            reward.relative = Some(reward.reward - sum / f64::from(*count));
        }
    }
}

/// Cuts a text that is longer than the page shows.
fn cut(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        let end = text.floor_char_boundary(longest);
        let rest = text.len() - end;
        text.truncate(end);
        text.push_str(&format!("\n… {rest} more bytes"));
    }
    text
}
