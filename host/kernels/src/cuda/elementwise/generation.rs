//! Operations that do the work of several, for the steps of generation: in these, a launch takes longer than the work.
//!
//! Their results have the bits of the operations one after another. None of them waits for the device, so that they can be
//! recorded in a graph.

use tch::{Kind, Tensor, no_grad};

use super::{ADD_RMS_NORM, Elementwise, GATED, PACK, ROTATE_AND_STORE, Rows, THREADS, packs};
use crate::cuda::error::Error;
use crate::cuda::launch::Argument;

/// Largest width of a head: a pack for each thread of a warp.
const WIDEST_HEAD: i64 = 32 * PACK;

/// Inputs of [`Elementwise::rotate_and_store`]: the heads of T tokens, and the places that they go to.
#[derive(Debug, Clone, Copy)]
pub struct HeadInputs<'a> {
    /// Queries, keys and values beside each other, `[T, (heads + 2 kv_heads) D]`, f32 or bf16.
    pub qkv: &'a Tensor,
    /// Gain of the norm of each query head, `[D]` in f32; `None` without such a norm.
    pub q_gain: Option<&'a Tensor>,
    /// Gain of the norm of each key head, as that of the queries.
    pub k_gain: Option<&'a Tensor>,
    /// Tables of the rotation as [`Elementwise::rotate`] has them: cosines and sines, `[T, D]` in f32.
    pub tables: [&'a Tensor; 2],
    /// Slot of each token in the cache, `[T]`, i64. Slots are below the cache's number of slots.
    pub slots: &'a Tensor,
    /// Keys and values, `[slots, 2, kv_heads, D]` in the format of `qkv`: a token's keys, then its values.
    pub cache: &'a Tensor,
}

impl Elementwise {
    /// Computes `sum = x + y`, rounded to their number format, and the RMS norm of its rows `[…, W]`, with a gain `[W]` in f32.
    /// Returns the sum and the norm.
    ///
    /// # Errors
    /// As [`rms_norm`](Self::rms_norm).
    pub fn add_rms_norm(
        &self,
        x: &Tensor,
        y: &Tensor,
        gain: &Tensor,
        epsilon: f64,
    ) -> Result<(Tensor, Tensor), Error> {
        let rows = Rows::new(x)?;
        self.check("the gain", gain, Kind::Float, &[rows.width])?;
        self.check("the summand", y, x.kind(), &x.size())?;
        no_grad(|| {
            let (sum, out) = (x.f_empty_like()?, x.f_empty_like()?);
            let tensors = [x, y, gain, &sum, &out];
            let numbers = rows.numbers().into_iter().chain([Argument::Number(epsilon as f32)]);
            // SAFETY: as in `rms_norm`.
            unsafe { self.launch(ADD_RMS_NORM, x, rows.blocks(), &tensors, numbers)? };
            Ok((sum, out))
        })
    }

    /// Computes [`gate`](Self::gate) of the halves of rows `[…, 2 F]`: the gate, then the other factor. Returns `[…, F]`.
    ///
    /// # Errors
    /// As [`rms_norm`](Self::rms_norm); F is a multiple of 8.
    pub fn gate_halves(&self, halves: &Tensor) -> Result<Tensor, Error> {
        let stride = Rows::new(halves)?.width;
        if stride % (2 * PACK) != 0 {
            return Err(Error::tensor(
                "elementwise",
                "the halves",
                "of a multiple of 8 numbers each",
                halves,
            ));
        }
        self.check("the halves", halves, halves.kind(), &halves.size())?;
        no_grad(|| {
            let width = stride / 2;
            let mut shape = halves.size();
            if let Some(last) = shape.last_mut() {
                *last = width;
            }
            let out = Tensor::f_empty(shape, (halves.kind(), halves.device()))?;
            let tensors = [halves, &halves.f_narrow(-1, width, width)?, &out];
            let numbers = [out.numel() as i64, width, stride].map(|number| Argument::Count(number as i32));
            // SAFETY: as in `rms_norm`; the second half begins at its own address.
            unsafe { self.launch(GATED, halves, packs(&out), &tensors, numbers)? };
            Ok(out)
        })
    }

    /// Returns true if [`rotate_and_store`](Self::rotate_and_store) takes heads of `width` numbers.
    pub fn stores(width: i64) -> bool {
        width % (2 * PACK) == 0 && (2 * PACK..=WIDEST_HEAD).contains(&width)
    }

    /// Applies the norm of single heads, if there are gains, and the rotation to queries and keys. Writes keys and values to
    /// their slots of the cache, and returns the queries `[T, heads, D]`. If several tokens have the same slot, it gets those of
    /// any of them.
    ///
    /// # Errors
    /// As [`rms_norm`](Self::rms_norm); [`stores`](Self::stores) is true for the width of the heads.
    pub fn rotate_and_store(&self, inputs: &HeadInputs<'_>, epsilon: f64) -> Result<Tensor, Error> {
        let HeadInputs { qkv, q_gain, k_gain, tables: [cosines, sines], slots, cache } = *inputs;
        let invalid =
            |name, expected: &str, got: &Tensor| Err(Error::tensor("elementwise", name, expected, got));
        let &[tokens, numbers] = qkv.size().as_slice() else {
            return invalid("the heads", "of two dimensions", qkv);
        };
        let &[cached, 2, kv_heads, width] = cache.size().as_slice() else {
            return invalid("the cache", "of dimensions [slots, 2, heads, width]", cache);
        };
        let aligned = (cache.data_ptr() as usize).is_multiple_of(16);
        if !Self::stores(width) || !aligned {
            return invalid(
                "the cache",
                "of heads of a multiple of 16 numbers up to 256, at such an address",
                cache,
            );
        }
        let heads = numbers / width - 2 * kv_heads;
        if heads < 0 || numbers % width != 0 {
            return invalid("the heads", "whole heads of queries, keys and values", qkv);
        }
        self.check("the heads", qkv, qkv.kind(), &[tokens, numbers])?;
        self.check("the cache", cache, qkv.kind(), &[cached, 2, kv_heads, width])?;
        self.check("the slots", slots, Kind::Int64, &[tokens])?;
        self.check("the cosines", cosines, Kind::Float, &[tokens, width])?;
        self.check("the sines", sines, Kind::Float, &[tokens, width])?;
        for gain in [q_gain, k_gain].into_iter().flatten() {
            self.check("the gain of a head", gain, Kind::Float, &[width])?;
        }
        no_grad(|| {
            let out = Tensor::f_empty([tokens, heads, width], (qkv.kind(), qkv.device()))?;
            let all = Rows { count: tokens * numbers / width, width };
            debug_assert_eq!(all.members(), 32, "{THREADS} threads have whole heads");
            let counts = [tokens, heads, kv_heads, width].map(|number| Argument::Count(number as i32));
            let numbers = counts.into_iter().chain([Argument::Number(epsilon as f32)]);
            let optional = |gain: Option<&Tensor>| gain.map_or(Argument::Pointer(0), Argument::tensor);
            let arguments = [Argument::tensor(qkv), optional(q_gain), optional(k_gain)]
                .into_iter()
                .chain([cosines, sines, slots, &out, cache].map(Argument::tensor))
                .chain(numbers);
            // SAFETY: as in `rms_norm`; the slots are in the cache, which the caller guarantees as the owner of both.
            unsafe { self.launch_grid(ROTATE_AND_STORE, qkv, [all.blocks(), 1], arguments)? };
            Ok(out)
        })
    }
}
