//! Work that is left for the runs of a sweep, and settings that they can't have any more.
//!
//! A table of a sweep has means over runs. So a run that was started earlier has to end as one that is started now: what
//! can't be made up for is refused.

use std::path::Path;

use pl_dsl::Override;
use pl_dsl::workflow::{Evaluation, Workflow};
use pl_record::RunFolder;

use crate::changed_settings::{changed_settings, fixed_settings};
use crate::checkpoints::last_checkpoint;
use crate::error::Error;
use crate::host::Host;
use crate::lock::Inputs;
use crate::results::{EvaluationResults, read_evaluations};
use crate::stored::StoredWorkflow;
use crate::training::has_cosine_schedule;
use crate::workflow::CheckedWorkflow;

/// Work that is left for a run of a sweep.
pub(super) enum Remaining {
    /// All of it: there is no run folder yet.
    All,
    /// Steps after those that are finished, with settings that have changed since the run was started.
    Steps(Vec<Override>),
    /// None.
    Nothing,
}

/// Workflow of a combination of settings, with the content of its files once a finished run was compared with it.
pub(super) struct Wanted {
    pub workflow: CheckedWorkflow,
    inputs: Option<Inputs>,
}

impl Wanted {
    pub fn new(workflow: CheckedWorkflow) -> Wanted {
        Wanted { workflow, inputs: None }
    }

    /// Returns what is left to do in the run folder `root`.
    ///
    /// # Errors
    /// [`Error::OtherSweep`] if the run there can't end as one that is started now.
    pub fn remaining(&mut self, host: &Host, root: &Path) -> Result<Remaining, Error> {
        if !is_run(root) {
            return Ok(Remaining::All);
        }
        let refused_for = |reasons: Vec<String>| match reasons.is_empty() {
            true => Ok(()),
            false => Err(Error::OtherSweep { path: root.to_path_buf(), reasons }),
        };
        let stored = StoredWorkflow::read(root)?.workflow;
        let mut now = self.workflow.workflow.clone();
        // The run has pinned the commits of its models.
        for (now, stored) in now.models.iter_mut().zip(&stored.models) {
            now.source.clone_from(&stored.source);
        }
        let finished = last_checkpoint(root)?.unwrap_or(0);
        refused_for(fixed_settings(&stored, &now, finished))?;
        if finished > 0 {
            refused_for(unequal_results(&stored, &now, finished, &read_evaluations(root)?))?;
        }
        if finished < planned_steps(&now) {
            return Ok(Remaining::Steps(self.changes(&stored, &now)));
        }
        refused_for(self.changed_inputs(host, root)?)?;
        Ok(Remaining::Nothing)
    }

    /// Returns the settings with which a run continues: those of the command line, and those of the file that the results
    /// depend on.
    fn changes(&self, stored: &Workflow, now: &Workflow) -> Vec<Override> {
        if changed_settings(stored, now).is_empty() {
            return Vec::new();
        }
        let mut changes = self.workflow.overrides.clone();
        let mut set = |path: &str, value: u64| {
            let shown = format!("--set {path}={value}");
            let change = Override { path: path.to_owned(), value: value.to_string(), shown, optional: false };
            // A block stands for the evaluations of several scenarios.
            if !changes.contains(&change) {
                changes.push(change);
            }
        };
        if planned_steps(stored) != planned_steps(now) {
            set("train.steps", planned_steps(now));
        }
        for (stored, now) in stored.evaluations.iter().zip(&now.evaluations) {
            if stored.every != now.every {
                set(&format!("{}.every", now.block()), now.every.into());
            }
            if stored.limit != now.limit {
                set(&format!("{}.limit", now.block()), now.limit.into());
            }
        }
        changes
    }

    /// Returns the plugins and files that differ from those of a finished run. A resumed one compares its own.
    fn changed_inputs(&mut self, host: &Host, root: &Path) -> Result<Vec<String>, Error> {
        let recorded = RunFolder::read_lock(root).map_err(Error::RunFolder)?;
        let inputs = match self.inputs.take() {
            Some(inputs) => inputs,
            None => {
                self.workflow.require_permissions()?;
                Inputs::read(host, &self.workflow)?
            }
        };
        let differences = inputs.differences(&self.workflow, &recorded);
        self.inputs = Some(inputs);
        differences
    }
}

/// Returns the number of steps of a workflow's training.
pub(super) fn planned_steps(workflow: &Workflow) -> u64 {
    workflow.train.as_ref().map_or(0, |train| u64::from(train.steps))
}

pub(super) fn is_run(root: &Path) -> bool {
    root.join("workflow.json").is_file()
}

/// Returns the settings that may change in a run, but after which its results would not be those of a run that was started
/// with them.
fn unequal_results(
    before: &Workflow,
    now: &Workflow,
    finished: u64,
    results: &[EvaluationResults],
) -> Vec<String> {
    let mut reasons = Vec::new();
    let (steps_before, steps) = (planned_steps(before), planned_steps(now));
    if steps_before != steps && has_cosine_schedule(now) {
        reasons.push(format!(
            "train.steps: the run was started with {steps_before}, now it is {steps}, and by `lr_schedule = cosine` its \
             finished steps depend on this number"
        ));
    }
    for (before, now) in before.evaluations.iter().zip(&now.evaluations) {
        let own = results.iter().filter(|own| own.name == now.name);
        let evaluated: Vec<u64> = own
            .flat_map(|own| own.scores.iter().map(|score| score.step))
            .filter(|step| *step <= finished)
            .collect();
        let end = (steps_before != steps && finished >= steps).then_some(steps);
        reasons.extend(unequal_evaluation(before, now, &evaluated, end));
    }
    reasons
}

/// Returns the reasons for which an evaluation differs from that of another run. `end` is the last step, if it is finished but
/// was not planned as the last one.
fn unequal_evaluation(
    before: &Evaluation,
    now: &Evaluation,
    evaluated: &[u64],
    end: Option<u64>,
) -> Vec<String> {
    let name = &now.name;
    let mut reasons = Vec::new();
    if before.limit != now.limit && !evaluated.is_empty() {
        reasons.push(format!(
            "evaluations.{name}.limit: the run was started with {}, now it is {}, and scores over other tasks can't be compared",
            before.limit, now.limit
        ));
    }
    let is_complete = match now.every {
        0 => evaluated.is_empty(),
        _ => evaluated.contains(&0),
    };
    if before.every != now.every && !is_complete {
        reasons.push(format!(
            "evaluations.{name}.every: the run was started with {}, now it is {}, and the steps that are finished can't be \
             evaluated otherwise",
            before.every, now.every
        ));
    }
    if let Some(end) = end.filter(|end| now.every > 0 && !evaluated.contains(end)) {
        reasons.push(format!("evaluations.{name}: step {end}, now the last one, was not evaluated"));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use pl_dsl::workflow::Tasks;
    use pl_types::SamplingOverrides;

    use super::*;

    fn evaluation(every: u32, limit: u32) -> Evaluation {
        Evaluation {
            name: "held_out".to_owned(),
            scenario: 0,
            every,
            tasks: Tasks::Generated { split: "test".to_owned(), level: 0 },
            limit,
            samples: 1,
            sampling: SamplingOverrides::default(),
            roles: Vec::new(),
        }
    }

    #[test]
    fn evaluations_that_finished_steps_lack_or_have_are_refused() {
        let reasons = |before: (u32, u32), now: (u32, u32), evaluated: &[u64], end: Option<u64>| {
            let [before, now] = [before, now].map(|(every, limit)| evaluation(every, limit));
            unequal_evaluation(&before, &now, evaluated, end).join("\n")
        };
        let limit = reasons((2, 8), (2, 4), &[0, 2], None);
        assert!(limit.starts_with("evaluations.held_out.limit: the run was started with 8, now it is 4"));
        let added = reasons((0, 8), (2, 8), &[], None);
        assert!(added.starts_with("evaluations.held_out.every: the run was started with 0, now it is 2"));
        let removed = reasons((2, 8), (0, 8), &[0, 2], None);
        assert!(removed.starts_with("evaluations.held_out.every: the run was started with 2, now it is 0"));
        let last = reasons((2, 8), (2, 8), &[0, 2], Some(3));
        assert!(last.starts_with("evaluations.held_out: step 3, now the last one, was not evaluated"));
        // No results yet, and others between the first and the last.
        assert_eq!(reasons((0, 8), (0, 4), &[], Some(3)), "");
        assert_eq!(reasons((2, 8), (3, 8), &[0, 2, 4], None), "");
        assert_eq!(reasons((2, 8), (2, 8), &[0, 2, 4], Some(4)), "");
    }
}
