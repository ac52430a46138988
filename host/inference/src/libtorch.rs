//! Models on libtorch: any device that it has, CUDA above all.
//!
//! The transformer is [`pl_model::transform`], the same that training differentiates. Keys and values stay in
//! blocks on the device; tokens are drawn there too, and only their ids and log-probabilities come back, unless a
//! draw wants what needs the whole row (truncation, penalties, the likeliest tokens).

use std::ops::Range;

use pl_kernels::cpu::{BLOCK, Level};
use pl_model::{Adapter, Config, Deltas, Projection, Rope, Weights, transform};
use tch::{Device, IndexOp, Kind, TchError, Tensor};

use crate::Base;
use crate::draw::{Draw, Drawn, Pick, draw};
use crate::executor::{Batch, Executor};

/// libtorch on one device.
pub(crate) struct Libtorch {
    device: Device,
}

impl Libtorch {
    pub(crate) fn new(device: Device) -> Self {
        Self { device }
    }
}

pub(crate) struct Loaded {
    config: Config,
    weights: Weights,
    rope: Rope,
}

/// Per layer `[blocks x BLOCK, 2, kv_heads, D]`: a token's key, then its value.
pub(crate) struct Cache {
    layers: Vec<Tensor>,
}

impl Executor for Libtorch {
    type Weights = Loaded;
    type Adapter = Adapter;
    type Cache = Cache;
    /// `[rows, V]`, f32.
    type Logits = Tensor;

    fn weights(&self, base: &Base, share: bool) -> Result<Loaded, String> {
        let config = base.config.clone();
        let rope = Rope::new(&config, config.max_positions, self.device);
        let weights = base.weights.to_device(self.device);
        Ok(Loaded { weights: if share { weights } else { weights.copy() }, config, rope })
    }

    fn adapter(&self, _: &Config, adapter: &Adapter) -> Result<Adapter, String> {
        Ok(adapter.copy().to_device(self.device))
    }

    fn block_bytes(&self, base: &Base) -> usize {
        let config = &base.config;
        let token = 2 * config.layers * (config.kv_heads * config.head_dim) as usize;
        token * BLOCK * base.weights.embed.kind().elt_size_in_bytes()
    }

    fn cache(&self, base: &Base, blocks: usize) -> Result<Cache, String> {
        let config = &base.config;
        let size = [(blocks * BLOCK) as i64, 2, config.kv_heads, config.head_dim];
        let kind = base.weights.embed.kind();
        let layers = (0..config.layers)
            .map(|_| Tensor::f_zeros(size, (kind, self.device)))
            .collect::<Result<_, _>>()
            .map_err(|e| format!("keys and values of {blocks} blocks: {e}"))?;
        Ok(Cache { layers })
    }

    fn copy(&self, cache: &mut Cache, from: u32, to: u32) -> Result<(), String> {
        let block =
            |layer: &Tensor, block: u32| layer.f_narrow(0, i64::from(block) * BLOCK as i64, BLOCK as i64);
        cache
            .layers
            .iter()
            .try_for_each(|layer| block(layer, to)?.f_copy_(&block(layer, from)?))
            .map_err(|e| e.to_string())
    }

    fn step(&self, loaded: &Loaded, cache: &mut Cache, batch: &Batch<'_, Adapter>) -> Result<Tensor, String> {
        let step = Step::new(loaded, batch, self.device).map_err(|e| e.to_string())?;
        step.run(cache).map_err(|e| e.to_string())
    }

    fn draw(&self, logits: Tensor, draws: &[Draw<'_>]) -> Result<Vec<Option<Drawn>>, String> {
        let plain = |draw: &Draw<'_>| !draw.sampling.edits() && !draw.sampling.truncates() && draw.top == 0;
        let drawn =
            if draws.iter().all(plain) { draw_on_device(&logits, draws) } else { draw_here(&logits, draws) };
        drawn.map_err(|e| e.to_string())
    }
}

/// A batch's tensors.
struct Step<'a> {
    loaded: &'a Loaded,
    device: Device,
    tokens: Tensor,
    positions: Tensor,
    /// Where each row's key and value go.
    slots: Tensor,
    deltas: Runs<'a>,
    /// Segments of one row, which attend together.
    single: Option<Single>,
    /// All others.
    longer: Vec<Longer>,
    wanted: Tensor,
}

/// Rows with one query each.
struct Single {
    /// `[n]`
    rows: Tensor,
    /// `[n, longest]`: slots of what each sees, zero past its end.
    seen: Tensor,
    /// `[n, 1, 1, longest]`: zero, minus infinity past the end.
    mask: Tensor,
}

/// Rows of one sequence.
struct Longer {
    rows: Range<i64>,
    /// Slots of all its tokens so far.
    seen: Tensor,
    /// `[rows, seen]`: what each row sees.
    mask: Tensor,
}

impl<'a> Step<'a> {
    fn new(loaded: &'a Loaded, batch: &Batch<'a, Adapter>, device: Device) -> Result<Self, TchError> {
        let place = |values: &[i64]| Tensor::f_from_slice(values)?.f_to_device(device);
        let kind = loaded.weights.embed.kind();
        let (mut tokens, mut positions, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        let mut single: Vec<(i64, Vec<i64>)> = Vec::new();
        let mut longer = Vec::new();
        for segment in &batch.segments {
            let first = tokens.len() as i64;
            let count = segment.tokens.len();
            let end = segment.position + count;
            let seen: Vec<i64> = (0..end)
                .map(|p| i64::from(segment.blocks[p / BLOCK]) * BLOCK as i64 + (p % BLOCK) as i64)
                .collect();
            tokens.extend(segment.tokens.iter().map(|id| i64::from(*id)));
            positions.extend(segment.position as i64..end as i64);
            slots.extend_from_slice(&seen[segment.position..]);
            if count == 1 {
                single.push((first, seen));
            } else {
                let mask = Tensor::f_ones([count as i64, end as i64], (Kind::Bool, device))?
                    .f_tril(segment.position as i64)?;
                longer.push(Longer { rows: first..first + count as i64, seen: place(&seen)?, mask });
            }
        }
        let single = if single.is_empty() { None } else { Some(Single::new(&single, kind, device)?) };
        let wanted: Vec<i64> = batch.wanted().into_iter().map(|row| row as i64).collect();
        Ok(Self {
            loaded,
            device,
            tokens: place(&tokens)?,
            positions: place(&positions)?,
            slots: place(&slots)?,
            deltas: Runs(batch.runs()),
            single,
            longer,
            wanted: place(&wanted)?,
        })
    }

    /// Logits of the rows wanted.
    fn run(&self, cache: &mut Cache) -> Result<Tensor, TchError> {
        let Loaded { config, weights, rope } = self.loaded;
        let rope = rope.at(&self.positions);
        let mut failed = None;
        let hidden = transform(config, weights, &self.tokens, &rope, &self.deltas, &mut |layer, q, k, v| {
            self.attend(&mut cache.layers[layer], config, &q, &k, &v).unwrap_or_else(|error| {
                failed = Some(error);
                q.reshape([-1, config.q_width()])
            })
        });
        if let Some(error) = failed {
            return Err(error);
        }
        hidden
            .f_index_select(0, &self.wanted)?
            .f_linear(weights.unembed(), None::<&Tensor>)?
            .f_to_kind(Kind::Float)
    }

    fn attend(
        &self,
        kept: &mut Tensor,
        config: &Config,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
    ) -> Result<Tensor, TchError> {
        let _ = kept.f_index_copy_(0, &self.slots, &Tensor::f_stack(&[k, v], 1)?)?;
        let out = Tensor::f_empty([self.tokens.size()[0], config.q_width()], (q.kind(), self.device))?;
        let group = config.heads / config.kv_heads;
        if let Some(single) = &self.single {
            let count = single.rows.size()[0];
            // [n, longest, 2, kv_heads, D] to [2, n, kv_heads, longest, D]
            let seen = kept
                .f_index_select(0, &single.seen.f_view(-1)?)?
                .f_view([count, -1, 2, config.kv_heads, config.head_dim])?
                .f_permute([2, 0, 3, 1, 4])?;
            // The query heads that share a key head are that head's queries.
            let q = q.f_index_select(0, &single.rows)?.f_view([
                count,
                config.kv_heads,
                group,
                config.head_dim,
            ])?;
            let mixed = attention(&q, &seen.i(0), &seen.i(1), &single.mask)?;
            let _ = out.shallow_clone().f_index_copy_(0, &single.rows, &mixed.f_reshape([count, -1])?)?;
        }
        for longer in &self.longer {
            let (first, count) = (longer.rows.start, longer.rows.end - longer.rows.start);
            let seen = kept.f_index_select(0, &longer.seen)?.f_permute([1, 2, 0, 3])?;
            let length = longer.seen.size()[0];
            let expand = |x: Tensor| {
                x.f_unsqueeze(1)?
                    .f_expand([config.kv_heads, group, length, config.head_dim], false)?
                    .f_reshape([1, config.heads, length, config.head_dim])
            };
            let q = q.f_narrow(0, first, count)?.f_transpose(0, 1)?.f_unsqueeze(0)?;
            let mixed = attention(&q, &expand(seen.i(0))?, &expand(seen.i(1))?, &longer.mask)?;
            let mixed = mixed.f_squeeze_dim(0)?.f_transpose(0, 1)?.f_reshape([count, -1])?;
            out.f_narrow(0, first, count)?.f_copy_(&mixed)?;
        }
        Ok(out)
    }
}

impl Single {
    fn new(rows: &[(i64, Vec<i64>)], kind: Kind, device: Device) -> Result<Self, TchError> {
        let longest = rows.iter().map(|(_, seen)| seen.len()).max().unwrap_or(0);
        let mut all = vec![0i64; rows.len() * longest];
        let mut mask = vec![f32::NEG_INFINITY; all.len()];
        for (i, (_, seen)) in rows.iter().enumerate() {
            all[i * longest..][..seen.len()].copy_from_slice(seen);
            mask[i * longest..][..seen.len()].fill(0.0);
        }
        let (count, longest) = (rows.len() as i64, longest as i64);
        let rows: Vec<i64> = rows.iter().map(|(row, _)| *row).collect();
        Ok(Self {
            rows: Tensor::f_from_slice(&rows)?.f_to_device(device)?,
            seen: Tensor::f_from_slice(&all)?.f_view([count, longest])?.f_to_device(device)?,
            mask: Tensor::f_from_slice(&mask)?
                .f_view([count, 1, 1, longest])?
                .f_to_device(device)?
                .f_to_kind(kind)?,
        })
    }
}

fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: &Tensor) -> Result<Tensor, TchError> {
    Tensor::f_scaled_dot_product_attention(q, k, v, Some(mask), 0.0, false, None, false)
}

/// Adapters by runs of rows.
struct Runs<'a>(Vec<(Range<usize>, &'a Adapter)>);

impl Deltas for Runs<'_> {
    fn add(&self, layer: usize, projection: Projection, x: &Tensor, y: Tensor) -> Tensor {
        for (rows, adapter) in &self.0 {
            let Some(part) = adapter.part(layer, projection) else { continue };
            let (start, count) = (rows.start as i64, rows.len() as i64);
            let factor = |tensor: &Tensor| tensor.to_kind(x.kind()).tr();
            let inner = x.narrow(0, start, count).matmul(&factor(&part.a)) * adapter.scale();
            let _ = y.narrow(0, start, count).addmm_(&inner, &factor(&part.b));
        }
        y
    }
}

/// Draws where the logits are; ids and log-probabilities come back.
fn draw_on_device(logits: &Tensor, draws: &[Draw<'_>]) -> Result<Vec<Option<Drawn>>, TchError> {
    let device = logits.device();
    let rows: Vec<i64> = draws.iter().map(|draw| draw.row as i64).collect();
    let column = |value: &dyn Fn(&Draw<'_>) -> f64| {
        let values: Vec<f64> = draws.iter().map(value).collect();
        Tensor::f_from_slice(&values)?.f_view([-1, 1])?.f_to_device(device)
    };
    let temperature =
        column(&|draw| if draw.sampling.temperature > 0.0 { draw.sampling.temperature } else { 1.0 })?;
    let share = column(&|draw| if let Pick::At(share) = draw.pick { share } else { 0.0 })?;
    // Negative: to be found here.
    let given = column(&|draw| match draw.pick {
        Pick::At(_) => -1.0,
        Pick::Likeliest => -2.0,
        Pick::Given(token) => f64::from(token),
    })?
    .f_to_kind(Kind::Int64)?;
    let logprobs = logits
        .f_index_select(0, &Tensor::f_from_slice(&rows)?.f_to_device(device)?)?
        .f_div(&temperature.f_to_kind(Kind::Float)?)?
        .f_log_softmax(-1, Kind::Float)?;
    let vocab = logprobs.size()[1];
    let sums = logprobs.f_exp()?.f_cumsum(-1, Kind::Double)?;
    let target = share.f_mul(&sums.f_narrow(1, vocab - 1, 1)?)?;
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
        .zip(draws)
        .map(|(pair, draw)| {
            let sound = pair[1].is_finite() || (matches!(draw.pick, Pick::Given(_)) && !pair[1].is_nan());
            sound.then(|| Drawn {
                token: pair[0] as u32,
                logprob: pair[1] as f32,
                kept: None,
                top: Vec::new(),
            })
        })
        .collect())
}

/// Draws on the processor.
fn draw_here(logits: &Tensor, draws: &[Draw<'_>]) -> Result<Vec<Option<Drawn>>, TchError> {
    let vocab = logits.size()[1] as usize;
    let mut values = vec![0f32; logits.numel()];
    let count = values.len();
    logits.f_to_device(Device::Cpu)?.f_contiguous()?.f_copy_data(&mut values, count)?;
    let (mut own, mut weights) = (Vec::new(), vec![0f32; vocab]);
    Ok(draws
        .iter()
        .map(|one| {
            own.clear();
            own.extend_from_slice(&values[one.row * vocab..][..vocab]);
            draw(Level::detect(), &mut own, &mut weights, one)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sampling;

    #[test]
    fn draws_on_the_device_are_those_of_the_processor() {
        tch::manual_seed(5);
        let logits = Tensor::randn([3, 1000], (Kind::Float, Device::Cpu)) * 3.0;
        let sampling = [Sampling::at(1.0), Sampling::at(0.6), Sampling::at(0.0)];
        let picks = [Pick::At(0.0), Pick::At(0.37), Pick::At(0.999), Pick::Given(17), Pick::Likeliest];
        let mut draws = Vec::new();
        for row in 0..3 {
            for pick in picks {
                let sampling = &sampling[if pick == Pick::Likeliest { 2 } else { row % 2 }];
                draws.push(Draw { row, sampling, prompt: &[], completion: &[], pick, top: 0 });
            }
        }
        let device = draw_on_device(&logits, &draws).unwrap();
        let here = draw_here(&logits, &draws).unwrap();
        for (device, here) in device.into_iter().zip(here) {
            let (device, here) = (device.unwrap(), here.unwrap());
            assert_eq!(device.token, here.token);
            assert!((device.logprob - here.logprob).abs() < 1e-5, "{device:?} {here:?}");
        }
    }
}
