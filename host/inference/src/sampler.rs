//! Sampling of a token from a row of logits, on the CPU.

use std::sync::Arc;

use pl_grammar::TokenMask;
use pl_kernels::cpu::{Distribution, SimdLevel};
use pl_types::{Sampling, ValueHeadWeights};

use crate::logits::LogitProcessing;

/// A token to sample from a row of logits.
pub(crate) struct SampleRequest<'a> {
    /// Index of the row.
    pub(crate) row: usize,
    pub(crate) sampling: &'a Sampling,
    /// Tokens that the grammar allows. `None` without a grammar.
    pub(crate) mask: Option<&'a TokenMask>,
    /// Tokens of the prompt.
    pub(crate) prompt: &'a [u32],
    /// Tokens sampled so far.
    pub(crate) completion: &'a [u32],
    pub(crate) choice: TokenChoice,
    /// Number of likeliest tokens to report.
    pub(crate) top: usize,
    /// Value head of the policy, if it has one.
    pub(crate) value_head: Option<&'a Arc<ValueHeadWeights>>,
}

/// The rule that chooses a token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TokenChoice {
    /// The token at this quantile of the distribution, in [0, 1).
    Quantile(f64),
    /// The likeliest token.
    Greedy,
    /// This token; only its log-probability is needed.
    Given(u32),
}

/// A sampled token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SampledToken {
    pub(crate) token: u32,
    /// Log-probability under exactly the distribution that was sampled from (greedy: the one at temperature
    /// 1).
    pub(crate) logprob: f32,
    /// Sorted ids of the tokens that could be sampled. `None` if none was left out.
    pub(crate) support: Option<Vec<u32>>,
    /// The likeliest tokens with their log-probabilities.
    pub(crate) top: Vec<(u32, f32)>,
    /// Value of the state before the token. `None` without a value head.
    pub(crate) value: Option<f32>,
}

/// Memory of [`sample_token`], which grows to the length of the logits.
#[derive(Default)]
pub(crate) struct SampleBuffers {
    /// Logits after biases, penalties and the mask, if there are any.
    edited: Vec<f32>,
    /// Numbers in proportion to the probabilities.
    weights: Vec<f32>,
}

/// Samples from `logits`. Returns `None` if they are not a distribution, which means that the weights have diverged.
pub(crate) fn sample_token(
    level: SimdLevel,
    logits: &[f32],
    buffers: &mut SampleBuffers,
    request: &SampleRequest<'_>,
) -> Option<SampledToken> {
    let sampling = request.sampling;
    let SampleBuffers { edited, weights } = buffers;
    let logits = if sampling.edits_logits() || request.mask.is_some() {
        edited.clear();
        edited.extend_from_slice(logits);
        sampling.edit_logits(edited, request.prompt, request.completion);
        if let Some(mask) = request.mask {
            mask.apply(edited);
        }
        edited
    } else {
        logits
    };
    weights.resize(logits.len(), 0.0);
    let temperature = if sampling.temperature > 0.0 { sampling.temperature as f32 } else { 1.0 };
    let distribution = Distribution::new(level, logits, temperature, weights);
    if !(distribution.total.is_finite() && distribution.total > 0.0) {
        return None;
    }
    if sampling.truncates() && !matches!(request.choice, TokenChoice::Given(_)) {
        let support = sampling.truncated_support(weights, distribution.total);
        return sample_from_support(support, weights, request);
    }
    let token = match request.choice {
        TokenChoice::Quantile(quantile) => distribution.sample(weights, quantile)?,
        TokenChoice::Greedy => distribution.likeliest(logits)?,
        TokenChoice::Given(token) => token as usize,
    };
    let logprob = distribution.logprob(*logits.get(token)?);
    let top = top_tokens(0..weights.len() as u32, weights, request.top)
        .into_iter()
        .map(|id| (id, distribution.logprob(logits[id as usize])))
        .collect();
    // A sampled token has a positive probability; a given one may be excluded by its bias.
    let valid = logprob.is_finite() || matches!(request.choice, TokenChoice::Given(_));
    valid.then_some(SampledToken { token: token as u32, logprob, support: None, top, value: None })
}

/// Samples from the renormalised distribution over `support`.
fn sample_from_support(
    support: Vec<u32>,
    weights: &[f32],
    request: &SampleRequest<'_>,
) -> Option<SampledToken> {
    let total: f64 = support.iter().map(|id| f64::from(weights[*id as usize])).sum();
    let logprob = |id: u32| (f64::from(weights[id as usize]) / total).ln() as f32;
    let quantile = if let TokenChoice::Quantile(quantile) = request.choice { quantile } else { 0.0 };
    let mut sum = 0.0;
    let reached = support.iter().find(|id| {
        sum += f64::from(weights[**id as usize]);
        sum > quantile * total
    });
    let token = *reached.or(support.last())?;
    let top =
        top_tokens(support.iter().copied(), weights, request.top).into_iter().map(|id| (id, logprob(id)));
    let (logprob, top) = (logprob(token), top.collect());
    Some(SampledToken { token, logprob, top, support: Some(support), value: None })
}

/// The `count` likeliest of `tokens`, likeliest first; ties by lower id.
fn top_tokens(tokens: impl Iterator<Item = u32>, weights: &[f32], count: usize) -> Vec<u32> {
    if count == 0 {
        return Vec::new();
    }
    let order = |a: &u32, b: &u32| weights[*b as usize].total_cmp(&weights[*a as usize]).then(a.cmp(b));
    let mut tokens: Vec<u32> = tokens.collect();
    if count < tokens.len() {
        tokens.select_nth_unstable_by(count - 1, order);
        tokens.truncate(count);
    }
    tokens.sort_unstable_by(order);
    tokens
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::logits::uniform;

    fn sample(
        logits: &[f32],
        sampling: &Sampling,
        choice: TokenChoice,
        completion: &[u32],
    ) -> Option<SampledToken> {
        sample_with(&mut SampleBuffers::default(), logits, sampling, choice, completion)
    }

    fn sample_with(
        buffers: &mut SampleBuffers,
        logits: &[f32],
        sampling: &Sampling,
        choice: TokenChoice,
        completion: &[u32],
    ) -> Option<SampledToken> {
        let request = SampleRequest {
            row: 0,
            sampling,
            mask: None,
            prompt: &[],
            completion,
            choice,
            top: 2,
            value_head: None,
        };
        sample_token(SimdLevel::detect(), logits, buffers, &request)
    }

    #[test]
    fn frequencies_and_logprobs_follow_the_distribution() {
        let logits = [1.0f32, 0.0, 2.0, -1.0, 1.5];
        let plain = Sampling::with_temperature(0.7);
        let cases = [
            (plain.clone(), vec![0, 1, 2, 3, 4]),
            (Sampling { top_k: 2, ..plain.clone() }, vec![2, 4]),
            (Sampling { top_p: 0.7, ..plain.clone() }, vec![2, 4]),
            (Sampling { min_p: 0.2, ..plain.clone() }, vec![0, 2, 4]),
            (Sampling { top_k: 3, top_p: 0.99, min_p: 0.3, ..plain }, vec![2, 4]),
        ];
        for (sampling, support) in cases {
            let exp = |id: u32| (f64::from(logits[id as usize]) / sampling.temperature).exp();
            let total: f64 = support.iter().map(|id| exp(*id)).sum();
            let mut rng = ChaCha8Rng::from_seed([7; 32]);
            let mut counts = [0u32; 5];
            let samples = 20_000;
            for _ in 0..samples {
                let sampled =
                    sample(&logits, &sampling, TokenChoice::Quantile(uniform(&mut rng)), &[]).unwrap();
                counts[sampled.token as usize] += 1;
                assert!((f64::from(sampled.logprob) - (exp(sampled.token) / total).ln()).abs() < 1e-5);
                assert_eq!(sampled.support.unwrap_or(vec![0, 1, 2, 3, 4]), support);
                assert_eq!(sampled.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 4]);
                assert!((f64::from(sampled.top[0].1) - (exp(2) / total).ln()).abs() < 1e-5);
            }
            for (id, count) in counts.iter().enumerate() {
                let p = if support.contains(&(id as u32)) { exp(id as u32) / total } else { 0.0 };
                let sigma = (p * (1.0 - p) / f64::from(samples)).sqrt();
                assert!((f64::from(*count) / f64::from(samples) - p).abs() <= 5.0 * sigma, "{counts:?}");
            }
        }
    }

    #[test]
    fn greedy_takes_the_likeliest_and_reports_the_plain_softmax() {
        let sampled = sample(
            &[0.0, 3.0, 1.0],
            &Sampling { top_k: 1, ..Sampling::with_temperature(0.0) },
            TokenChoice::Greedy,
            &[],
        )
        .unwrap();
        let expected = 3f64 - (1.0 + 3f64.exp() + 1f64.exp()).ln();
        assert_eq!((sampled.token, sampled.support), (1, None));
        assert!((f64::from(sampled.logprob) - expected).abs() < 1e-6);
    }

    #[test]
    fn penalties_and_biases_change_logits_as_their_papers_say() {
        let mut logits = vec![2.0f32, -2.0, 1.0, 0.5];
        let sampling = Sampling {
            repetition_penalty: 2.0,
            presence_penalty: 0.25,
            frequency_penalty: 0.5,
            logit_bias: vec![(3, f32::NEG_INFINITY), (2, 1.0)].into(),
            ..Sampling::default()
        };
        // Token 0 is in the prompt; token 1 was sampled twice.
        sampling.edit_logits(&mut logits, &[0], &[1, 1]);
        assert_eq!(logits, [1.0, -4.0 - 0.25 - 1.0, 2.0, f32::NEG_INFINITY]);
        for quantile in [0.0, 0.3, 0.999_999_9] {
            let sampled = sample(&[0.0; 4], &sampling, TokenChoice::Quantile(quantile), &[]).unwrap();
            assert_ne!(sampled.token, 3);
        }
    }

    #[test]
    fn buffers_of_one_row_leave_nothing_for_the_next() {
        let biased = Sampling { logit_bias: vec![(0, 9.0)].into(), ..Sampling::with_temperature(0.0) };
        let plain = Sampling::with_temperature(0.0);
        let mut buffers = SampleBuffers::default();
        for (logits, sampling, token) in [
            (&[1.0, 2.0, 0.0][..], &biased, 0),
            (&[1.0, 2.0, 0.0], &plain, 1),
            (&[0.0, 1.0], &plain, 1),
            (&[0.0, 1.0, 2.0, 3.0], &biased, 0),
        ] {
            let sampled = sample_with(&mut buffers, logits, sampling, TokenChoice::Greedy, &[]);
            assert_eq!(sampled, sample(logits, sampling, TokenChoice::Greedy, &[]));
            assert_eq!(sampled.unwrap().token, token);
        }
    }

    #[test]
    fn a_given_token_is_scored_even_if_its_bias_excludes_it() {
        let sampling = Sampling { logit_bias: vec![(0, f32::NEG_INFINITY)].into(), ..Sampling::default() };
        let sampled = sample(&[1.0, 1.0, 1.0], &sampling, TokenChoice::Given(1), &[]).unwrap();
        assert!((f64::from(sampled.logprob) - 0.5f64.ln()).abs() < 1e-6);
        assert_eq!(
            sample(&[1.0, 1.0, 1.0], &sampling, TokenChoice::Given(0), &[]).unwrap().logprob,
            f32::NEG_INFINITY
        );
    }

    #[test]
    fn a_large_vocabulary_is_cut_where_its_sum_reaches_top_p() {
        let mut rng = ChaCha8Rng::from_seed([3; 32]);
        let logits: Vec<f32> = (0..20_000).map(|_| (3.0 * uniform(&mut rng)) as f32).collect();
        let mut weights: Vec<f32> = logits.iter().map(|z| z.exp()).collect();
        let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
        let support = Sampling { top_p: 0.9, ..Sampling::default() }.truncated_support(&weights, total);
        let sum: f64 = support.iter().map(|id| f64::from(weights[*id as usize])).sum();
        let smallest = support.iter().map(|id| weights[*id as usize]).fold(f32::INFINITY, f32::min);
        assert!(sum >= 0.9 * total && sum - f64::from(smallest) < 0.9 * total);
        support.iter().for_each(|id| weights[*id as usize] = 0.0);
        assert!(weights.iter().all(|w| *w <= smallest));
    }

    #[test]
    fn logits_that_are_not_a_distribution_give_no_token() {
        assert_eq!(sample(&[f32::NAN, 1.0], &Sampling::default(), TokenChoice::Quantile(0.5), &[]), None);
        assert_eq!(
            sample(&[f32::NAN, 1.0], &Sampling::with_temperature(0.0), TokenChoice::Greedy, &[]),
            None
        );
    }
}
