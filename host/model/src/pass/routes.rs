//! Adapters by rows: what each adds to its own sequences, and its gradients.
//!
//! With `u = s A x`, an adapter adds `B u` to `W x`. Rows of one adapter stand side by side; its part is computed
//! on that slice and added into the output in place, so that several adapters in a row cost what one costs.

use tch::{TchError, Tensor};

use crate::{Adapter, Packed, Projection, add_outer, linear};

/// Neighbouring rows of one adapter.
struct Run {
    start: i64,
    len: i64,
    adapter: usize,
}

/// Which rows belong to which adapter.
pub(super) struct Routes<'a> {
    runs: Vec<Run>,
    adapters: &'a [&'a Adapter],
}

/// Per run, `u` of one projection; empty where no adapter sits on it.
pub(super) type Inner = Vec<Option<Tensor>>;

impl<'a> Routes<'a> {
    pub(super) fn new(adapters: &'a [&'a Adapter], packed: &Packed) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for span in &packed.spans {
            let Some(adapter) = span.adapter else { continue };
            let (start, len) = (span.start as i64, span.len as i64);
            match runs.last_mut() {
                Some(run) if run.adapter == adapter && run.start + run.len == start => run.len += len,
                _ => runs.push(Run { start, len, adapter }),
            }
        }
        Self { runs, adapters }
    }

    /// Adds the adapters' parts of a projection of `x` to its output `y`, in place.
    pub(super) fn add(
        &self,
        layer: usize,
        projection: Projection,
        x: &Tensor,
        y: &Tensor,
    ) -> Result<Inner, TchError> {
        self.runs
            .iter()
            .map(|run| {
                let adapter = self.adapters[run.adapter];
                let Some(part) = adapter.part(layer, projection) else { return Ok(None) };
                let a = part.a.f_to_kind(x.kind())?;
                let b = part.b.f_to_kind(x.kind())?;
                let mut inner = linear(&run.rows(x)?, &a)?;
                let _ = inner.f_mul_scalar_(adapter.scale())?;
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
        inner: &Inner,
        dy: &Tensor,
        dx: &Tensor,
        gradients: &[Adapter],
    ) -> Result<(), TchError> {
        for (run, inner) in self.runs.iter().zip(inner) {
            let adapter = self.adapters[run.adapter];
            let parts = (adapter.part(layer, projection), gradients[run.adapter].part(layer, projection));
            let (Some(inner), (Some(part), Some(gradient))) = (inner, parts) else { continue };
            let dy = run.rows(dy)?;
            let mut du = linear(&dy, &part.b.f_to_kind(dy.kind())?.f_tr()?)?;
            let _ = du.f_mul_scalar_(adapter.scale())?;
            add_outer(&gradient.b, &dy, inner)?;
            add_outer(&gradient.a, &du, &run.rows(x)?)?;
            let a = part.a.f_to_kind(du.kind())?;
            let _ = run.rows(dx)?.f_add_(&linear(&du, &a.f_tr()?)?)?;
        }
        Ok(())
    }
}

impl Run {
    fn rows(&self, x: &Tensor) -> Result<Tensor, TchError> {
        x.f_narrow(0, self.start, self.len)
    }
}
