//! Progress of long operations, reported to the application that embeds this crate.
//!
//! Nothing in this crate prints. A program implements [`Progress`] to draw bars and to show notices, or
//! passes [`NoProgress`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_cluster::MissingProcess;
use pl_rollout::{LongPrompts, RolloutBatch};
use pl_servers::FleetEvent;
use pl_types::EpisodeId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::diagnostics::Diagnostics;
use crate::error::cuda::CudaUnavailable;

/// Receiver of progress reports. Methods are called from any thread of the operation.
pub trait Progress: Send + Sync {
    /// Starts a report on `activity`. The returned tracker is updated while the activity runs and dropped
    /// when it ends.
    fn start(&self, activity: Activity<'_>) -> Box<dyn Tracker>;

    /// Reports something that a person should know and that stops nothing.
    fn notice(&self, notice: &Notice);

    /// Reports a line that was appended to `metrics.jsonl`.
    fn metrics(&self, line: &MetricsLine<'_>);
}

/// Progress of one activity.
pub trait Tracker: Send {
    /// Sets the number of units that are done, of `total`.
    fn update(&mut self, done: u64, total: u64);
}

/// Activity that takes noticeable time.
#[derive(Clone)]
pub enum Activity<'a> {
    /// Download of one file of a model. Units: bytes.
    Download {
        /// Name of the file in its repository.
        file: &'a str,
    },
    /// Loading of models onto their device. Not counted.
    LoadingModels,
    /// Compilation of the embedded Python worker, or its load from the compile cache. Not counted.
    LoadingPythonWorker,
    /// Building of a corpus's index. Units: bytes.
    IndexingCorpus {
        /// Name in the workflow.
        corpus: &'a str,
    },
    /// Start of sandbox containers. Units: containers.
    StartingContainers,
    /// Rollouts of a training step or of an evaluation. Units: episodes.
    Episodes {
        /// Name of the step or of the evaluation.
        title: &'a str,
        /// Number of tokens that the engine has generated since it started.
        generated_tokens: Arc<dyn Fn() -> u64 + Send + Sync>,
    },
    /// Update of the policies of one learner. Units: packed batches.
    Update,
    /// Replay of recorded episodes. Units: episodes.
    Replay,
}

/// Line of `metrics.jsonl` with its context.
#[derive(Debug, Clone, Copy)]
pub struct MetricsLine<'a> {
    /// Training step; 0 before the first.
    pub step: u64,
    /// Number of steps of the run.
    pub steps: u64,
    /// Name of the evaluation. `None` for the line of a training step.
    pub evaluation: Option<&'a str>,
    /// The line itself.
    pub line: &'a Value,
    /// Wall-clock time of the step so far.
    pub seconds: StepSeconds,
}

/// Wall-clock seconds that the parts of a training step took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StepSeconds {
    /// Rollouts. With a schedule other than `sync`, they run while earlier steps are trained on.
    pub play: f64,
    /// Time that the trainer waited for the rollouts.
    #[serde(default)]
    pub wait: f64,
    /// Updates of the policies.
    pub train: f64,
    /// Evaluations.
    pub evaluate: f64,
    /// Evaluations of the untrained team, which come before the first step and are counted in it.
    #[serde(default)]
    pub baseline: f64,
    /// Time in which new weights were handed to the engine, the servers or the workers, and no episode started.
    #[serde(default)]
    pub publish: f64,
}

/// Message for a person about something that does not stop the operation.
#[derive(Debug)]
pub enum Notice {
    /// Warnings about the workflow.
    Diagnostics(Diagnostics),
    /// The machine has an NVIDIA driver, but CUDA is not usable.
    RunningOnCpu(CudaUnavailable),
    /// The CUDA kernels of this project can't be loaded. libtorch's own are used.
    KernelsUnavailable(pl_kernels::cuda::Error),
    /// The file of the best design was changed since a search wrote it, and stays as it is.
    BestDesignChanged {
        /// The file.
        path: PathBuf,
        /// File of the design that is the best now.
        best: PathBuf,
    },
    /// The hub can't be reached. The cached copy of a data set is used.
    DataFromCache {
        /// Name of the data set.
        data: String,
        /// Reason.
        reason: String,
    },
    /// The hub can't be reached. The cached copy of the model is used.
    HubUnreachable {
        /// Model as the workflow names it.
        model: String,
        /// Reason.
        reason: String,
        /// Commit of the cached copy.
        commit: String,
    },
    /// The Docker backend is not available and the workflow allows the WebAssembly backend instead.
    SandboxFallback {
        /// Reason.
        reason: String,
    },
    /// A run folder can't be marked as the user's own.
    NotMarked {
        /// Run folder.
        run: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The curves of a run can't be drawn. The run continues.
    NotDrawn {
        /// Reason, with the file.
        reason: String,
    },
    /// The workflow's environment and reward were never audited on this machine.
    NeverAudited,
    /// The last audit of the workflow's environment and reward on this machine has found defects.
    AuditFoundDefects {
        /// Number of defects.
        defects: usize,
    },
    /// A run has trained the adapters of its checkpoint on other models than the workflow's.
    OtherModel {
        /// Name of a model in the workflow.
        model: String,
        /// Folder of the run.
        run: PathBuf,
    },
    /// A run of a sweep begins or continues.
    SweepRun {
        /// Number of the run, from 1 on.
        number: usize,
        /// Number of runs of the sweep.
        total: usize,
        /// Name of its folder.
        name: String,
    },
    /// A run of a sweep failed, and the sweep goes on with the next one.
    SweepRunFailed {
        /// Name of its folder.
        name: String,
        /// Message of its error.
        error: String,
    },
    /// The run continues after this step.
    Resumed {
        /// Number of finished steps.
        step: u64,
    },
    /// The number of steps of a run with a cosine schedule was changed.
    ScheduleStretched {
        /// Steps when the run was started.
        before: u32,
        /// Steps now.
        now: u32,
    },
    /// Episodes of a step or of an evaluation failed. Those of a run are in `failures.jsonl`.
    Faults {
        /// Number of failures.
        count: usize,
        /// Number of episodes that had one.
        episodes: usize,
        /// Number of all episodes.
        total: usize,
        /// First line of the first failure.
        first: String,
        /// Run folder and episode of the first failure. `None` if nothing is recorded.
        replay: Option<(PathBuf, EpisodeId)>,
    },
    /// Half of the episodes of a step or of an evaluation, or more, ended because a prompt left no room for a completion.
    LongPrompts {
        /// These episodes.
        ended: LongPrompts,
        /// Number of all episodes.
        total: usize,
    },
    /// The samples of most groups had the same return for several steps, no completion had an advantage, or a correction
    /// dropped all that had one, so that the policies learn next to nothing.
    FlatSteps {
        /// Number of these steps.
        steps: u32,
        /// Number of completions in their updates.
        completions: u64,
        /// Number of the steps in which a correction dropped all completions of a policy.
        dropped: u32,
        /// Share of their groups that had samples of equal return. `None` if these are not the reason.
        share: Option<f64>,
        /// Share of the last step's episodes that succeeded.
        success: f64,
        /// Largest entropy of a policy in the last step, in nats per token.
        entropy: Option<f64>,
    },
    /// The number of tasks of evaluations was changed.
    LimitChanged {
        /// Names of the evaluations.
        evaluations: Vec<String>,
    },
    /// The untrained team has a higher score than the best checkpoint.
    UntrainedIsBetter {
        /// Score of the untrained team.
        untrained: f64,
        /// Score of the best checkpoint.
        best: f64,
        /// Step of the best checkpoint.
        step: u64,
    },
    /// Servers that generate for policies have failed or work again.
    Fleet(FleetEvent),
    /// A worker, a learner or a sandbox machine has joined a run.
    JoinedRun {
        /// Name of the run's streams.
        run: String,
    },
    /// The run that a process is to take part in is not there yet.
    WaitingForRun {
        /// Name of the run's streams.
        run: String,
    },
    /// A learner can't go on before other ranks are there.
    WaitingForRanks {
        /// Ranks that are not there.
        missing: Vec<usize>,
    },
    /// The ranks of a learner are all there.
    RanksConnected {
        /// Number of ranks.
        ranks: usize,
        /// True if GPUs sum gradients by NCCL.
        nccl: bool,
    },
    /// A worker, a learner or a sandbox machine has left a run.
    LeftRun {
        /// Name of the run's streams.
        run: String,
        /// Tasks, updates or jobs whose results it has stored.
        done: u64,
    },
    /// Work of a run waits, because no process for it takes part.
    NoProcess {
        /// Name of the run's streams.
        run: String,
        /// Kind of the process.
        process: MissingProcess,
        /// Number of tasks, updates or jobs that wait.
        waiting: u64,
    },
}

impl Notice {
    /// Returns the notices about the episodes of a step or an evaluation that failed or could not be played to their end. Failures
    /// are in the traces of `run` if there is one.
    pub(crate) fn of_episodes(batch: &RolloutBatch, run: Option<&Path>) -> Vec<Notice> {
        let total = batch.episodes.len() + batch.lost;
        let faults = batch.failures.first().map(|first| Notice::Faults {
            count: batch.failures.len(),
            episodes: batch.faulty_episodes(),
            total,
            first: first.describe().lines().next().unwrap_or_default().to_owned(),
            replay: run.map(|run| (run.to_path_buf(), first.episode.clone())),
        });
        let long = batch.long_prompts().filter(|ended| 2 * ended.episodes >= total);
        let long = long.map(|ended| Notice::LongPrompts { ended, total });
        faults.into_iter().chain(long).collect()
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Diagnostics(diagnostics) => write!(f, "{diagnostics}"),
            Notice::RunningOnCpu(refusal) => write!(f, "running on the CPU: {refusal}"),
            Notice::KernelsUnavailable(error) => {
                write!(f, "warning: continuing with libtorch's kernels instead of our own: {error}")
            }
            Notice::HubUnreachable { model, reason, commit } => {
                write!(f, "warning: {model}: {reason}; using the cached copy (commit {commit})")
            }
            Notice::BestDesignChanged { path, best } => write!(
                f,
                "{} was changed and stays as it is; the best design is {}",
                path.display(),
                best.display()
            ),
            Notice::DataFromCache { data, reason } => {
                write!(f, "warning: data set {data}: {reason}; using the cached copy")
            }
            Notice::SandboxFallback { reason } => {
                write!(f, "warning: programs run in the wasm backend: {reason}")
            }
            Notice::NotMarked { run, reason } => {
                let run = run.display();
                write!(f, "warning: {run} can't be marked as yours ({reason}); resuming it will need --trust")
            }
            Notice::JoinedRun { run } => write!(f, "joined run {run}"),
            Notice::WaitingForRun { run } => {
                write!(f, "waiting for run {run}; `pl-host cluster status` lists the runs of the server")
            }
            Notice::WaitingForRanks { missing } => {
                let ranks = missing.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
                write!(f, "waiting for rank {ranks} (pl-host learner --rank N --leader HOST:PORT)")
            }
            Notice::RanksConnected { ranks, nccl } => {
                write!(f, "{ranks} ranks are connected{}", if *nccl { ", by NCCL" } else { "" })
            }
            Notice::LeftRun { run, done } => write!(f, "left run {run}; tasks done: {done}"),
            Notice::NoProcess { run, process, waiting } => {
                let command = process.command("URL");
                match process {
                    MissingProcess::SandboxMachine => write!(
                        f,
                        "no sandbox machine takes the jobs of run {run}, and {waiting} wait; start one: {command}"
                    ),
                    MissingProcess::Worker => write!(
                        f,
                        "no worker plays the tasks of run {run}, and {waiting} wait; start one: {command} (one that loads its \
                         models joins after that; one that refuses the run prints why and ends)"
                    ),
                    MissingProcess::Learner { policies } => write!(
                        f,
                        "no learner trains {} of run {run}, whose update waits; start one: {command}",
                        policies.join(", ")
                    ),
                }
            }
            Notice::NotDrawn { reason } => write!(f, "warning: {reason}"),
            Notice::NeverAudited => {
                write!(
                    f,
                    "never audited: `pl-host audit` finds rewards that can be had without solving a task"
                )
            }
            Notice::AuditFoundDefects { defects } => {
                let defects =
                    if *defects == 1 { "a defect".to_owned() } else { format!("{defects} defects") };
                write!(
                    f,
                    "warning: the audit found {defects}, which training will learn from; `pl-host audit` shows them again"
                )
            }
            Notice::OtherModel { model, run } => write!(
                f,
                "warning: the adapters of {} were trained on other weights than those of model `{model}`\n  hint: name the model \
                 of the run, or expect other results",
                run.display()
            ),
            Notice::SweepRun { number, total, name } => write!(f, "run {number} of {total}: {name}"),
            Notice::SweepRunFailed { name, error } => write!(f, "warning: {name} failed: {error}"),
            Notice::Resumed { step } => write!(f, "continuing after step {step}"),
            Notice::ScheduleStretched { before, now } => write!(
                f,
                "warning: train.lr_schedule = cosine now spans {now} steps; the finished steps followed a cosine over \
                 {before}"
            ),
            Notice::Faults { count, episodes, total, first, replay } => {
                let faults = if *count == 1 { "1 fault".to_owned() } else { format!("{count} faults") };
                let first_of = if *count == 1 { "" } else { ", first" };
                write!(f, "{faults} in {episodes} of {total} episodes{first_of}: {first}")?;
                match replay {
                    Some((run, episode)) => write!(f, "\n  see: pl-host replay {} {episode}", run.display()),
                    None => Ok(()),
                }
            }
            Notice::LongPrompts { ended: LongPrompts { episodes, agent, tokens, context }, total } => write!(
                f,
                "warning: {episodes} of {total} episodes ended because a prompt left no room for a completion; the first was for \
                 agent {agent}: {tokens} tokens, but the context is {context}\n  hint: shorter prompts, a model with a longer context, or \
                 `long_prompt` of the agent"
            ),
            Notice::FlatSteps { steps, completions: 0, .. } => write!(
                f,
                "warning: in the last {steps} steps, there was no completion to train on\n  hint: prompts that leave room for \
                 an answer: shorter ones, or a model with a longer context"
            ),
            Notice::FlatSteps { steps, dropped, share, .. }
                if *dropped > 0 && (share.is_none() || 2 * dropped > *steps) =>
            {
                write!(
                    f,
                    "warning: `correction` dropped all completions of a policy in {dropped} of the last {steps} steps, which taught \
                 next to nothing\n  hint: a smaller `staleness`, a lower `learning_rate`, or wider bounds (`correction_low`, \
                 `correction_high`)"
                )
            }
            Notice::FlatSteps { steps, share, success, entropy, .. } => {
                let problem = match share {
                    Some(share) => {
                        let percent = 100.0 * share;
                        format!(
                            "{percent:.0} % of the groups had samples of equal reward, which teach nothing"
                        )
                    }
                    None => "no completion had an advantage, which teaches nothing".to_owned(),
                };
                let nats = entropy.map_or(String::new(), |nats| format!(", entropy {nats:.2}"));
                let advice = advice(*success, *entropy);
                write!(f, "warning: in the last {steps} steps, {problem}{nats}\n  hint: {advice}")
            }
            Notice::LimitChanged { evaluations } => write!(
                f,
                "warning: `limit` of {} was changed: scores before and after it aren't compared, and the best checkpoint so \
                 far stays",
                evaluations.join(", ")
            ),
            Notice::UntrainedIsBetter { untrained, best, step } => write!(
                f,
                "warning: the untrained team was better: success {untrained:.3} > {best:.3} of the best checkpoint (step \
                 {step})\n  hint: a lower `train.learning_rate`, or more tasks in the evaluation (`limit`), which tell chance \
                 from loss"
            ),
            Notice::Fleet(FleetEvent::ServerDown { server, reason }) => {
                write!(
                    f,
                    "warning: {server} has failed several times in a row: {reason}; it gets single requests until one succeeds"
                )
            }
            Notice::Fleet(FleetEvent::ServerBack { server }) => write!(f, "{server} works again"),
            Notice::Fleet(FleetEvent::Paused { fleet, reason }) => write!(
                f,
                "no server of `{fleet}` works, so its policies wait until one does (Ctrl-C twice ends the program): \
                 {reason}"
            ),
            Notice::Fleet(FleetEvent::Resumed { fleet }) => {
                write!(f, "a server of `{fleet}` works again, and its policies go on")
            }
        }
    }
}

/// Success from which on tasks count as solved.
const SOLVED: f64 = 0.9;

/// Entropy in nats per token below which all samples are nearly the same text.
const EXPLORES: f64 = 0.1;

/// Returns what helps when samples have equal rewards.
fn advice(success: f64, entropy: Option<f64>) -> &'static str {
    if success >= SOLVED {
        "the tasks are nearly solved: a higher `level`, other tasks, or the end of the run"
    } else if entropy.is_some_and(|nats| nats < EXPLORES) {
        "the policies explore no more: start again with `train.entropy`, `train.kl`, a lower `train.learning_rate` or a higher \
         temperature"
    } else {
        "more `samples`, a lower `level`, or a reward that also pays a part of the way"
    }
}

/// Progress that is not shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn start(&self, _: Activity<'_>) -> Box<dyn Tracker> {
        Box::new(NoProgress)
    }

    fn notice(&self, _: &Notice) {}

    fn metrics(&self, _: &MetricsLine<'_>) {}
}

impl Tracker for NoProgress {
    fn update(&mut self, _: u64, _: u64) {}
}
