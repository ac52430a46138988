//! The parts of adapters in slots in a batch of tokens of generation.

use pl_kernels::cuda;
use pl_kernels::cuda::lora::{LoraFactors, LoraProducts};
use tch::{TchError, Tensor};

use super::adapter_slots::AdapterSlots;
use crate::network::adapter::{LowRank, Projection};
use crate::network::matmul::{add_linear, linear};

/// Assignment of rows to adapters in slots.
pub(super) struct SlotRows<'a> {
    slots: &'a AdapterSlots,
    /// Scale of a row's adapter in the columns of its slot, 0 in the others: `[rows, ranks]`, f32.
    scales: Tensor,
}

impl<'a> SlotRows<'a> {
    pub(super) fn new(slots: &'a AdapterSlots, scales: &Tensor) -> Self {
        Self { slots, scales: scales.shallow_clone() }
    }

    /// Adds the adapters' parts of projections of `x` to `y`, their outputs beside each other, in place.
    pub(super) fn add(
        &self,
        layer: usize,
        projections: &[Projection],
        x: &Tensor,
        y: &Tensor,
    ) -> Result<(), TchError> {
        let Some(LowRank { a, b }) = self.slots.part(layer, projections)? else { return Ok(()) };
        let outputs: Vec<i64> =
            projections.iter().map(|projection| self.slots.outputs(*projection)).collect();
        let ranks = self.slots.ranks() as i64;
        let kernels = x.device().is_cuda().then(|| cuda::opened(x.device())).flatten();
        let contiguous = x.is_contiguous() && y.is_contiguous() && a.kind() == x.kind();
        if let Some(kernels) = kernels.filter(|_| contiguous && LoraProducts::supports(x, &outputs, ranks)) {
            let factors = LoraFactors { a: &a, b: &b, outputs: &outputs };
            return Ok(LoraProducts::new(kernels).add(&factors, &self.scales, x, y)?);
        }
        let (a, b) = (a.f_to_kind(x.kind())?, b.f_to_kind(x.kind())?);
        // One product for all projections, then one for each.
        let inner = linear(x, &a)?;
        let mut first = 0;
        for (i, count) in (0i64..).zip(outputs) {
            let own = inner.f_narrow(1, i * ranks, ranks)?.f_mul(&self.scales)?.f_to_kind(x.kind())?;
            add_linear(&y.f_narrow(1, first, count)?, &own, &b.f_narrow(0, first, count)?)?;
            first += count;
        }
        Ok(())
    }
}
