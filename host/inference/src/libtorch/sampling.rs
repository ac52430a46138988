//! Sampling from the logits of a step: on their device where only ids and log-probabilities are needed, else on the CPU.

use std::sync::Arc;

use pl_kernels::cpu::SimdLevel;
use pl_kernels::cuda;
use pl_kernels::cuda::sampling::{LIKELIEST, TokenSampler, given};
use pl_kernels::cuda::{Download, upload};
use pl_types::ValueHeadWeights;
use tch::{Device, Kind, TchError, Tensor};

use super::StepTensors;
use crate::logits::LogitProcessing;
use crate::sampler::{SampleBuffers, SampleRequest, SampledToken, TokenChoice, sample_token};

/// Tokens of a step.
pub(crate) enum StepTokens {
    /// On the device, and on their way from there.
    Sampled {
        /// Tokens `[N]`, i32.
        tokens: Tensor,
        /// Result of [`sample_tokens`].
        download: Download,
        /// True for tokens that were given.
        given: Vec<bool>,
        values: Option<StepValues>,
    },
    /// Already read on the host. An element is `None` if its logits are not a distribution.
    Read(Vec<Option<SampledToken>>),
}

/// Values of a step's states, by the requests' value heads.
pub(crate) struct StepValues {
    /// The states `[rows, hidden]`, on their way to the CPU.
    states: Download,
    /// Row and value head of each request that has one.
    heads: Vec<Option<(usize, Arc<ValueHeadWeights>)>>,
}

impl StepValues {
    /// Starts to copy the states. Returns `None` if no request has a value head.
    fn start(hidden: &Tensor, requests: &[SampleRequest<'_>]) -> Result<Option<Self>, TchError> {
        let head = |request: &SampleRequest<'_>| Some((request.row, Arc::clone(request.value_head?)));
        let heads: Vec<_> = requests.iter().map(head).collect();
        if heads.iter().all(Option::is_none) {
            return Ok(None);
        }
        Ok(Some(Self { states: Download::start(hidden)?, heads }))
    }

    /// Waits for the states, and returns the value of each request.
    fn read(self) -> Result<Vec<Option<f32>>, TchError> {
        let states = self.states.wait()?;
        let width = states.size()[1] as usize;
        let mut numbers = vec![0f32; states.numel()];
        let count = numbers.len();
        states.f_to_kind(Kind::Float)?.f_contiguous()?.f_copy_data(&mut numbers, count)?;
        let value =
            |(row, head): (usize, Arc<ValueHeadWeights>)| head.value(&numbers[row * width..][..width]);
        Ok(self.heads.into_iter().map(|own| own.map(value)).collect())
    }
}

/// Samples the tokens of requests.
pub(super) fn sample(step: &StepTensors, requests: &[SampleRequest<'_>]) -> Result<StepTokens, TchError> {
    let plain = |request: &SampleRequest<'_>| {
        !request.sampling.edits_logits()
            && !request.sampling.truncates()
            && request.mask.is_none()
            && request.top == 0
    };
    let values = StepValues::start(&step.hidden, requests)?;
    if requests.iter().all(plain) {
        return sample_on_device(&step.logits, requests, values);
    }
    Ok(StepTokens::Read(with_values(sample_on_cpu(&step.logits, requests)?, values)?))
}

/// Waits for tokens. An element is `None` if its logits are not a distribution.
pub(super) fn read(tokens: StepTokens) -> Result<Vec<Option<SampledToken>>, TchError> {
    let (download, given, values) = match tokens {
        StepTokens::Sampled { download, given, values, .. } => (download, given, values),
        StepTokens::Read(tokens) => return Ok(tokens),
    };
    let all: Vec<i32> = download.wait()?.f_view(-1)?.try_into()?;
    let (tokens, bits) = all.split_at(given.len());
    let logprobs = bits.iter().map(|bits| f32::from_bits(bits.cast_unsigned()));
    let sampled = tokens.iter().zip(logprobs).zip(given).map(|((token, logprob), given)| {
        let valid = logprob.is_finite() || (given && !logprob.is_nan());
        let token = token.cast_unsigned();
        valid.then(|| SampledToken { token, logprob, support: None, top: Vec::new(), value: None })
    });
    with_values(sampled.collect(), values)
}

/// Samples on the device of the logits. Only ids and log-probabilities are copied back, and nothing is waited for.
fn sample_on_device(
    logits: &Tensor,
    requests: &[SampleRequest<'_>],
    values: Option<StepValues>,
) -> Result<StepTokens, TchError> {
    let sampled = sample_tokens(logits, &choices(requests, logits.device())?)?;
    let given = requests.iter().map(|request| matches!(request.choice, TokenChoice::Given(_))).collect();
    let (tokens, download) = (sampled.f_select(0, 0)?, Download::start(&sampled)?);
    Ok(StepTokens::Sampled { tokens, download, given, values })
}

/// Builds the choices of [`TokenSampler::sample`], `[3, N]` in f64 on a device, with one copy, which isn't waited for.
fn choices(requests: &[SampleRequest<'_>], device: Device) -> Result<Tensor, TchError> {
    let rows = requests.iter().map(|request| request.row as f64);
    let temperatures = requests.iter().map(|request| match request.sampling.temperature {
        temperature if temperature > 0.0 => temperature,
        _ => 1.0,
    });
    let tokens = requests.iter().map(|request| match request.choice {
        TokenChoice::Quantile(quantile) => quantile,
        TokenChoice::Greedy => LIKELIEST,
        TokenChoice::Given(token) => given(token),
    });
    let values: Vec<f64> = rows.chain(temperatures).chain(tokens).collect();
    let choices = Tensor::f_from_slice(&values)?.f_view([3, requests.len() as i64])?;
    upload(&choices, device)
}

/// Samples tokens from logits `[R, V]` by [`choices`] `[3, N]`, on their device. Returns `[2, N]` in i32: the tokens, then the bits
/// of their log-probabilities in f32.
///
/// # Errors
/// If libtorch or the kernels fail.
fn sample_tokens(logits: &Tensor, choices: &Tensor) -> Result<Tensor, TchError> {
    match cuda::opened(logits.device()).filter(|_| logits.kind() == Kind::Float) {
        Some(kernels) => Ok(TokenSampler::new(kernels).sample(&logits.f_contiguous()?, choices)?),
        None => sample_with_libtorch(logits, choices),
    }
}

/// As [`sample_tokens`], on devices without open kernels.
fn sample_with_libtorch(logits: &Tensor, choices: &Tensor) -> Result<Tensor, TchError> {
    let column = |index: i64| choices.f_select(0, index)?.f_unsqueeze(1);
    let choice = column(2)?;
    // Negative values stand for tokens that are chosen here.
    let given = choice.f_neg()?.f_sub_scalar(2.0)?.f_to_kind(Kind::Int64)?;
    let logprobs = logits
        .f_index_select(0, &choices.f_select(0, 0)?.f_to_kind(Kind::Int64)?)?
        .f_div(&column(1)?.f_to_kind(Kind::Float)?)?
        .f_log_softmax(-1, Kind::Float)?;
    let vocab = logprobs.size()[1];
    let sums = logprobs.f_exp()?.f_cumsum(-1, Kind::Double)?;
    let total = sums.f_narrow(1, vocab - 1, 1)?;
    // Below the total also after rounding, so that the token has a positive probability.
    let below = total.f_nextafter(&total.f_zeros_like()?)?;
    let target = choice.f_clamp_min(0.0)?.f_mul(&total)?.f_minimum(&below)?;
    let at = target.f_searchsorted(&sums, false, true, "right", None::<&Tensor>)?.f_clamp_max(vocab - 1)?;
    let likeliest = logprobs.f_argmax(-1, true)?;
    let is_given = choice.f_le(-2.0)?;
    let sampled = likeliest.f_where_self(&choice.f_eq(LIKELIEST)?, &at)?;
    let ids = given.f_where_self(&is_given, &sampled)?;
    let bits = logprobs.f_gather(1, &ids, false)?.f_view_dtype(Kind::Int)?;
    Tensor::f_cat(&[ids.f_to_kind(Kind::Int)?, bits], 1)?.f_tr()?.f_contiguous()
}

/// Waits for values and adds them to their tokens.
fn with_values(
    sampled: Vec<Option<SampledToken>>,
    values: Option<StepValues>,
) -> Result<Vec<Option<SampledToken>>, TchError> {
    let Some(values) = values else { return Ok(sampled) };
    let tokens = sampled.into_iter().zip(values.read()?);
    Ok(tokens.map(|(token, value)| token.map(|token| SampledToken { value, ..token })).collect())
}

/// Copies the logits to the CPU and samples there.
fn sample_on_cpu(
    logits: &Tensor,
    requests: &[SampleRequest<'_>],
) -> Result<Vec<Option<SampledToken>>, TchError> {
    let vocab = logits.size()[1] as usize;
    let mut values = vec![0f32; logits.numel()];
    let count = values.len();
    logits.f_to_device(Device::Cpu)?.f_contiguous()?.f_copy_data(&mut values, count)?;
    let mut buffers = SampleBuffers::default();
    Ok(requests
        .iter()
        .map(|request| {
            let logits = &values[request.row * vocab..][..vocab];
            sample_token(SimdLevel::detect(), logits, &mut buffers, request)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pl_types::Sampling;

    #[test]
    fn tokens_sampled_on_the_device_equal_those_of_the_cpu() {
        tch::manual_seed(5);
        let logits = Tensor::randn([3, 1000], (Kind::Float, Device::Cpu)) * 3.0;
        let sampling = [
            Sampling::with_temperature(1.0),
            Sampling::with_temperature(0.6),
            Sampling::with_temperature(0.0),
        ];
        let choices = [
            TokenChoice::Quantile(0.0),
            TokenChoice::Quantile(0.37),
            TokenChoice::Quantile(0.999),
            TokenChoice::Given(17),
            TokenChoice::Greedy,
        ];
        let mut requests = Vec::new();
        for row in 0..3 {
            for choice in choices {
                let sampling = &sampling[if choice == TokenChoice::Greedy { 2 } else { row % 2 }];
                requests.push(SampleRequest {
                    row,
                    sampling,
                    mask: None,
                    prompt: &[],
                    completion: &[],
                    choice,
                    top: 0,
                    value_head: None,
                });
            }
        }
        let device = read(sample_on_device(&logits, &requests, None).unwrap()).unwrap();
        let on_cpu = sample_on_cpu(&logits, &requests).unwrap();
        for (device, cpu) in device.into_iter().zip(on_cpu) {
            let (device, cpu) = (device.unwrap(), cpu.unwrap());
            assert_eq!(device.token, cpu.token);
            assert!((device.logprob - cpu.logprob).abs() < 1e-5, "{device:?} {cpu:?}");
        }
    }
}
