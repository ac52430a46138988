//! Errors of the application: each names the file, model, plugin, agent or step, and says what to do.

pub mod cluster;
pub mod cuda;
pub mod devices;
pub mod locate;
pub mod plugin;
pub mod repeat;
pub mod repetition;
pub mod stored;

use std::path::PathBuf;

use pl_types::EpisodeId;
use pl_types::GenerateError;

use self::cluster::ClusterError;
use self::cuda::CudaUnavailable;
use self::devices::DevicesUnavailable;
use self::locate::LocateError;
use self::plugin::PluginError;
use self::repeat::RepeatError;
use self::repetition::Repetition;
use self::stored::InvalidWorkflow;
use crate::diagnostics::Diagnostics;
use crate::permissions::{PermissionRequest, flags};

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The async runtime can't be started.
    #[error("cannot start worker threads: {source}; the system may limit the threads of a process")]
    Runtime { source: std::io::Error },
    /// A file can't be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// There is no cache folder.
    #[error(transparent)]
    Cache(#[from] pl_toolchain::Error),
    /// WebAssembly can't be run on this machine.
    #[error(transparent)]
    WasmEngine(pl_wasm::Error),
    /// A file of a workflow can't be read without permission.
    #[error(transparent)]
    NotRead(LocateError),
    /// A file is too large to be read for a plan. A run reads it.
    #[error("{} is larger than {} GiB; a plan does not read it", path.display(), largest >> 30)]
    NotPlanned { path: PathBuf, largest: u64 },
    /// A workflow can't be read.
    #[error("cannot read {}: {source}{}", path.display(), advice_on_file(source))]
    ReadWorkflow { path: PathBuf, source: std::io::Error },
    /// The workflow has errors.
    #[error("the workflow has errors:\n{0}")]
    Workflow(Diagnostics),
    /// The workflow needs more of the machine than the user has allowed.
    #[error("{}", not_allowed(workflow, requests))]
    NotAllowed { workflow: String, requests: Vec<PermissionRequest> },
    /// The workflow is to be trained but has no `train` block.
    #[error("workflow {workflow} has no `train` block: add one, or use `play` or `evaluate`")]
    NoTrainBlock { workflow: String },
    /// A model can't be found.
    #[error("model {model}: {source}")]
    LocateModel { model: String, source: Box<LocateError> },
    /// A model can't be loaded.
    #[error("model {model}: {source}")]
    Model { model: String, source: Box<pl_model::Error> },
    /// A plugin can't be loaded.
    #[error("plugin {plugin}: {source}")]
    Plugin { plugin: String, source: Box<PluginError> },
    /// An environment, agent or reward can't be created.
    #[error("{kind} {name}: {source}")]
    Item { kind: &'static str, name: String, source: Box<pl_plugin::Error> },
    /// The note that a workflow was audited can't be written.
    #[error("cannot write {}: {source}", path.display())]
    AuditNote { path: PathBuf, source: std::io::Error },
    /// A corpus can't be found.
    #[error("corpus {corpus}: {source}")]
    LocateCorpus { corpus: String, source: LocateError },
    /// A corpus can't be indexed or asked.
    #[error("corpus {corpus}: {source}")]
    Corpus { corpus: String, source: Box<pl_retrieval::Error> },
    /// A task file can't be found.
    #[error(transparent)]
    LocateTasks(LocateError),
    /// Tasks are invalid or can't be generated.
    #[error(transparent)]
    Tasks(pl_rollout::Error),
    /// There is no task to play.
    #[error("environment {environment} has no tasks; give one with `--task`")]
    NoTasks { environment: String },
    /// CUDA was demanded and is not usable.
    #[error("--device cuda: {0}")]
    Device(CudaUnavailable),
    /// A policy names devices that are not usable.
    #[error("devices of policy {policy}: {source}")]
    Devices { policy: String, source: DevicesUnavailable },
    /// The policies can't be set up as the workflow says, or a checkpoint can't be used.
    #[error(transparent)]
    Setup(Box<pl_trainer::Error>),
    /// An update or a checkpoint failed. The last checkpoint stands.
    #[error(transparent)]
    Trainer(Box<pl_trainer::Error>),
    /// The inference engine failed.
    #[error("inference engine: {0}")]
    Engine(GenerateError),
    /// A server is not usable for its policies.
    #[error(transparent)]
    Server(Box<pl_servers::ServerError>),
    /// Weights can't be written for servers, or read for an engine.
    #[error("{}: {reason}", path.display())]
    WeightFiles { path: PathBuf, reason: String },
    /// The training loop lacks what it should have.
    #[error(
        "the training loop has lost {what}: this is a bug of pl-host; please report it with the run folder, which can be resumed"
    )]
    Lost { what: &'static str },
    /// Episodes can't be played.
    #[error("{source}{}", see(run, episode))]
    Rollout {
        source: Box<pl_rollout::Error>,
        /// Run folder with the traces, if they were kept.
        run: Option<PathBuf>,
        /// First failed episode.
        episode: Option<EpisodeId>,
    },
    /// The one episode that is played failed.
    #[error("the episode failed: {cause}")]
    Episode { cause: String },
    /// The environment refuses the one task that is played.
    #[error("the episode failed: {stage}: {cause}")]
    Task { stage: String, cause: String },
    /// The run folder can't be read as a run.
    #[error(transparent)]
    RunFolder(pl_record::Error),
    /// The run folder can't be written.
    #[error(transparent)]
    Record(#[from] pl_record::Error),
    /// A run or a checkpoint to load is missing.
    #[error("there is no folder {}: give a run folder or one of its checkpoints", path.display())]
    NoFolder { path: PathBuf },
    /// A run folder has no checkpoint.
    #[error("{} has no checkpoint yet", path.display())]
    NoCheckpoint { path: PathBuf },
    /// A run that has recorded episodes has no checkpoint to continue from.
    #[error(
        "{path} has no checkpoint to continue from; `pl-host run --resume {path} --from-start` deletes its metrics, steps \
         and traces and plays them again with the same seed",
        path = path.display()
    )]
    NothingToResume { path: PathBuf },
    /// The order of a run's updates can't be repeated.
    #[error("can't repeat the schedule of {}: {source}", run.display())]
    Schedule { run: PathBuf, source: RepeatError },
    /// The workflow in a run folder is invalid.
    #[error("{}: {source}; restore the file as the run wrote it", path.display())]
    StoredWorkflow { path: PathBuf, source: InvalidWorkflow },
    /// A run folder of somebody else would use resources of this machine.
    #[error(
        "{} was not written by you on this machine, or its workflow was changed; beyond its own folder it would use\n  {}\nhint: `--trust` \
         allows this",
        path.display(), opens.join("\n  ")
    )]
    ForeignRun { path: PathBuf, opens: Vec<String> },
    /// A run folder has a link.
    #[error(
        "{} has the link {}, through which a resume would write elsewhere\nhint: put the file or folder itself in its place, or \
         remove it",
        path.display(), link.display()
    )]
    LinkInRun { path: PathBuf, link: PathBuf },
    /// The text of a run was changed, so that its settings can't be changed in it.
    #[error(
        "{}: its workflow.mas, or a file that this includes, was changed since the run was started:\n  {}\nhint: restore it, or \
         resume without `--set`",
        path.display(), differences.join("\n  ")
    )]
    ChangedText { path: PathBuf, differences: Vec<String> },
    /// A checkpoint was written by another program.
    #[error("{}: the state of the run can't be read: {source}", path.display())]
    State { path: PathBuf, source: serde_json::Error },
    /// The machine, a plugin, a model or a data file differs from what the run was started with.
    #[error(
        "{} can't be continued as it was started:\n  {}\nhint: restore what the run began with, or begin a new run",
        path.display(), differences.join("\n  ")
    )]
    Changed { path: PathBuf, differences: Vec<String> },
    /// A setting can't be changed in a run that was started.
    #[error("{} can't be continued with these settings:\n  {}", path.display(), reasons.join("\n  "))]
    FixedSettings { path: PathBuf, reasons: Vec<String> },
    /// The Docker backend of the sandbox is not usable.
    #[error(
        "sandbox: {reason}\nhint: `fallback = wasm` in the sandbox block runs Python without a Docker engine"
    )]
    Docker { reason: String },
    /// The workflow demands worker processes of a program that has none.
    #[error("`isolation = process` needs the program pl-host: this one can't start worker processes")]
    NoWorkerProcesses,
    /// The workers of the sandbox can't be started.
    #[error(transparent)]
    Sandbox(#[from] pl_sandbox::Error),
    /// The workflow has no such scenario.
    #[error("--scenario {scenario}: {}", named_scenarios(scenarios))]
    NoScenario { scenario: String, scenarios: Vec<String> },
    /// The workflow has no such agent.
    #[error("--agent {agent}: the workflow's agents are {}", agents.join(", "))]
    NoAgent { agent: String, agents: Vec<String> },
    /// The scenario's team is still to be designed.
    #[error("scenario {scenario} has no turns yet: `pl-host design` looks for a team, or write its `turns`")]
    NoTeam { scenario: String },
    /// No scenario has a designer.
    #[error("the workflow has no scenario with a designer: write `designer = NAME` in one")]
    NoDesigner,
    /// The designed scenario can't be separated from the rest of its file.
    #[error(transparent)]
    Skeleton(pl_dsl::SkeletonError),
    /// The designer's model has too small a context.
    #[error(
        "designer {designer}: its prompt has {prompt} tokens and a design up to {design}, but the model's context has \
         {context}; lower the designer's `max_tokens` or use another model"
    )]
    DesignerContext { designer: String, prompt: usize, design: u32, context: usize },
    /// The designer's prompt can't be encoded.
    #[error("designer {designer}: {reason}")]
    DesignerPrompt { designer: String, reason: String },
    /// The folder has the designs of another search.
    #[error(
        "{} has the designs of another search: {difference}\nhint: choose another folder with --out", path.display()
    )]
    OtherSearch { path: PathBuf, difference: String },
    /// A file of a search can't be read or written.
    #[error("{}: {source}", path.display())]
    Designs { path: PathBuf, source: std::io::Error },
    /// A folder has no designs.
    #[error(
        "{} has no designs: give the folder of a search (`pl-host design`) or of a run that designs its teams", path.display()
    )]
    NoDesigns { path: PathBuf },
    /// A line of a search's record is not one.
    #[error("{}: line {line}: {source}; remove the line", path.display())]
    DesignRecord { path: PathBuf, line: usize, source: serde_json::Error },
    /// A line of answers can't be graded.
    #[error("line {line}: {source}")]
    Grade { line: usize, source: Box<pl_plugin::Error> },
    /// The run has no traces.
    #[error("{} has no traces yet: its first step or evaluation is not finished", run.display())]
    NoTraces { run: PathBuf },
    /// The run has no such step, evaluation or episode.
    #[error("{run} has no {missing}; `pl-host replay {run}` lists what there is", run = run.display())]
    NoEpisode { run: PathBuf, missing: String },
    /// A trace was not written by a run.
    #[error("episode {episode} has {candidates} candidates, more than any run; its trace file was changed")]
    InvalidTrace { episode: EpisodeId, candidates: u32 },
    /// A plugin is to be replaced that the run does not have.
    #[error("--plugin {plugin}: the run has no such plugin; it has {}", plugins.join(", "))]
    NoPlugin { plugin: String, plugins: Vec<String> },
    /// An agent is asked for that the run does not have.
    #[error("{} has no agent {agent}", path.display())]
    UnknownAgent { path: PathBuf, agent: String },
    /// A plugin is another build than the run was played with.
    #[error(
        "plugin {plugin}: {place} is the build {found}, the run was played with {recorded}\nhint: restore that build, or \
         try another one with --plugin {plugin}=FILE"
    )]
    OtherBuild { plugin: String, place: String, found: String, recorded: String },
    /// A granted folder has changed since the run was played.
    #[error(
        "{grant}: the content of the folder has changed since the run was played\nhint: restore its files"
    )]
    OtherGrant { grant: String },
    /// The costs of a run's steps can't be read.
    #[error("{problem}; give the folder of a run, or costs as in `rollout=50,train=25`")]
    Costs { problem: String },
    /// A setting of a sweep is not written as the language wants it.
    #[error("--grid {setting}: {problem}")]
    GridSetting { setting: String, problem: String },
    /// A sweep has a run several times.
    #[error(transparent)]
    Repetition(#[from] Repetition),
    /// A run in the folder of a sweep was started with other settings or data.
    #[error(
        "{} belongs to another sweep:\n  {}\nhint: choose another folder with --out, or remove this run",
        path.display(), reasons.join("\n  ")
    )]
    OtherSweep { path: PathBuf, reasons: Vec<String> },
    /// Runs of a sweep failed. All others are finished.
    #[error(
        "{failed} of {total} runs failed, first {name}: {source}\nhint: the same command plays the runs that failed again"
    )]
    SweepRuns { failed: usize, total: usize, name: String, source: Box<Error> },
    /// A run on several machines failed.
    #[error(transparent)]
    Cluster(Box<ClusterError>),
    /// A task of the runtime panicked.
    #[error("a worker thread failed: {0}")]
    Worker(#[from] tokio::task::JoinError),
}

impl From<pl_trainer::Error> for Error {
    fn from(error: pl_trainer::Error) -> Error {
        Error::Trainer(Box::new(error))
    }
}

impl Error {
    /// Error of a server.
    pub(crate) fn server(error: pl_servers::ServerError) -> Self {
        Error::Server(Box::new(error))
    }

    pub(crate) fn cluster(error: impl Into<ClusterError>) -> Error {
        Error::Cluster(Box::new(error.into()))
    }

    /// Error of a model of a workflow that can't be found.
    pub(crate) fn locate_model(name: &str) -> impl Fn(LocateError) -> Error + '_ {
        move |source| Error::LocateModel { model: name.to_owned(), source: Box::new(source) }
    }

    /// Error of a model of a workflow that can't be loaded.
    pub(crate) fn model(name: &str) -> impl Fn(pl_model::Error) -> Error + '_ {
        move |source| Error::Model { model: name.to_owned(), source: Box::new(source) }
    }

    /// Error of a loop that lacks what it should have.
    pub(crate) fn lost(what: &'static str) -> Error {
        Error::Lost { what }
    }

    /// Error of episodes that are not recorded.
    pub(crate) fn rollout(error: pl_rollout::Error) -> Error {
        Error::Rollout { source: Box::new(error), run: None, episode: None }
    }

    pub(crate) fn setup(error: pl_trainer::Error) -> Error {
        Error::Setup(Box::new(error))
    }

    /// Returns true if the user's input is wrong, and false if the operation itself failed.
    pub fn is_input(&self) -> bool {
        match self {
            Error::Runtime { .. }
            | Error::Cache(_)
            | Error::WasmEngine(_)
            | Error::Trainer(_)
            | Error::Engine(_)
            | Error::Lost { .. }
            | Error::Rollout { .. }
            | Error::Episode { .. }
            | Error::Task { .. }
            | Error::Record(_)
            | Error::Sandbox(_)
            | Error::Worker(_) => false,
            Error::Cluster(error) => error.is_input(),
            Error::SweepRuns { source, .. } => source.is_input(),
            _ => true,
        }
    }

    /// Returns `true` if the operation was refused for lack of permissions that the user may give.
    pub(crate) fn asks_for_permission(&self) -> bool {
        match self {
            Error::NotAllowed { .. } => true,
            Error::Workflow(errors) => !errors.refused.is_empty(),
            _ => false,
        }
    }
}

/// Advice for a workflow that can't be read. An encoding is corrected in the file that was named.
fn advice_on_file(reason: &std::io::Error) -> &'static str {
    match reason.kind() {
        std::io::ErrorKind::InvalidData => "",
        _ => "; name a workflow file (.mas); `pl-host new NAME` creates one in a folder of its own",
    }
}

fn see(run: &Option<PathBuf>, episode: &Option<EpisodeId>) -> String {
    match (run, episode) {
        (Some(run), Some(episode)) => format!("\n  see: pl-host replay {} {episode}", run.display()),
        _ => String::new(),
    }
}

fn not_allowed(workflow: &str, requests: &[PermissionRequest]) -> String {
    let lines: Vec<String> = requests.iter().map(PermissionRequest::to_string).collect();
    format!(
        "{workflow} needs what was not allowed:\n  {}\nhint: `{}` allows it",
        lines.join("\n  "),
        flags(requests)
    )
}

fn named_scenarios(scenarios: &[String]) -> String {
    match scenarios {
        [] => "the workflow has one scenario, without a name".to_owned(),
        names => format!("the workflow's scenarios are {}", names.join(", ")),
    }
}
