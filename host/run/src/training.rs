//! Training runs: started in a new run folder, or resumed from the last checkpoint of one.

mod outer_loop;
mod rollouts;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pl_dsl::Override;
use pl_dsl::workflow::{Train, Workflow};
use pl_record::{Lock, RunFolder};
use tch::Device;

use crate::checkpoints::newest;
use crate::error::Error;
use crate::host::Host;
use crate::lock::{allow_missing_starts, lock_of};
use crate::memory::MemoryEstimate;
use crate::progress::Notice;
use crate::resume::{copy_changeable_settings, fixed_settings};
use crate::session::{LocatedModels, Session, drop_restored_starts};
use crate::stored::{StoredOverride, StoredWorkflow};
use crate::workflow::CheckedWorkflow;

use self::rollouts::Rollouts;

pub use self::outer_loop::{Ending, LoopState};

/// Request to stop a run after its current step. Clones share the request.
#[derive(Debug, Clone, Default)]
pub struct StopRequest(Arc<AtomicBool>);

impl StopRequest {
    /// Requests the stop. Returns true if it had been requested before.
    pub fn request(&self) -> bool {
        self.0.swap(true, Ordering::Relaxed)
    }

    /// Returns true if the stop has been requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Options of a new run.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Run folder. `None` for `runs/NAME`, or the first of `runs/NAME-2`, `runs/NAME-3`, … that does not
    /// exist.
    pub folder: Option<PathBuf>,
    /// Seed of every random stream.
    pub seed: u64,
}

/// Training run that is ready to start or to continue.
pub struct TrainingRun<'h> {
    host: &'h Host,
    train: Train,
    session: Session,
    rollouts: Rollouts,
    folder: RunFolder,
    state: LoopState,
}

impl<'h> TrainingRun<'h> {
    /// Loads a workflow and creates its run folder. Nothing is written before everything else has succeeded.
    ///
    /// # Errors
    /// If the workflow has no `train` block, the folder already holds a run, or a model, plugin or task file
    /// is not usable.
    pub fn start(
        host: &'h Host,
        checked: &CheckedWorkflow,
        device: Device,
        options: &RunOptions,
    ) -> Result<TrainingRun<'h>, Error> {
        let train = train_block(&checked.workflow)?.clone();
        let root = match &options.folder {
            Some(folder) if folder.join("workflow.json").exists() => {
                return Err(Error::RunFolder(pl_record::Error::Occupied { path: folder.clone() }));
            }
            Some(folder) => folder.clone(),
            None => default_folder(&checked.workflow.name),
        };
        let models = LocatedModels::find(host, checked, device)?;
        let session = Session::load(host, checked, &checked.workflow, models, options.seed)?;
        let lock = lock_of(checked, &session, device)?;
        let mut rollouts = Rollouts::new(host, checked, &session)?;
        let stored = StoredWorkflow::new(checked, &session);
        let folder = RunFolder::create(&root, &checked.text, &stored, &lock)?;
        rollouts.keep_traces(folder.traces());
        Ok(TrainingRun { host, train, session, rollouts, folder, state: LoopState::default() })
    }

    /// Continues the run in `root` after its last checkpoint, with `overrides` on top of the settings that it
    /// was started with. Only settings that no finished step depends on may change.
    ///
    /// # Errors
    /// [`Error::Changed`] if the machine, a plugin, a model, a `from` or a data file differs from what the
    /// run was started with, [`Error::FixedSettings`] if a setting can't change.
    pub fn resume(
        host: &'h Host,
        root: &Path,
        overrides: &[Override],
        device: Device,
    ) -> Result<TrainingRun<'h>, Error> {
        let lock: Lock = RunFolder::read_json(root, "lock.json").map_err(Error::RunFolder)?;
        let mut stored = StoredWorkflow::read(root)?;
        let checkpoint = newest(&RunFolder::checkpoints(root))?;
        if !overrides.is_empty() {
            let state = match &checkpoint {
                Some(checkpoint) => read_state(checkpoint)?,
                None => LoopState::default(),
            };
            change_settings(host, root, &mut stored, overrides, &state)?;
        }
        let checked = stored.clone().open(host, root)?;
        let train = train_block(&checked.workflow)?.clone();
        let mut workflow = checked.workflow.clone();
        if checkpoint.is_some() {
            drop_restored_starts(&mut workflow.policies);
        }
        let models = LocatedModels::find(host, &checked, device)?;
        let mut session = Session::load(host, &checked, &workflow, models, lock.seed)?;
        let mut now = lock_of(&checked, &session, device)?;
        if checkpoint.is_some() {
            allow_missing_starts(&lock, &mut now, &checked.workflow.policies);
        }
        let differences = lock.differences(&now);
        if !differences.is_empty() {
            return Err(Error::Changed { path: root.to_path_buf(), differences });
        }
        let mut state = LoopState::default();
        if let Some(checkpoint) = checkpoint {
            let restored = session.trainer.load(&checkpoint).map_err(Error::setup)?;
            state = serde_json::from_value(restored.state)
                .map_err(|source| Error::State { path: checkpoint, source })?;
        }
        let mut rollouts = Rollouts::new(host, &checked, &session)?;
        let folder = RunFolder::resume(root, state.step, state.lengths).map_err(Error::RunFolder)?;
        if !overrides.is_empty() {
            folder.write_json("workflow.json", &stored)?;
        }
        rollouts.keep_traces(folder.traces());
        host.notify(Notice::Resumed { step: state.step });
        Ok(TrainingRun { host, train, session, rollouts, folder, state })
    }

    /// Returns the run folder.
    pub fn folder(&self) -> &Path {
        self.folder.root()
    }

    /// Returns the estimate of the memory that the run needs.
    pub fn memory(&self) -> &MemoryEstimate {
        &self.session.memory
    }

    /// Returns the number of finished steps.
    pub fn finished_steps(&self) -> u64 {
        self.state.step
    }
}

/// Returns the `train` block of a workflow.
fn train_block(workflow: &Workflow) -> Result<&Train, Error> {
    workflow.train.as_ref().ok_or_else(|| Error::NoTrainBlock { workflow: workflow.name.clone() })
}

/// Reads the state of the loop from a checkpoint.
fn read_state(checkpoint: &Path) -> Result<LoopState, Error> {
    let state = pl_trainer::checkpoint::read_state(checkpoint).map_err(Error::setup)?;
    serde_json::from_value(state).map_err(|source| Error::State { path: checkpoint.to_path_buf(), source })
}

/// Changes those settings of a run that `overrides` name.
fn change_settings(
    host: &Host,
    root: &Path,
    stored: &mut StoredWorkflow,
    overrides: &[Override],
    state: &LoopState,
) -> Result<(), Error> {
    let before = stored.with_overrides(host, root, &[])?;
    let now = stored.with_overrides(host, root, overrides)?;
    let reasons = fixed_settings(&before.workflow, &now.workflow, state.step);
    if !reasons.is_empty() {
        return Err(Error::FixedSettings { path: root.to_path_buf(), reasons });
    }
    if !now.warnings.list.is_empty() {
        host.notify(Notice::Diagnostics(now.warnings));
    }
    if let (Some(old), Some(new)) = (&before.workflow.train, &now.workflow.train)
        && new.lr_schedule == pl_dsl::workflow::LrSchedule::Cosine
        && old.steps != new.steps
        && state.step > 0
    {
        host.notify(Notice::ScheduleStretched { before: old.steps, now: new.steps });
    }
    copy_changeable_settings(&now.workflow, &mut stored.workflow);
    stored.overrides.extend(overrides.iter().map(StoredOverride::from));
    Ok(())
}

/// Returns `runs/NAME`, or the first of `runs/NAME-2`, `runs/NAME-3`, … that does not exist.
pub(crate) fn default_folder(name: &str) -> PathBuf {
    let numbered = (2u32..).map(|n| PathBuf::from(format!("runs/{name}-{n}")));
    std::iter::once(PathBuf::from(format!("runs/{name}")))
        .chain(numbered)
        .find(|folder| !folder.exists())
        .unwrap_or_else(|| PathBuf::from("runs").join(name))
}
