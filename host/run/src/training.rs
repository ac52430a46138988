//! Training runs: started in a new run folder, or resumed from the last checkpoint of one.

mod alternation;
mod barriers;
mod collected_steps;
mod cursor;
mod designer_player;
mod designs;
mod flat_steps;
mod in_flight;
mod kept_versions;
mod learner_threads;
mod loop_events;
mod loop_state;
mod metrics_lines;
mod mixture;
mod open_step;
mod outer_loop;
mod pace;
mod replayed_schedule;
mod rollout_thread;
mod rollouts;
mod step_metrics;
mod step_results;
mod step_times;
mod step_weights;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_dsl::Override;
use pl_dsl::workflow::{BatchOrder, LrSchedule, Train, Workflow};
use pl_record::{FinishedSteps, Lock, RunFolder};
use pl_trainer::checkpoint::{CheckpointInfo, EarlierVersion};
use pl_trainer::{Learner, Trainer};
use tch::Device;

use crate::audit::note;
use crate::changed_settings::{changed_limits, changed_settings, copy_changeable_settings, fixed_settings};
use crate::chat::today;
use crate::checkpoints::newest;
use crate::cluster::{ClusterOptions, ClusterRun};
use crate::error::Error;
use crate::host::Host;
use crate::lock::{allow_missing_image, allow_missing_starts, data_files, lock_of, start_date};
use crate::memory::MemoryEstimate;
use crate::origin::{is_own, refuse_links, require_trust};
use crate::permissions::GrantedAccess;
use crate::plan::RunPlan;
use crate::progress::Notice;
use crate::run_folder;
use crate::schedule::StepSchedule;
use crate::session::{Session, SessionStart, is_start_restored};
use crate::stored::{StoredOverride, StoredWorkflow};
use crate::workflow::CheckedWorkflow;

use self::replayed_schedule::RepeatedSchedule;
use self::rollouts::Rollouts;

pub use self::cursor::{LevelState, ScenarioCursor};
pub use self::loop_state::{LoopState, StepAhead};
pub use self::outer_loop::RunEnding;

/// Options of a new run.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Run folder. `None` for `runs/NAME`, or the first of `runs/NAME-2`, `runs/NAME-3`, … that does not
    /// exist.
    pub folder: Option<PathBuf>,
    /// Seed of every random stream.
    pub seed: u64,
    /// Run folder whose updates' tasks are repeated.
    pub replay_schedule: Option<PathBuf>,
    /// Other processes that play episodes, train and run code.
    pub cluster: ClusterOptions,
}

/// Options of a resumed run.
#[derive(Debug, Clone, Default)]
pub struct ResumeOptions {
    /// Settings on top of those that the run was started with. Only settings that no finished step depends on
    /// may change.
    pub overrides: Vec<Override>,
    /// If the run has no checkpoint, deletes what it has recorded and starts it again.
    pub from_start: bool,
    /// Run folder whose updates' tasks are repeated.
    pub replay_schedule: Option<PathBuf>,
    /// Allows a run folder of somebody else to use the components, folders and hosts that it names.
    pub trust: bool,
    /// Other processes that play episodes, train and run code.
    pub cluster: ClusterOptions,
}

/// Training run that is ready to start or to continue.
pub struct TrainingRun<'h> {
    host: &'h Host,
    train: Train,
    session: Session,
    schedule: StepSchedule,
    /// Schedule of a run before that this one repeats.
    repeated: Option<RepeatedSchedule>,
    /// Versions of the checkpoint that the run continues from, before its own.
    earlier: Vec<EarlierVersion>,
    rollouts: Rollouts,
    folder: RunFolder,
    state: LoopState,
    /// Workers that play the episodes. `None` if this process does.
    cluster: Option<Arc<ClusterRun>>,
}

impl<'h> TrainingRun<'h> {
    /// Loads a workflow and creates its run folder. Nothing is left in it if the run can't start.
    ///
    /// # Errors
    /// If the workflow has no `train` block, the folder has files that a run would overwrite, or a model,
    /// plugin or task file is not usable.
    pub fn start(
        host: &'h Host,
        checked: &CheckedWorkflow,
        device: Device,
        options: &RunOptions,
    ) -> Result<TrainingRun<'h>, Error> {
        let train = train_block(&checked.workflow)?.clone();
        checked.require_permissions()?;
        let scenarios = checked.workflow.scenarios.iter().enumerate();
        let trained = scenarios.filter(|(_, scenario)| scenario.weight > 0.0).map(|(index, _)| index);
        let evaluated = checked.workflow.evaluations.iter().map(|evaluation| evaluation.scenario);
        // A designer writes the teams of its own.
        let has_designer = |index: &usize| checked.workflow.scenarios[*index].designer.is_some();
        for scenario in trained.filter(|index| !has_designer(index)).chain(evaluated) {
            checked.require_team(scenario)?;
        }
        if let Some(folder) = &options.folder {
            RunFolder::check_unused(folder).map_err(Error::RunFolder)?;
        }
        let start = SessionStart { seed: options.seed, date: today(), own_weights: false };
        let session = Session::load(host, checked, &checked.workflow, device, start)?;
        options.cluster.check_learners(checked, &session.trainer)?;
        let lock = lock_of(host, checked, &session)?;
        let mut rollouts = Rollouts::new(host, checked, &session)?;
        let schedule = schedule_of(&checked.workflow, &train, &session.trainer, &rollouts);
        let recorded = options.replay_schedule.as_deref();
        let repeat = |run| RepeatedSchedule::read(run, &checked.workflow, session.seed, &schedule, &rollouts);
        let repeated = recorded.map(repeat).transpose()?;
        note::warn(host, checked);
        let stored = StoredWorkflow::new(checked, &session);
        let folder = run_folder::create(host, options.folder.as_deref(), &checked.text, &stored, &lock)?;
        let (earlier, state) = (Vec::new(), LoopState::default());
        let start = || {
            let plan = RunPlan::new(host, checked, device).in_folder(folder.root());
            folder.write_json("plan.json", &plan.to_json())?;
            keep_adapters(&session, &folder)?;
            let place = (folder.root(), state.step);
            cluster_of(host, checked, &session, (&stored, &lock), place, &options.cluster)
        };
        let cluster = match start() {
            Ok(cluster) => cluster,
            // Nothing was played: a server that could not be reached, say, leaves no run.
            Err(error) => {
                folder.discard();
                return Err(error);
            }
        };
        rollouts.keep_traces(folder.traces());
        Ok(TrainingRun {
            host,
            train,
            session,
            schedule,
            repeated,
            earlier,
            rollouts,
            folder,
            state,
            cluster,
        })
    }

    /// Continues the run in `root` after its last checkpoint.
    ///
    /// # Errors
    /// [`Error::RunFolder`] if the folder is not a run folder or another process writes into it,
    /// [`Error::NothingToResume`] if it has no checkpoint but recorded episodes, [`Error::ForeignRun`] if it is
    /// not the user's own, [`Error::NotAllowed`] if it needs more than its start was allowed, [`Error::Changed`] if the machine, a
    /// plugin, a model, a `from` or a data file differs from what the run was started with, [`Error::FixedSettings`] if a setting
    /// can't change.
    pub fn resume(
        host: &'h Host,
        root: &Path,
        device: Device,
        options: &ResumeOptions,
    ) -> Result<TrainingRun<'h>, Error> {
        let run_lock = RunFolder::lock(root).map_err(Error::RunFolder)?;
        refuse_links(root)?;
        let is_own = is_own(root);
        let mut lock = RunFolder::read_lock(root).map_err(Error::RunFolder)?;
        let mut stored = StoredWorkflow::read(root)?;
        let trusted = options.trust || is_own;
        if !trusted {
            let given = stored.given(root, &lock, trusted, &options.overrides);
            require_trust(root, &options.cluster.applied_to(stored.clone().open(host, root, given)?)?)?;
        }
        let checkpoint = newest(root)?;
        if checkpoint.is_none() {
            run_folder::check_start(root, options.from_start)?;
        }
        let overrides = options.overrides.as_slice();
        if !overrides.is_empty() {
            let finished = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.step);
            let given = |more: &[Override]| stored.given(root, &lock, trusted, more);
            let given = [given(&[]), given(overrides)];
            change_settings(host, root, &mut stored, overrides, finished, given)?;
        }
        let given = stored.given(root, &lock, trusted, overrides);
        let mut checked = options.cluster.applied_to(stored.clone().open(host, root, given)?)?;
        if options.trust {
            checked.allow_required_permissions();
        }
        checked.require_permissions()?;
        let train = train_block(&checked.workflow)?.clone();
        let mut workflow = checked.workflow.clone();
        if checkpoint.is_some() {
            for policy in workflow.policies.iter_mut().filter(|policy| is_start_restored(policy)) {
                policy.from = None;
            }
        }
        let start = SessionStart { seed: lock.seed, date: start_date(&lock), own_weights: false };
        let mut session = Session::load(host, &checked, &workflow, device, start)?;
        let mut now = lock_of(host, &checked, &session)?;
        if checkpoint.is_some() {
            allow_missing_starts(&lock, &mut now, &checked.workflow.policies);
        }
        allow_missing_image(&lock, &mut now, &checked);
        let differences = lock.differences_of_files(&now, &data_files(host, &checked)?);
        if !differences.is_empty() {
            return Err(Error::Changed { path: root.to_path_buf(), differences });
        }
        let (mut state, mut earlier) = (LoopState::default(), Vec::new());
        if let Some(CheckpointInfo { path, .. }) = checkpoint {
            let restored = session.trainer.load(&path).map_err(Error::setup)?;
            earlier = session.trainer.load_earlier(&path).map_err(Error::setup)?;
            state = serde_json::from_value(restored.state).map_err(|source| Error::State { path, source })?;
        }
        let mut rollouts = Rollouts::new(host, &checked, &session)?;
        let schedule = schedule_of(&checked.workflow, &train, &session.trainer, &rollouts);
        let recorded = options.replay_schedule.as_deref();
        let repeat = |run| RepeatedSchedule::read(run, &checked.workflow, session.seed, &schedule, &rollouts);
        let repeated = recorded.map(repeat).transpose()?;
        let played = state.step + state.ahead.len() as u64;
        let steps = FinishedSteps { played, trained: state.step };
        let folder = RunFolder::resume(run_lock, steps, state.lengths).map_err(Error::RunFolder)?;
        if !overrides.is_empty() {
            folder.write_json("workflow.json", &stored)?;
        }
        if lock.permissions != now.permissions {
            lock.permissions = now.permissions;
            folder.write_json("lock.json", &lock)?;
        }
        // Later resumes of a run that the user trusts don't ask again.
        if trusted {
            run_folder::mark(host, root);
        }
        rollouts.keep_traces(folder.traces());
        keep_adapters(&session, &folder)?;
        let place = (folder.root(), state.step);
        let cluster = cluster_of(host, &checked, &session, (&stored, &lock), place, &options.cluster)?;
        host.notify(Notice::Resumed { step: state.step });
        Ok(TrainingRun {
            host,
            train,
            session,
            schedule,
            repeated,
            earlier,
            rollouts,
            folder,
            state,
            cluster,
        })
    }

    /// Returns the run folder.
    pub fn folder(&self) -> &Path {
        self.folder.root()
    }

    /// Returns the estimate of the memory that the run needs.
    pub fn memory(&self) -> &MemoryEstimate {
        &self.session.memory
    }

    /// Returns the number of planned steps.
    pub fn planned_steps(&self) -> u64 {
        u64::from(self.train.steps)
    }

    /// Returns the number of finished steps.
    pub fn finished_steps(&self) -> u64 {
        self.state.step
    }
}

/// Lets workers play the episodes of a run, if the user wants it.
fn cluster_of(
    host: &Host,
    checked: &CheckedWorkflow,
    session: &Session,
    started: (&StoredWorkflow, &Lock),
    place: (&Path, u64),
    options: &ClusterOptions,
) -> Result<Option<Arc<ClusterRun>>, Error> {
    Ok(ClusterRun::start(host, checked, session, started, place, options)?.map(Arc::new))
}

/// Returns the schedule of a run: each learner has the staleness of its policies, and is updated when one of them is.
fn schedule_of(workflow: &Workflow, train: &Train, trainer: &Trainer, rollouts: &Rollouts) -> StepSchedule {
    let own = |learner: &Learner| {
        let policy = learner.policies().first().map(|own| own.policy);
        u64::from(policy.map_or(train.staleness, |policy| workflow.staleness(policy)))
    };
    let (steps, learners) = (u64::from(train.steps), trainer.learners());
    let schedule = match train.order {
        BatchOrder::Keys => StepSchedule::new(steps, learners.iter().map(own).collect()),
        BatchOrder::Arrival => StepSchedule::by_arrival(steps, u64::from(train.staleness), learners.len()),
    };
    let updates = learners.iter().map(Learner::update_steps).collect();
    schedule.with_updates(updates).with_lanes(rollouts.lanes.clone())
}

/// Keeps the adapters that servers load in the run folder.
fn keep_adapters(session: &Session, folder: &RunFolder) -> Result<(), Error> {
    if !session.router.uses_servers() {
        return Ok(());
    }
    session.router.store().keep_in(RunFolder::adapters(folder.root()))
}

/// Returns true if the learning rate of a policy depends on the number of steps.
pub(crate) fn has_cosine_schedule(workflow: &Workflow) -> bool {
    let trainings = workflow.policies.iter().filter_map(|policy| policy.training.as_ref());
    trainings.into_iter().any(|training| training.optimizer.lr_schedule == LrSchedule::Cosine)
}

/// Returns the `train` block of a workflow.
fn train_block(workflow: &Workflow) -> Result<&Train, Error> {
    workflow.train.as_ref().ok_or_else(|| Error::NoTrainBlock { workflow: workflow.name.clone() })
}

/// Changes those settings of a run of `finished` steps that `overrides` name. The text of the run may use what is `given` without
/// them and with them.
fn change_settings(
    host: &Host,
    root: &Path,
    stored: &mut StoredWorkflow,
    overrides: &[Override],
    finished: u64,
    [given_before, given]: [GrantedAccess; 2],
) -> Result<(), Error> {
    let before = stored.with_overrides(host, root, &[], given_before)?;
    let differences = changed_settings(&stored.workflow, &before.workflow);
    if !differences.is_empty() {
        return Err(Error::ChangedText { path: root.to_path_buf(), differences });
    }
    let now = stored.with_overrides(host, root, overrides, given)?;
    let reasons = fixed_settings(&before.workflow, &now.workflow, finished);
    if !reasons.is_empty() {
        return Err(Error::FixedSettings { path: root.to_path_buf(), reasons });
    }
    if !now.warnings.list.is_empty() {
        host.notify(Notice::Diagnostics(now.warnings));
    }
    if let (Some(old), Some(new)) = (&before.workflow.train, &now.workflow.train)
        && has_cosine_schedule(&now.workflow)
        && old.steps != new.steps
        && finished > 0
    {
        host.notify(Notice::ScheduleStretched { before: old.steps, now: new.steps });
    }
    let evaluations = changed_limits(&before.workflow, &now.workflow);
    if finished > 0 && !evaluations.is_empty() {
        host.notify(Notice::LimitChanged { evaluations });
    }
    copy_changeable_settings(&now.workflow, &mut stored.workflow);
    stored.overrides.extend(overrides.iter().map(StoredOverride::from));
    Ok(())
}
