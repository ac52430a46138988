//! Values of a step's transitions before the update. Critics that read hidden states of the learner's base, with the
//! policy's adapter or with one of their own, share packed passes.

use pl_model::Adapter;
use pl_types::Transition;

use super::Learner;
use crate::critic::{Critic, PredictedValues, ValueSequences};
use crate::error::UpdateError;
use crate::scoring::{ScoredSequence, ScoringModel};

impl Learner {
    /// Computes the values of each policy's transitions. `None` for policies without transitions or a critic.
    pub(super) fn predict_values(
        &self,
        transitions: &[Vec<&Transition>],
    ) -> Result<Vec<Option<PredictedValues>>, UpdateError> {
        let (token_budget, data_parallel) = (self.settings.batch_plan.token_budget, &self.data_parallel);
        let mut predicted: Vec<Option<PredictedValues>> = transitions.iter().map(|_| None).collect();
        let mut shared = SharedSequences::default();
        for (policy_index, own) in transitions.iter().enumerate() {
            let Some(critic) = self.policies[policy_index].critic.as_ref().filter(|_| !own.is_empty()) else {
                continue;
            };
            let Some(model) = critic.own_model() else {
                let adapter = self.value_adapter(policy_index);
                // The engine has no adapter of a critic.
                let uses_sampled =
                    self.settings.uses_sampled_values && self.critic_slot(policy_index).is_none();
                shared.push(policy_index, ValueSequences::new(&self.config, own, adapter, uses_sampled));
                continue;
            };
            let (config, adapters) = (model.config(), model.adapters());
            let (weights, adapters) = (model.weights(), adapters.as_slice());
            let scoring = ScoringModel { config, weights, adapters, token_budget, data_parallel };
            let sequences = ValueSequences::new(config, own, model.adapter_index(), false);
            predicted[policy_index] = Some(critic.head.predict(&scoring, &sequences)?);
        }
        let adapters: Vec<&Adapter> = self.trained_adapters();
        let (config, weights) = (&self.config, self.base.working());
        let scoring = ScoringModel { config, weights, adapters: &adapters, token_budget, data_parallel };
        for (policy_index, values) in
            shared.predict(&scoring, |policy| self.policies[policy].critic.as_ref())?
        {
            predicted[policy_index] = Some(values);
        }
        Ok(predicted)
    }

    /// Index of the adapter whose hidden states a policy's critic reads. `None` if they are those of the base alone.
    fn value_adapter(&self, policy_index: usize) -> Option<usize> {
        let own = self.policies[policy_index].adapter.is_some().then_some(policy_index);
        self.critic_slot(policy_index).or(own)
    }
}

/// Sequences of several policies that go through one model.
#[derive(Default)]
struct SharedSequences {
    /// With the policies' indices.
    parts: Vec<(usize, ValueSequences)>,
}

impl SharedSequences {
    fn push(&mut self, policy_index: usize, sequences: ValueSequences) {
        self.parts.push((policy_index, sequences));
    }

    /// Computes the values of all policies' sequences, each by the policy's critic.
    fn predict<'c>(
        mut self,
        model: &ScoringModel<'_>,
        critic: impl Fn(usize) -> Option<&'c Critic>,
    ) -> Result<Vec<(usize, PredictedValues)>, UpdateError> {
        let (mut all, mut owners) = (Vec::<ScoredSequence>::new(), Vec::new());
        for (policy_index, own) in &mut self.parts {
            owners.extend(std::iter::repeat_n(*policy_index, own.sequences.len()));
            all.append(&mut own.sequences);
        }
        let mut values: Vec<Vec<f32>> = vec![Vec::new(); all.len()];
        model.run(&all, &mut |batch| {
            let mut start = 0;
            // The sequences of a policy are adjacent, because they have one adapter.
            for run in batch.sequences.chunk_by(|&a, &b| owners[a] == owners[b]) {
                let rows = &batch.rows[start..start + run.len()];
                start += run.len();
                let (Some(first), Some(last)) = (rows.first(), rows.last()) else { continue };
                let Some(critic) = run.first().and_then(|&index| critic(owners[index])) else { continue };
                let hidden = batch.hidden.f_narrow(0, first.start, last.end - first.start)?;
                let own = Vec::<f32>::try_from(critic.head.values(&hidden)?)?;
                for (&index, rows) in run.iter().zip(rows) {
                    let (from, to) = (rows.start - first.start, rows.end - first.start);
                    values[index] = own[from as usize..to as usize].to_vec();
                }
            }
            Ok(())
        })?;
        model.data_parallel.fill(&mut values)?;
        let mut values = values.into_iter();
        let mut end = owners.iter().copied().peekable();
        Ok(self
            .parts
            .iter()
            .map(|(policy_index, own)| {
                let mut mine = Vec::new();
                while end.next_if(|owner| owner == policy_index).is_some() {
                    mine.extend(values.next());
                }
                (*policy_index, own.predicted(mine))
            })
            .collect())
    }
}
