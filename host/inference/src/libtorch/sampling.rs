//! Sampling from the logits of a step: on their device where only ids and log-probabilities are needed, else on the CPU.

use pl_kernels::cpu::SimdLevel;
use tch::{Device, Kind, TchError, Tensor};

use super::StepTensors;
use crate::logits::LogitProcessing;
use crate::sampler::{SampleRequest, SampledToken, TokenChoice, sample_token};

/// Samples the tokens of requests. An element is `None` if its logits are not a distribution.
pub(super) fn sample(
    step: &StepTensors,
    requests: &[SampleRequest<'_>],
) -> Result<Vec<Option<SampledToken>>, TchError> {
    let plain = |request: &SampleRequest<'_>| {
        !request.sampling.edits_logits()
            && !request.sampling.truncates()
            && request.mask.is_none()
            && request.top == 0
    };
    let sampled = if requests.iter().all(plain) {
        sample_on_device(&step.logits, requests)
    } else {
        sample_on_cpu(&step.logits, requests)
    }?;
    with_values(sampled, requests, &step.hidden)
}

/// Samples on the device of the logits; copies only ids and log-probabilities back.
fn sample_on_device(
    logits: &Tensor,
    requests: &[SampleRequest<'_>],
) -> Result<Vec<Option<SampledToken>>, TchError> {
    let device = logits.device();
    let rows: Vec<i64> = requests.iter().map(|request| request.row as i64).collect();
    let column = |value: &dyn Fn(&SampleRequest<'_>) -> f64| {
        let values: Vec<f64> = requests.iter().map(value).collect();
        Tensor::f_from_slice(&values)?.f_view([-1, 1])?.f_to_device(device)
    };
    let temperature = column(&|request| {
        if request.sampling.temperature > 0.0 { request.sampling.temperature } else { 1.0 }
    })?;
    let quantile =
        column(&|request| if let TokenChoice::Quantile(quantile) = request.choice { quantile } else { 0.0 })?;
    // Negative values stand for tokens that are chosen here.
    let given = column(&|request| match request.choice {
        TokenChoice::Quantile(_) => -1.0,
        TokenChoice::Greedy => -2.0,
        TokenChoice::Given(token) => f64::from(token),
    })?
    .f_to_kind(Kind::Int64)?;
    let logprobs = logits
        .f_index_select(0, &Tensor::f_from_slice(&rows)?.f_to_device(device)?)?
        .f_div(&temperature.f_to_kind(Kind::Float)?)?
        .f_log_softmax(-1, Kind::Float)?;
    let vocab = logprobs.size()[1];
    let sums = logprobs.f_exp()?.f_cumsum(-1, Kind::Double)?;
    let target = quantile.f_mul(&sums.f_narrow(1, vocab - 1, 1)?)?;
    let at = target.f_searchsorted(&sums, false, true, "right", None::<&Tensor>)?.f_clamp_max(vocab - 1)?;
    let likeliest = logprobs.f_argmax(-1, true)?;
    let ids = at.f_where_self(&given.f_eq(-1)?, &likeliest.f_where_self(&given.f_eq(-2)?, &given)?)?;
    let found = logprobs.f_gather(1, &ids, false)?.f_to_kind(Kind::Double)?;
    let both: Vec<f64> = Tensor::f_cat(&[ids.f_to_kind(Kind::Double)?, found], 1)?
        .f_view(-1)?
        .f_to_device(Device::Cpu)?
        .try_into()?;
    Ok(both
        .chunks_exact(2)
        .zip(requests)
        .map(|(pair, request)| {
            let valid =
                pair[1].is_finite() || (matches!(request.choice, TokenChoice::Given(_)) && !pair[1].is_nan());
            valid.then(|| SampledToken {
                token: pair[0] as u32,
                logprob: pair[1] as f32,
                support: None,
                top: Vec::new(),
                value: None,
            })
        })
        .collect())
}

/// Adds the values of the states that tokens were sampled in. Copies these states to the CPU, if a request has a value
/// head.
fn with_values(
    sampled: Vec<Option<SampledToken>>,
    requests: &[SampleRequest<'_>],
    hidden: &Tensor,
) -> Result<Vec<Option<SampledToken>>, TchError> {
    if requests.iter().all(|request| request.value_head.is_none()) {
        return Ok(sampled);
    }
    let width = hidden.size()[1] as usize;
    let mut states = vec![0f32; hidden.numel()];
    let count = states.len();
    let on_cpu = hidden.f_to_device(Device::Cpu)?.f_to_kind(Kind::Float)?.f_contiguous()?;
    on_cpu.f_copy_data(&mut states, count)?;
    let value = |request: &SampleRequest<'_>| {
        request.value_head.map(|head| head.value(&states[request.row * width..][..width]))
    };
    let tokens = sampled.into_iter().zip(requests);
    Ok(tokens.map(|(token, own)| token.map(|token| SampledToken { value: value(own), ..token })).collect())
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
    let (mut own, mut weights) = (Vec::new(), vec![0f32; vocab]);
    Ok(requests
        .iter()
        .map(|request| {
            own.clear();
            own.extend_from_slice(&values[request.row * vocab..][..vocab]);
            sample_token(SimdLevel::detect(), &mut own, &mut weights, request)
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
        let device = sample_on_device(&logits, &requests).unwrap();
        let on_cpu = sample_on_cpu(&logits, &requests).unwrap();
        for (device, cpu) in device.into_iter().zip(on_cpu) {
            let (device, cpu) = (device.unwrap(), cpu.unwrap());
            assert_eq!(device.token, cpu.token);
            assert!((device.logprob - cpu.logprob).abs() < 1e-5, "{device:?} {cpu:?}");
        }
    }
}
