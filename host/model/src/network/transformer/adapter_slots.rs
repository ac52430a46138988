//! Adapters side by side in memory that stays where it is, for recorded work that reads them by their addresses.

use std::ops::Range;

use tch::{Device, Kind, TchError, Tensor, no_grad};

use crate::network::adapter::{Adapter, LowRank, Projection};
use crate::network::config::Config;

/// Memory for the factors of several adapters: on each projection `[ranks, in]` and `[out, ranks]`. A slot is a range of the
/// ranks; an adapter that is written to it takes the place of an earlier one, and what was recorded before reads the new one.
#[derive(Debug)]
pub struct AdapterSlots {
    ranks: usize,
    layers: Vec<[Option<LowRank>; 7]>,
}

impl AdapterSlots {
    /// Largest sum of ranks of adapters that share products on a GPU: above it, products with the zeros of other adapters cost
    /// more than launches.
    pub const MAX_RANKS: usize = 256;

    /// Takes memory, filled with zeros, for adapters with `ranks` together and targets among `targets`, in the number format
    /// that the model computes in.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(
        config: &Config,
        ranks: usize,
        targets: &[Projection],
        options: (Kind, Device),
    ) -> Result<Self, TchError> {
        let part = |projection: Projection| {
            let (inputs, outputs) = projection.shape(config);
            let a = Tensor::f_zeros([ranks as i64, inputs], options)?;
            Ok::<_, TchError>(LowRank { a, b: Tensor::f_zeros([outputs, ranks as i64], options)? })
        };
        let mut layers = Vec::with_capacity(config.layers);
        for _ in 0..config.layers {
            let mut parts = [const { None }; 7];
            for projection in targets {
                parts[*projection as usize] = Some(part(*projection)?);
            }
            layers.push(parts);
        }
        Ok(Self { ranks, layers })
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
            for (layer, parts) in self.layers.iter().enumerate() {
                for (projection, to) in Projection::ALL.into_iter().zip(parts) {
                    let Some(to) = to else { continue };
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

    /// Returns the factors of all slots on a layer's projection, if it is a target.
    pub(super) fn part(&self, layer: usize, projection: Projection) -> Option<&LowRank> {
        self.layers.get(layer)?[projection as usize].as_ref()
    }
}
