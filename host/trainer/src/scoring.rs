//! Forward passes before the first optimiser step. They give each token's log-probability under a reference policy or under
//! the policy before the update, or the value of its hidden state.
//!
//! Sequences are packed as in the update ([`crate::packing`]); nothing is kept for a gradient.

use std::ops::Range;

use pl_model::{Adapter, Config, Packed, Sequence, Weights, hidden_states};
use pl_types::Transition;
use tch::{Tensor, no_grad};

use crate::data_parallel::DataParallel;
use crate::error::UpdateError;
use crate::head::{self, HeadInput};
use crate::packing::{PackItem, pack_for_ranks};
use crate::token_columns::TokenColumns;

/// A sequence to score.
#[derive(Debug, Clone)]
pub(crate) struct ScoredSequence {
    /// Tokens fed to the model.
    pub tokens: Vec<u32>,
    /// Index of the first token whose hidden state is wanted. The hidden state of a token predicts the next one.
    pub first: usize,
    /// Index into the adapters of the model; `None` for the base weights alone.
    pub adapter: Option<usize>,
}

impl ScoredSequence {
    /// The sequence with one hidden state per completion token, from which that token is predicted.
    pub(crate) fn completion(transition: &Transition, adapter: Option<usize>) -> Self {
        Self { tokens: fed_tokens(transition), first: transition.prompt.len() - 1, adapter }
    }
}

/// Tokens of a transition that the model is fed. The last one of a completion predicts no token of it.
pub(crate) fn fed_tokens(transition: &Transition) -> Vec<u32> {
    let Transition { prompt, completion, .. } = transition;
    let count = prompt.len() + completion.len() - 1;
    prompt.iter().chain(completion).take(count).copied().collect()
}

/// Hidden states of some of the sequences.
pub(crate) struct ScoredBatch {
    /// Indices of the sequences.
    pub sequences: Vec<usize>,
    /// Rows of `hidden`, one range per sequence.
    pub rows: Vec<Range<i64>>,
    /// `[N, H]`, after the final norm.
    pub hidden: Tensor,
}

/// A model for forward passes.
#[derive(Clone, Copy)]
pub(crate) struct ScoringModel<'a> {
    pub config: &'a Config,
    pub weights: &'a Weights,
    pub adapters: &'a [&'a Adapter],
    /// Maximum number of tokens in a packed batch.
    pub token_budget: usize,
    /// Ranks that take turns with the packed batches.
    pub data_parallel: &'a DataParallel,
}

impl ScoringModel<'_> {
    /// Runs the sequences of the ranks of this process through the model and hands the wanted hidden states to `visit`, batch
    /// by batch.
    ///
    /// # Errors
    /// Errors of libtorch and of `visit`.
    pub(crate) fn run(
        &self,
        sequences: &[ScoredSequence],
        visit: &mut dyn FnMut(&ScoredBatch) -> Result<(), pl_model::Error>,
    ) -> Result<(), pl_model::Error> {
        let items: Vec<PackItem<'_>> = sequences
            .iter()
            .map(|sequence| PackItem {
                tokens: &sequence.tokens,
                prompt: sequence.first + 1,
                // The base alone comes first.
                policy_index: sequence.adapter.map_or(0, |adapter| adapter + 1),
            })
            .collect();
        let batches = pack_for_ranks(&items, self.token_budget, self.data_parallel.ranks());
        let own = batches.into_iter().enumerate().filter(|(index, _)| self.data_parallel.does(*index));
        for (_, batch) in own {
            let packed: Vec<Sequence<'_>> = batch
                .sequences
                .iter()
                .map(|&index| Sequence {
                    tokens: &sequences[index].tokens,
                    adapter: sequences[index].adapter,
                })
                .collect();
            let (packed, token_rows) = Packed::forest(&packed);
            let (mut rows, mut wanted) = (Vec::new(), Vec::<i64>::new());
            for (&index, token_rows) in batch.sequences.iter().zip(&token_rows) {
                let start = wanted.len() as i64;
                wanted.extend(token_rows[sequences[index].first..].iter().map(|row| *row as i64));
                rows.push(start..wanted.len() as i64);
            }
            let hidden = no_grad(|| {
                let hidden = hidden_states(self.config, self.weights, self.adapters, &packed)?;
                let wanted = Tensor::f_from_slice(&wanted)?.f_to_device(hidden.device())?;
                Ok::<_, pl_model::Error>(hidden.f_index_select(0, &wanted)?)
            })?;
            visit(&ScoredBatch { sequences: batch.sequences, rows, hidden })?;
        }
        Ok(())
    }

    /// Returns the log-probabilities of each transition's completion tokens, under the distributions that they
    /// were sampled from. Each transition has an adapter as in [`ScoredSequence`].
    ///
    /// # Errors
    /// Errors of libtorch, or if a rank is away.
    pub(crate) fn logprobs(
        &self,
        transitions: &[(&Transition, Option<usize>)],
    ) -> Result<Vec<Vec<f32>>, UpdateError> {
        let sequences: Vec<ScoredSequence> = transitions
            .iter()
            .map(|&(transition, adapter)| ScoredSequence::completion(transition, adapter))
            .collect();
        let mut logprobs = vec![Vec::new(); transitions.len()];
        self.run(&sequences, &mut |batch| {
            let mut columns = TokenColumns::default();
            for &index in &batch.sequences {
                columns.push_tokens(transitions[index].0);
            }
            let (ids, temperatures) = columns.token_tensors(batch.hidden.device())?;
            let input = HeadInput {
                hidden: &batch.hidden,
                tokens: &ids,
                temperatures: temperatures.as_ref(),
                support: columns.support.is_truncated().then_some(&columns.support),
            };
            let all = Vec::<f32>::try_from(head::logprobs(
                &input,
                0..ids.size()[0],
                self.weights.unembed(),
                head::CHUNK,
            )?)?;
            for (&index, rows) in batch.sequences.iter().zip(&batch.rows) {
                logprobs[index] = all[rows.start as usize..rows.end as usize].to_vec();
            }
            Ok(())
        })?;
        self.data_parallel.fill(&mut logprobs)?;
        Ok(logprobs)
    }
}

#[cfg(test)]
mod tests {
    use pl_model::TensorSet;

    use super::*;
    use crate::fixtures::{adapter, config, plain_logprobs, transition, weights};

    #[test]
    fn log_probabilities_equal_those_of_single_passes() {
        let config = config(true);
        let weights = weights(&config, 31);
        let adapters = [adapter(&config, 1), adapter(&config, 2)];
        let before = weights.copy();
        let transitions: Vec<Transition> = (0..9)
            .map(|i| {
                let mut t = transition(0, i / 3, 20, 6 + i as usize);
                t.temperature = [1.0, 0.7, 0.0][i as usize % 3];
                t.support = (i % 4 == 1).then(|| t.completion.iter().map(|&id| vec![id, 60]).collect());
                t
            })
            .collect();
        let which = |i: usize| [None, Some(0), Some(1)][i % 3];
        let jobs: Vec<_> = transitions.iter().enumerate().map(|(i, t)| (t, which(i))).collect();
        for token_budget in [1, 60, 1000] {
            let references: Vec<&Adapter> = adapters.iter().collect();
            let model = ScoringModel {
                config: &config,
                weights: &weights,
                adapters: &references,
                token_budget,
                data_parallel: &DataParallel::alone(1),
            };
            let got = model.logprobs(&jobs).unwrap();
            for (i, (logprobs, t)) in got.iter().zip(&transitions).enumerate() {
                let mut t = t.clone();
                // Greedy completions have log-probabilities of the plain softmax.
                t.temperature = if t.temperature == 0.0 { 1.0 } else { t.temperature };
                let adapter = which(i).map(|adapter| &adapters[adapter]);
                let expected = Vec::<f32>::try_from(plain_logprobs(&config, &weights, adapter, &t)).unwrap();
                assert_eq!(logprobs.len(), t.completion.len());
                assert!(logprobs.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{i}");
            }
        }
        assert!(crate::fixtures::same_bits(&weights.parameters(), &before.parameters()));
    }
}
