//! From a row of logits to a token, on the processor.

use pl_kernels::cpu::{Distribution, Level};

use crate::Sampling;

/// What to take from a row of logits.
pub(crate) struct Draw<'a> {
    /// Which row.
    pub(crate) row: usize,
    pub(crate) sampling: &'a Sampling,
    /// The sequence so far: what came in, and what was drawn.
    pub(crate) prompt: &'a [u32],
    pub(crate) completion: &'a [u32],
    pub(crate) pick: Pick,
    /// Likeliest tokens to be told beside.
    pub(crate) top: usize,
}

/// Which token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pick {
    /// The one at this share of the distribution, in [0, 1).
    At(f64),
    /// The likeliest.
    Likeliest,
    /// This one: its log-probability is wanted.
    Given(u32),
}

/// What was taken.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Drawn {
    pub(crate) token: u32,
    /// Under exactly the distribution drawn from; greedy, under the one of temperature 1.
    pub(crate) logprob: f32,
    /// Ids of the tokens that could be drawn, sorted, where some were left out.
    pub(crate) kept: Option<Vec<u32>>,
    /// The likeliest tokens, with their log-probabilities.
    pub(crate) top: Vec<(u32, f32)>,
}

/// Draws from `logits` (used up; `weights` is room for as many numbers). None when the logits are no
/// distribution: the weights have diverged.
pub(crate) fn draw(level: Level, logits: &mut [f32], weights: &mut [f32], draw: &Draw<'_>) -> Option<Drawn> {
    let sampling = draw.sampling;
    if sampling.edits() {
        sampling.edit(logits, draw.prompt, draw.completion);
    }
    let temperature = if sampling.temperature > 0.0 { sampling.temperature as f32 } else { 1.0 };
    let distribution = Distribution::new(level, logits, temperature, weights);
    if !(distribution.total.is_finite() && distribution.total > 0.0) {
        return None;
    }
    if sampling.truncates() && !matches!(draw.pick, Pick::Given(_)) {
        return among(sampling.keep(weights, distribution.total), weights, draw);
    }
    let token = match draw.pick {
        Pick::At(share) => distribution.draw(weights, share)?,
        Pick::Likeliest => logits.iter().position(|z| *z == distribution.largest)?,
        Pick::Given(token) => token as usize,
    };
    let logprob = distribution.logprob(*logits.get(token)?);
    let top = likeliest(0..weights.len() as u32, weights, draw.top)
        .into_iter()
        .map(|id| (id, distribution.logprob(logits[id as usize])))
        .collect();
    // A token that was drawn has a probability; one that was given may be barred.
    let sound = logprob.is_finite() || matches!(draw.pick, Pick::Given(_));
    sound.then_some(Drawn { token: token as u32, logprob, kept: None, top })
}

/// Draws from the tokens that were kept alone.
fn among(kept: Vec<u32>, weights: &[f32], draw: &Draw<'_>) -> Option<Drawn> {
    let total: f64 = kept.iter().map(|id| f64::from(weights[*id as usize])).sum();
    let logprob = |id: u32| (f64::from(weights[id as usize]) / total).ln() as f32;
    let share = if let Pick::At(share) = draw.pick { share } else { 0.0 };
    let mut sum = 0.0;
    let passed = kept.iter().find(|id| {
        sum += f64::from(weights[**id as usize]);
        sum > share * total
    });
    let token = *passed.or(kept.last())?;
    let top = likeliest(kept.iter().copied(), weights, draw.top).into_iter().map(|id| (id, logprob(id)));
    Some(Drawn { token, logprob: logprob(token), top: top.collect(), kept: Some(kept) })
}

/// The `count` likeliest of some tokens, likeliest first; of equals, the lower id.
fn likeliest(tokens: impl Iterator<Item = u32>, weights: &[f32], count: usize) -> Vec<u32> {
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
    use crate::sampling::uniform;

    fn one(logits: &[f32], sampling: &Sampling, pick: Pick, completion: &[u32]) -> Option<Drawn> {
        let mut logits = logits.to_vec();
        let mut weights = vec![0.0; logits.len()];
        let wanted = Draw { row: 0, sampling, prompt: &[], completion, pick, top: 2 };
        draw(Level::detect(), &mut logits, &mut weights, &wanted)
    }

    #[test]
    fn frequencies_and_logprobs_follow_the_distribution() {
        let logits = [1.0f32, 0.0, 2.0, -1.0, 1.5];
        let plain = Sampling::at(0.7);
        let cases = [
            (plain.clone(), vec![0, 1, 2, 3, 4]),
            (Sampling { top_k: 2, ..plain.clone() }, vec![2, 4]),
            (Sampling { top_p: 0.7, ..plain.clone() }, vec![2, 4]),
            (Sampling { min_p: 0.2, ..plain.clone() }, vec![0, 2, 4]),
            (Sampling { top_k: 3, top_p: 0.99, min_p: 0.3, ..plain }, vec![2, 4]),
        ];
        for (sampling, kept) in cases {
            let exp = |id: u32| (f64::from(logits[id as usize]) / sampling.temperature).exp();
            let total: f64 = kept.iter().map(|id| exp(*id)).sum();
            let mut stream = ChaCha8Rng::from_seed([7; 32]);
            let mut counts = [0u32; 5];
            let draws = 20_000;
            for _ in 0..draws {
                let drawn = one(&logits, &sampling, Pick::At(uniform(&mut stream)), &[]).unwrap();
                counts[drawn.token as usize] += 1;
                assert!((f64::from(drawn.logprob) - (exp(drawn.token) / total).ln()).abs() < 1e-5);
                assert_eq!(drawn.kept.unwrap_or(vec![0, 1, 2, 3, 4]), kept);
                assert_eq!(drawn.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 4]);
                assert!((f64::from(drawn.top[0].1) - (exp(2) / total).ln()).abs() < 1e-5);
            }
            for (id, count) in counts.iter().enumerate() {
                let p = if kept.contains(&(id as u32)) { exp(id as u32) / total } else { 0.0 };
                let sigma = (p * (1.0 - p) / f64::from(draws)).sqrt();
                assert!((f64::from(*count) / f64::from(draws) - p).abs() <= 5.0 * sigma, "{counts:?}");
            }
        }
    }

    #[test]
    fn greedy_takes_the_likeliest_and_tells_the_plain_softmax() {
        let drawn =
            one(&[0.0, 3.0, 1.0], &Sampling { top_k: 1, ..Sampling::at(0.0) }, Pick::Likeliest, &[]).unwrap();
        let expected = 3f64 - (1.0 + 3f64.exp() + 1f64.exp()).ln();
        assert_eq!((drawn.token, drawn.kept), (1, None));
        assert!((f64::from(drawn.logprob) - expected).abs() < 1e-6);
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
        // Token 0 in the prompt; 1 drawn twice.
        sampling.edit(&mut logits, &[0], &[1, 1]);
        assert_eq!(logits, [1.0, -4.0 - 0.25 - 1.0, 2.0, f32::NEG_INFINITY]);
        for share in [0.0, 0.3, 0.999_999_9] {
            let drawn = one(&[0.0; 4], &sampling, Pick::At(share), &[]).unwrap();
            assert_ne!(drawn.token, 3);
        }
    }

    #[test]
    fn a_given_token_is_measured_even_where_it_is_barred() {
        let sampling = Sampling { logit_bias: vec![(0, f32::NEG_INFINITY)].into(), ..Sampling::default() };
        let drawn = one(&[1.0, 1.0, 1.0], &sampling, Pick::Given(1), &[]).unwrap();
        assert!((f64::from(drawn.logprob) - 0.5f64.ln()).abs() < 1e-6);
        assert_eq!(one(&[1.0, 1.0, 1.0], &sampling, Pick::Given(0), &[]).unwrap().logprob, f32::NEG_INFINITY);
    }

    #[test]
    fn a_large_vocabulary_is_cut_where_its_sum_says() {
        let mut stream = ChaCha8Rng::from_seed([3; 32]);
        let logits: Vec<f32> = (0..20_000).map(|_| (3.0 * uniform(&mut stream)) as f32).collect();
        let mut weights: Vec<f32> = logits.iter().map(|z| z.exp()).collect();
        let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
        let kept = Sampling { top_p: 0.9, ..Sampling::default() }.keep(&weights, total);
        let sum: f64 = kept.iter().map(|id| f64::from(weights[*id as usize])).sum();
        let least = kept.iter().map(|id| weights[*id as usize]).fold(f32::INFINITY, f32::min);
        assert!(sum >= 0.9 * total && sum - f64::from(least) < 0.9 * total);
        kept.iter().for_each(|id| weights[*id as usize] = 0.0);
        assert!(weights.iter().all(|w| *w <= least));
    }

    #[test]
    fn no_distribution_no_token() {
        assert_eq!(one(&[f32::NAN, 1.0], &Sampling::default(), Pick::At(0.5), &[]), None);
        assert_eq!(one(&[f32::NAN, 1.0], &Sampling::at(0.0), Pick::Likeliest, &[]), None);
    }
}
