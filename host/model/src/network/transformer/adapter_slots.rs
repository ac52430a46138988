//! Adapters side by side in memory that stays where it is, for recorded work that reads them by their addresses.

use std::ops::Range;

use tch::{Device, Kind, TchError, Tensor, no_grad};

use crate::network::adapter::{Adapter, LowRank, Projection};
use crate::network::config::Config;

/// Projections of the same input, whose factors are one after another.
const TOGETHER: [&[Projection]; 4] = [
    &[Projection::Q, Projection::K, Projection::V],
    &[Projection::O],
    &[Projection::Gate, Projection::Up],
    &[Projection::Down],
];

/// Memory for the factors of several adapters: on each projection `[ranks, in]` and `[out, ranks]`, one after another for the
/// projections of the same input. A slot is a range of the ranks; an adapter that is written to it takes the place of an earlier
/// one, and what was recorded before reads the new one.
#[derive(Debug)]
pub struct AdapterSlots {
    ranks: usize,
    /// The factors of [`TOGETHER`] on each layer. `None` without targets among the projections; of other projections than the
    /// targets, all numbers are 0.
    layers: Vec<[Option<LowRank>; TOGETHER.len()]>,
    /// Number of outputs of each projection, in the order of [`Projection::ALL`].
    outputs: [i64; 7],
}

impl AdapterSlots {
    /// Largest sum of ranks of adapters that share products on a GPU: above it, products with the zeros of other adapters cost
    /// more than launches.
    pub const MAX_RANKS: usize = 256;

    /// Takes memory, filled with zeros, for adapters with `ranks` together, or up to 31 more, and targets among `targets`, in the
    /// number format that the model computes in.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(
        config: &Config,
        ranks: usize,
        targets: &[Projection],
        options: (Kind, Device),
    ) -> Result<Self, TchError> {
        // Kernels multiply 32 numbers of a sum at a time.
        let ranks = ranks.next_multiple_of(32);
        let outputs = Projection::ALL.map(|projection| projection.shape(config).1);
        let part = |together: &[Projection]| {
            let inputs = together[0].shape(config).0;
            let rows: i64 = together.iter().map(|projection| outputs[*projection as usize]).sum();
            let a = Tensor::f_zeros([(together.len() * ranks) as i64, inputs], options)?;
            Ok::<_, TchError>(LowRank { a, b: Tensor::f_zeros([rows, ranks as i64], options)? })
        };
        let mut layers = Vec::with_capacity(config.layers);
        for _ in 0..config.layers {
            let mut parts = [const { None }; TOGETHER.len()];
            for (to, together) in parts.iter_mut().zip(TOGETHER) {
                if together.iter().any(|projection| targets.contains(projection)) {
                    *to = Some(part(together)?);
                }
            }
            layers.push(parts);
        }
        Ok(Self { ranks, layers, outputs })
    }

    /// Returns the sum of the ranks of all slots.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Writes an adapter to the slot with these ranks, as many as it has. Its targets are among those of the slots.
    ///
    /// # Errors
    /// If shapes don't fit.
    pub fn write(&self, slot: Range<usize>, adapter: &Adapter) -> Result<(), TchError> {
        let (start, len) = (slot.start as i64, slot.len() as i64);
        no_grad(|| {
            for layer in 0..self.layers.len() {
                for projection in Projection::ALL {
                    let Some(to) = self.part(layer, &[projection])? else { continue };
                    let (mut a, mut b) = (to.a.f_narrow(0, start, len)?, to.b.f_narrow(1, start, len)?);
                    match adapter.part(layer, projection) {
                        Some(part) => {
                            a.f_copy_(&part.a)?;
                            b.f_copy_(&part.b)?;
                        }
                        None => {
                            let _ = (a.f_zero_()?, b.f_zero_()?);
                        }
                    }
                }
            }
            Ok(())
        })
    }

    /// Returns the number of outputs of a projection.
    pub(super) fn outputs(&self, projection: Projection) -> i64 {
        self.outputs[projection as usize]
    }

    /// Returns the factors of all slots on projections of a layer that have the same input, in the order of [`Projection::ALL`]:
    /// `[projections x ranks, in]` and `[sum of outputs, ranks]`. Returns `None` if none is a target.
    pub(super) fn part(&self, layer: usize, projections: &[Projection]) -> Result<Option<LowRank>, TchError> {
        let found = TOGETHER.iter().enumerate().find_map(|(index, together)| {
            let first = (0..together.len()).find(|first| together[*first..].starts_with(projections))?;
            Some((index, &together[..first]))
        });
        let Some((index, before)) = found else { return Ok(None) };
        let Some(all) = self.layers.get(layer).and_then(|parts| parts[index].as_ref()) else {
            return Ok(None);
        };
        let rows = |projections: &[Projection]| -> i64 {
            projections.iter().map(|projection| self.outputs(*projection)).sum()
        };
        let ranks = |projections: &[Projection]| (projections.len() * self.ranks) as i64;
        Ok(Some(LowRank {
            a: all.a.f_narrow(0, ranks(before), ranks(projections))?,
            b: all.b.f_narrow(0, rows(before), rows(projections))?,
        }))
    }
}
