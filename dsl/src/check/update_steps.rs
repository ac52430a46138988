//! Checks the steps after which policies are updated.

use std::collections::HashSet;

use super::objective::TrainingSettings;
use super::resolver::{CriticBlock, Resolver};
use crate::diagnostic::DiagnosticCode;
use crate::source::Location;
use crate::workflow::objective::UpdateSteps;

/// Settings of [`PolicyTraining`](crate::workflow::PolicyTraining) that decide when the policy is updated.
pub(super) struct UpdateSettings {
    pub freeze: u32,
    pub update_every: u32,
    pub steps_per_update: u32,
}

/// Resolves the settings of a policy. `None` if one of them is invalid, which was reported.
pub(super) fn update_settings(settings: &TrainingSettings) -> Option<UpdateSettings> {
    let tasks: u32 = settings.file.integer("tasks_per_step")?;
    Some(UpdateSettings {
        freeze: settings.integer_or_default("freeze")?,
        update_every: settings.integer_or_default("update_every")?,
        // Rest is reported.
        steps_per_update: settings.integer("tasks_per_update")?.map_or(1, |own| (own / tasks.max(1)).max(1)),
    })
}

impl Resolver<'_, '_, '_> {
    /// Reports settings that don't fit each other or the number of steps. A setting of the file is reported once.
    pub(super) fn update_steps(
        &mut self,
        name: &str,
        settings: &TrainingSettings,
        steps: Option<u32>,
        seen: &mut HashSet<Location>,
    ) {
        let Some(own) = update_settings(settings) else { return };
        if let Some(steps) = steps.filter(|steps| own.freeze >= *steps) {
            self.frozen(name, settings, steps, own.freeze, seen);
            return;
        }
        self.warm_up(settings, own.freeze, steps, seen);
        let Some(location) = settings.written("tasks_per_update").map(|written| written.location) else {
            return;
        };
        let tasks = settings
            .file
            .integer::<u32>("tasks_per_step")
            .zip(settings.integer("tasks_per_update").flatten());
        let Some((of_step, of_update)) = tasks.filter(|_| seen.insert(location)) else { return };
        if !of_update.is_multiple_of(of_step.max(1)) {
            let message = format!(
                "`tasks_per_update` is {of_update}, but an update trains on whole steps of {of_step} tasks"
            );
            let help = format!("set it to a multiple of {of_step}, or change `tasks_per_step`");
            self.reports.error(DiagnosticCode::BadSetting, location, message, "").help(help);
        } else if let (true, Some(every)) = (own.steps_per_update > 1, settings.written("update_every")) {
            let message =
                "`tasks_per_update` trains on several steps at once, `update_every` on one of several";
            self.reports
                .error(DiagnosticCode::BadSetting, location, message, "")
                .also(every.location, "leaves the other steps out")
                .help("remove one of them");
        } else if let Some(steps) = steps {
            self.steps_left(name, &own, steps, location);
        }
    }

    /// Warns of a warm-up without an effect, and of one that doesn't end. `--set` may shorten a run for a trial.
    fn warm_up(
        &mut self,
        settings: &TrainingSettings,
        freeze: u32,
        steps: Option<u32>,
        seen: &mut HashSet<Location>,
    ) {
        let Some(written) = settings.written("warmup") else { return };
        let Some(warmup @ 1..) = settings.integer_or_default("warmup") else { return };
        let trial = matches!(settings.file.location("steps"), Some(Location::Override(_)));
        let (message, help) = if warmup <= freeze {
            (
                format!(
                    "`warmup` is {warmup}, but the policy is frozen for {freeze} steps: the warm-up is over by then"
                ),
                "steps of `freeze` count: increase it, or remove it",
            )
        } else if let Some(steps) = steps.filter(|steps| warmup >= *steps && !trial) {
            (
                format!(
                    "`warmup` is {warmup}, but there are {steps} steps: the learning rate rises to the end"
                ),
                "reduce it, or increase `steps`",
            )
        } else {
            return;
        };
        if seen.insert(written.location) {
            self.reports.warning(DiagnosticCode::WarmUp, written.location, message, "").help(help);
        }
    }

    /// Warns of a critic that is trained alone to the end. `--set` may shorten a run for a trial.
    pub(super) fn critic_warm_up(&mut self, name: &str, settings: &TrainingSettings, critic: &CriticBlock) {
        let Some(location) = critic.settings.location("warmup") else { return };
        if matches!(settings.file.location("steps"), Some(Location::Override(_))) {
            return;
        }
        let (Some(own), Some(warmup @ 1..), Some(steps)) = (
            update_settings(settings),
            critic.settings.integer::<u32>("warmup"),
            settings.file.integer::<u32>("steps"),
        ) else {
            return;
        };
        // A policy that is frozen in all steps is reported as such.
        if own.freeze < steps && own.freeze.saturating_add(warmup) >= steps {
            let message = format!(
                "policy `{name}` is never updated: its critic is trained alone for {warmup} steps after `freeze`, and \
                 there are {steps}"
            );
            self.reports
                .warning(DiagnosticCode::WarmUp, location, message, "")
                .help("reduce it, or increase `steps`");
        }
    }

    /// Reports the steps after the last update.
    fn steps_left(&mut self, name: &str, own: &UpdateSettings, steps: u32, location: Location) {
        let count = u64::from(own.steps_per_update);
        let UpdateSettings { freeze, update_every, steps_per_update } = *own;
        let last = UpdateSteps::new(freeze, update_every, steps_per_update).last(steps.into());
        let left = u64::from(steps) - last;
        if last == 0 {
            let message = format!(
                "policy `{name}` is never updated: an update trains on {count} steps, and there are {steps}"
            );
            self.reports
                .error(DiagnosticCode::NothingToTrain, location, message, "")
                .help("reduce `tasks_per_update`, or increase `steps`");
        } else if left > 0 {
            let message = format!(
                "policy `{name}` is not trained on the last {left} of {steps} steps: an update trains on {count} at once"
            );
            self.reports
                .warning(DiagnosticCode::StepsLeft, location, message, "")
                .help(format!("set `steps` to {last} or {}", last + count));
        }
    }

    /// Reports a policy that is frozen in all steps.
    fn frozen(
        &mut self,
        name: &str,
        settings: &TrainingSettings,
        steps: u32,
        freeze: u32,
        seen: &mut HashSet<Location>,
    ) {
        let Some(written) = settings.written("freeze") else { return };
        if seen.insert(written.location) {
            let message = format!(
                "policy `{name}` is never updated: `freeze` is {freeze}, but there are {steps} steps"
            );
            self.reports
                .error(DiagnosticCode::NothingToTrain, written.location, message, "")
                .help("reduce it, increase `steps`, or set `train = false` in the policy");
        }
    }
}
