//! The two passes through a model: a prompt's, and one step of several sequences.

use pl_model::{Config, transform};
use tch::{Device, Kind, Tensor};

use crate::cache::{Keep, Prompt, no_attention};
use crate::policies::Seat;

/// Runs a prompt through the model, alone.
pub(crate) fn prefill(seat: &Seat, tokens: &[u32]) -> Prompt {
    let set = &seat.set;
    let config = &set.config;
    let count = tokens.len() as i64;
    let rope = set.rope.first(count);
    let mut layers = Vec::with_capacity(config.layers);
    let hidden = transform(
        config,
        &set.weights,
        &ids(tokens, set.device()),
        &rope,
        &set.member_deltas(seat.member),
        &mut |_, q, k, v| {
            let out = pl_model::causal_attention(config, &q, &k, &v);
            layers.push(Tensor::stack(&[k.transpose(0, 1), v.transpose(0, 1)], 0));
            out
        },
    );
    let logits = hidden.narrow(0, count - 1, 1).linear(set.weights.unembed(), None::<&Tensor>);
    Prompt { keep: Keep::from_prompt(layers, count), logits }
}

/// One row of a decoding step: a sequence's newest token, and what came before it.
pub(crate) struct Row<'a> {
    pub(crate) token: u32,
    pub(crate) seat: &'a Seat,
    pub(crate) keep: &'a mut Keep,
}

/// One step of sequences that share a set: logits `[tile, V]` of the tokens that follow, the rows first.
///
/// The batch is padded to `tile` rows. Every matrix product then has the same shape whatever is in the batch,
/// and attention is computed per sequence, so that a row's result does not depend on the others.
pub(crate) fn step(rows: &mut [Row<'_>], tile: usize) -> Option<Tensor> {
    let set = std::rc::Rc::clone(&rows.first()?.seat.set);
    let (config, device) = (&set.config, set.device());
    let mut tokens = vec![0u32; tile];
    let mut positions = vec![0i64; tile];
    let mut members = vec![None; tile];
    for (i, row) in rows.iter_mut().enumerate() {
        positions[i] = row.keep.len();
        tokens[i] = row.token;
        members[i] = Some(row.seat.member);
        row.keep.extend();
    }
    let rope = set.rope.at(&Tensor::from_slice(&positions).to_device(device));
    let padding = no_attention(config, (tile - rows.len()) as i64, device);
    let hidden = transform(
        config,
        &set.weights,
        &ids(&tokens, device),
        &rope,
        &set.deltas(&members),
        &mut |layer, q, k, v| {
            // [tile, 2, kv_heads, D]: a row's newest key and value side by side.
            let newest = Tensor::stack(&[k, v], 1);
            let mut mixed: Vec<Tensor> = rows
                .iter()
                .enumerate()
                .map(|(i, row)| {
                    let (keys, values) = row.keep.write(layer, &newest.select(0, i as i64));
                    attend(config, &q.select(0, i as i64), &keys, &values)
                })
                .collect();
            if padding.size()[0] > 0 {
                mixed.push(padding.shallow_clone());
            }
            Tensor::cat(&mixed, 0)
        },
    );
    Some(hidden.linear(set.weights.unembed(), None::<&Tensor>))
}

/// Attention of one query `[heads, D]` over `[kv_heads, length, D]`, as `[1, heads x D]`.
fn attend(config: &Config, q: &Tensor, keys: &Tensor, values: &Tensor) -> Tensor {
    // The query heads that share a key head are that head's queries.
    let group = config.heads / config.kv_heads;
    Tensor::scaled_dot_product_attention(
        &q.view([1, config.kv_heads, group, config.head_dim]),
        &keys.unsqueeze(0),
        &values.unsqueeze(0),
        None::<&Tensor>,
        0.0,
        false,
        None,
        false,
    )
    .reshape([1, config.q_width()])
}

fn ids(tokens: &[u32], device: Device) -> Tensor {
    let ids: Vec<i64> = tokens.iter().map(|id| i64::from(*id)).collect();
    Tensor::from_slice(&ids).to_kind(Kind::Int64).to_device(device)
}
