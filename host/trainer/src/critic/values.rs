//! Values of a step's transitions before the update, and the advantages that follow from them.

use pl_dsl::workflow::objective::Objective;
use pl_model::Config;
use pl_types::Transition;

use super::ValueHead;
use crate::error::UpdateError;
use crate::gae::{Discounts, Estimate, Successor, Turn, estimate};
use crate::returns::Trajectories;
use crate::scoring::{ScoredSequence, ScoringModel};

/// Values of one policy's transitions, in their order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PredictedValues {
    /// Per transition, the value before each token.
    pub tokens: Vec<Vec<f32>>,
    /// Per transition, the value of its next prompt ([`Transition::next_prompt`]). `None` if it has none, or if
    /// the model has no positions left for a completion of it.
    pub next: Vec<Option<f32>>,
}

/// Sequences whose hidden states give the values of a policy's transitions: those of the completions, then those
/// of the next prompts.
pub(crate) struct ValueSequences {
    pub sequences: Vec<ScoredSequence>,
    /// Transitions of the next prompts.
    owners: Vec<usize>,
    /// Values of all completions, if they were recorded when tokens were sampled; then no sequence is a completion.
    sampled: Option<Vec<Vec<f32>>>,
    transitions: usize,
}

impl ValueSequences {
    /// Sequences for a model of some dimensions. `adapter` is the index of the policy's or critic's adapter. With
    /// `uses_sampled`, values that every transition has are taken as they are.
    pub(crate) fn new(
        config: &Config,
        transitions: &[&Transition],
        adapter: Option<usize>,
        uses_sampled: bool,
    ) -> Self {
        let of_completion = |t: &&Transition| {
            let values =
                t.values.as_ref().filter(|values| uses_sampled && values.len() == t.completion.len());
            values.cloned()
        };
        let sampled: Option<Vec<Vec<f32>>> = transitions.iter().map(of_completion).collect();
        let completions =
            transitions.iter().filter(|_| sampled.is_none()).map(|t| ScoredSequence::completion(t, adapter));
        let prompts = transitions.iter().enumerate().filter_map(|(index, transition)| {
            let prompt = transition.next_prompt.as_ref()?;
            let fits = !prompt.is_empty() && prompt.len() < config.max_positions;
            let (tokens, first) = (prompt.clone(), prompt.len().saturating_sub(1));
            fits.then_some((index, ScoredSequence { tokens, first, adapter }))
        });
        let (owners, prompts): (Vec<usize>, Vec<ScoredSequence>) = prompts.unzip();
        let sequences = completions.chain(prompts).collect();
        Self { sequences, owners, sampled, transitions: transitions.len() }
    }

    /// The values of the transitions, from those of the sequences.
    pub(crate) fn predicted(&self, mut values: Vec<Vec<f32>>) -> PredictedValues {
        let mut next = vec![None; self.transitions];
        let prompts = values.split_off(values.len() - self.owners.len());
        for (&owner, value) in self.owners.iter().zip(prompts) {
            next[owner] = value.first().copied();
        }
        PredictedValues { tokens: self.sampled.clone().unwrap_or(values), next }
    }
}

impl ValueHead {
    /// Computes the values of some sequences of a model.
    ///
    /// # Errors
    /// Errors of libtorch, or if a rank is away.
    pub(crate) fn predict(
        &self,
        model: &ScoringModel<'_>,
        sequences: &ValueSequences,
    ) -> Result<PredictedValues, UpdateError> {
        let mut values: Vec<Vec<f32>> = vec![Vec::new(); sequences.sequences.len()];
        model.run(&sequences.sequences, &mut |batch| {
            let all = Vec::<f32>::try_from(self.values(&batch.hidden)?)?;
            for (&index, rows) in batch.sequences.iter().zip(&batch.rows) {
                values[index] = all[rows.start as usize..rows.end as usize].to_vec();
            }
            Ok(())
        })?;
        model.data_parallel.fill(&mut values)?;
        Ok(sequences.predicted(values))
    }
}

impl PredictedValues {
    /// Advantages and value targets of all tokens. `rewards` are those of the turns, without the `penalties` of
    /// tokens.
    ///
    /// A candidate that a tree did not continue from ends with the value of its next prompt.
    pub(crate) fn estimate(
        &self,
        objective: &Objective,
        trajectories: &Trajectories,
        rewards: &[f64],
        penalties: Option<&[Vec<f64>]>,
    ) -> Vec<Estimate> {
        let discounts =
            Discounts { token: objective.gamma, turn: objective.gamma_turn, lambda: objective.lambda };
        let rewards: Vec<Vec<f64>> = self
            .tokens
            .iter()
            .enumerate()
            .map(|(index, values)| {
                let penalty = |token: usize| penalties.map_or(0.0, |penalties| penalties[index][token]);
                let mut own: Vec<f64> = (0..values.len()).map(|token| -penalty(token)).collect();
                if let Some(last) = own.last_mut().filter(|_| trajectories.is_turn(index)) {
                    *last += rewards[index];
                }
                own
            })
            .collect();
        let turns: Vec<Turn<'_>> = self
            .tokens
            .iter()
            .zip(&rewards)
            .enumerate()
            .map(|(index, (values, rewards))| {
                let call = trajectories.next_call(index);
                let successor = match (call, trajectories.next(index), self.next[index]) {
                    (Some(call), ..) => Successor::Call(call),
                    (None, Some(next), _) => Successor::Turn(trajectories.first_call(next)),
                    (None, None, Some(value)) => Successor::Value(f64::from(value)),
                    (None, None, None) => Successor::End,
                };
                Turn { values, rewards, successor }
            })
            .collect();
        estimate(&turns, &discounts)
    }
}
