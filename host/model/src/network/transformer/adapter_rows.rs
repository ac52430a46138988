//! The parts of adapters in a batch of tokens, each applied to its own rows, and their gradients.
//!
//! With `u = s A x`, an adapter adds `B u` to `W x`. The rows of one adapter are contiguous; its part is
//! computed on that slice and added to the output in place, so that several adapters in a batch cost no more
//! than one.

use std::ops::Range;

use tch::{TchError, Tensor};

use crate::network::adapter::{Adapter, Projection};
use crate::network::matmul::{add_outer, linear};
use crate::network::packed::Packed;

/// Contiguous rows of one adapter.
struct AdapterRun<'a> {
    start: i64,
    len: i64,
    adapter: &'a Adapter,
    /// Index into the adapters of the pass, and into their gradients.
    index: usize,
}

/// Assignment of rows to adapters. Rows without an adapter use the base weights alone.
pub struct AdapterRows<'a>(Vec<AdapterRun<'a>>);

/// Value of `u` of one projection for each run; `None` if the adapter does not target the projection.
pub(super) type LowRankInputs = Vec<Option<Tensor>>;

impl<'a> AdapterRows<'a> {
    /// Assigns each range of rows to its adapter.
    pub fn new(runs: Vec<(Range<usize>, &'a Adapter)>) -> Self {
        let runs = runs.into_iter().enumerate().map(|(index, (rows, adapter))| AdapterRun {
            start: rows.start as i64,
            len: rows.len() as i64,
            adapter,
            index,
        });
        Self(runs.collect())
    }

    /// Assigns the rows of a packed batch to the adapters that its spans name.
    pub(super) fn for_packed(adapters: &'a [&'a Adapter], packed: &Packed) -> Self {
        let mut runs: Vec<AdapterRun<'a>> = Vec::new();
        for span in &packed.spans {
            let Some(index) = span.adapter else { continue };
            let (start, len) = (span.start as i64, span.len as i64);
            match runs.last_mut() {
                Some(run) if run.index == index && run.start + run.len == start => run.len += len,
                _ => runs.push(AdapterRun { start, len, adapter: adapters[index], index }),
            }
        }
        Self(runs)
    }

    /// Adds the adapters' parts of a projection of `x` to its output `y`, in place.
    pub(super) fn add(
        &self,
        layer: usize,
        projection: Projection,
        x: &Tensor,
        y: &Tensor,
    ) -> Result<LowRankInputs, TchError> {
        self.0
            .iter()
            .map(|run| {
                let Some(part) = run.adapter.part(layer, projection) else { return Ok(None) };
                let a = part.a.f_to_kind(x.kind())?;
                let b = part.b.f_to_kind(x.kind())?;
                let mut inner = linear(&run.rows(x)?, &a)?;
                let _ = inner.f_mul_scalar_(run.adapter.scale())?;
                let _ = run.rows(y)?.f_add_(&linear(&inner, &b)?)?;
                Ok(Some(inner))
            })
            .collect()
    }

    /// Adds the gradients of the factors to those in `gradients`, and the adapters' part of the gradient with
    /// respect to `x` to `dx`. `dy` is the gradient with respect to the output.
    #[allow(clippy::too_many_arguments, reason = "a product rule has as many factors")]
    pub(super) fn backward(
        &self,
        layer: usize,
        projection: Projection,
        x: &Tensor,
        inputs: &LowRankInputs,
        dy: &Tensor,
        dx: &Tensor,
        gradients: &[Adapter],
    ) -> Result<(), TchError> {
        for (run, inner) in self.0.iter().zip(inputs) {
            let parts = (run.adapter.part(layer, projection), gradients[run.index].part(layer, projection));
            let (Some(inner), (Some(part), Some(gradient))) = (inner, parts) else { continue };
            let dy = run.rows(dy)?;
            let mut du = linear(&dy, &part.b.f_to_kind(dy.kind())?.f_tr()?)?;
            let _ = du.f_mul_scalar_(run.adapter.scale())?;
            add_outer(&gradient.b, &dy, inner)?;
            add_outer(&gradient.a, &du, &run.rows(x)?)?;
            let a = part.a.f_to_kind(du.kind())?;
            let _ = run.rows(dx)?.f_add_(&linear(&du, &a.f_tr()?)?)?;
        }
        Ok(())
    }
}

impl AdapterRun<'_> {
    fn rows(&self, x: &Tensor) -> Result<Tensor, TchError> {
        x.f_narrow(0, self.start, self.len)
    }
}
