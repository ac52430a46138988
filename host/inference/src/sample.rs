//! From logits to tokens.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use tch::{Device, Kind, TchError, Tensor};

/// The distributions of some rows of logits.
pub(crate) struct Rows {
    vocab: usize,
    /// Natural logarithms, row after row.
    logprobs: Vec<f32>,
    probabilities: Vec<f32>,
    likeliest: Vec<i64>,
}

impl Rows {
    /// The softmax of `logits` (`[rows, V]`) divided by each row's temperature; temperature 0 leaves a row as
    /// it is.
    pub(crate) fn new(logits: &Tensor, temperatures: &[f64]) -> Result<Self, TchError> {
        let divisors: Vec<f32> =
            temperatures.iter().map(|t| if *t > 0.0 { *t as f32 } else { 1.0 }).collect();
        let rows = divisors.len() as i64;
        let divisors = Tensor::f_from_slice(&divisors)?.f_view([rows, 1])?.f_to_device(logits.device())?;
        let logprobs = logits.f_div(&divisors)?.f_log_softmax(-1, Kind::Float)?;
        let vocab = logits.size()[1] as usize;
        let flat = |tensor: &Tensor| -> Result<Vec<f32>, TchError> {
            let mut values = vec![0f32; temperatures.len() * vocab];
            let count = values.len();
            tensor.f_to_device(Device::Cpu)?.f_contiguous()?.f_copy_data(&mut values, count)?;
            Ok(values)
        };
        Ok(Self {
            vocab,
            probabilities: flat(&logprobs.f_exp()?)?,
            logprobs: flat(&logprobs)?,
            likeliest: logits.f_argmax(-1, false)?.f_to_device(Device::Cpu)?.try_into()?,
        })
    }

    /// Draws a token of a row, by inverting the distribution function at one uniform number (temperature 0: the
    /// likeliest one). Returns it with its log-probability; none when the row holds no distribution (the
    /// weights have diverged).
    pub(crate) fn draw(&self, row: usize, temperature: f64, stream: &mut ChaCha8Rng) -> Option<(u32, f32)> {
        let span = row * self.vocab..(row + 1) * self.vocab;
        let token = if temperature > 0.0 {
            invert(&self.probabilities[span.clone()], uniform(stream))?
        } else {
            usize::try_from(self.likeliest[row]).ok()?
        };
        let logprob = self.logprobs[span][token];
        logprob.is_finite().then_some((token as u32, logprob))
    }
}

/// A number in [0, 1) of 53 bits.
fn uniform(stream: &mut ChaCha8Rng) -> f64 {
    (stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// The first index at which the running sum passes `at` (in [0, 1)) of the whole sum.
fn invert(probabilities: &[f32], at: f64) -> Option<usize> {
    let total: f64 = probabilities.iter().map(|p| f64::from(*p)).sum();
    if !(total.is_finite() && total > 0.0) {
        return None;
    }
    let target = at * total;
    let mut sum = 0.0;
    for (i, p) in probabilities.iter().enumerate() {
        sum += f64::from(*p);
        if sum > target {
            return Some(i);
        }
    }
    // The target was rounded up to the whole sum.
    probabilities.iter().rposition(|p| *p > 0.0)
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn inversion_never_takes_an_impossible_token() {
        let p = [0.0, 0.25, 0.0, 0.75, 0.0];
        assert_eq!(invert(&p, 0.0), Some(1));
        assert_eq!(invert(&p, 0.2499), Some(1));
        assert_eq!(invert(&p, 0.25), Some(3));
        assert_eq!(invert(&p, 1.0 - f64::EPSILON / 2.0), Some(3));
        assert_eq!(invert(&p, 1.0), Some(3));
        assert_eq!(invert(&[f32::NAN, 1.0], 0.5), None);
        assert_eq!(invert(&[0.0, 0.0], 0.5), None);
    }

    #[test]
    fn frequencies_and_logprobs_follow_the_temperature() {
        let logits = Tensor::from_slice(&[1.0f32, 0.0, 2.0, -1.0]).view([1, 4]);
        let temperature = 0.7;
        let rows = Rows::new(&logits, &[temperature]).unwrap();
        let exp: Vec<f64> = [1.0, 0.0, 2.0, -1.0f64].iter().map(|x| (x / temperature).exp()).collect();
        let total: f64 = exp.iter().sum();
        let mut stream = ChaCha8Rng::from_seed([7; 32]);
        let mut counts = [0u32; 4];
        let draws = 40_000;
        for _ in 0..draws {
            let (token, logprob) = rows.draw(0, temperature, &mut stream).unwrap();
            counts[token as usize] += 1;
            assert!((f64::from(logprob) - (exp[token as usize] / total).ln()).abs() < 1e-5);
        }
        for (count, e) in counts.iter().zip(&exp) {
            let p = e / total;
            let sigma = (p * (1.0 - p) / f64::from(draws)).sqrt();
            assert!((f64::from(*count) / f64::from(draws) - p).abs() < 5.0 * sigma, "{counts:?}");
        }
    }

    #[test]
    fn greedy_takes_the_likeliest_and_reports_the_plain_softmax() {
        let logits = Tensor::from_slice(&[0.0f32, 3.0, 1.0, 9.0, 0.0, 0.0]).view([2, 3]);
        let rows = Rows::new(&logits, &[0.0, 0.0]).unwrap();
        let mut stream = ChaCha8Rng::from_seed([0; 32]);
        let (token, logprob) = rows.draw(0, 0.0, &mut stream).unwrap();
        let expected = 3f64 - (1.0 + 3f64.exp() + 1f64.exp()).ln();
        assert_eq!(token, 1);
        assert!((f64::from(logprob) - expected).abs() < 1e-6);
        assert_eq!(rows.draw(1, 0.0, &mut stream).unwrap().0, 0);
    }
}
