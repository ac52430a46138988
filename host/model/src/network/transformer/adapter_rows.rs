//! The parts of adapters in a batch of tokens, each applied to its own rows, and their gradients.
//!
//! With `u = s A x`, an adapter adds `B u` to `W x`. On a GPU, where a launch takes longer than such a small product, adapters
//! of any ranks and targets share products: with `A` and `B` of a group's adapters side by side and `M` the scale of a row's
//! own adapter in the columns of that adapter, 0 in the others,
//!
//! ```text
//! u = M * (x Aᵀ)    y += u Bᵀ    du = M * (dy B)    dx += du A    dB = dyᵀ u    dA = duᵀ x
//! ```
//!
//! The ranks are added up: those of a few adapters still fit one tile of a matrix product. An adapter whose numbers are not
//! all finite has products of its own, because 0 times NaN is NaN: it would spoil the rows and the gradients of the others. On
//! the CPU, each run of rows has products of its own, so that a row's bits don't depend on the other adapters of the batch.
//!
//! In generation, adapters may be in [`AdapterSlots`], side by side once for many steps.

use std::ops::Range;

use tch::{Device, Kind, TchError, Tensor};

use super::adapter_slots::AdapterSlots;
use super::slot_rows::SlotRows;
use crate::network::adapter::{Adapter, LowRank, Projection};
use crate::network::matmul::{add_linear, add_outer, linear};
use crate::network::packed::Packed;

/// Contiguous rows of one adapter.
pub struct AdapterRun<'a> {
    /// The rows.
    pub rows: Range<usize>,
    /// Their adapter.
    pub adapter: &'a Adapter,
    /// Result of [`Adapter::is_finite`].
    pub finite: bool,
}

/// A run of a pass.
struct IndexedRun<'a> {
    rows: Range<i64>,
    adapter: &'a Adapter,
    /// Index into the adapters of the pass, and into their gradients.
    index: usize,
    finite: bool,
}

/// Assignment of rows to adapters. Rows without an adapter use the base weights alone.
pub struct AdapterRows<'a> {
    /// Groups of each projection, in the order of [`Projection::ALL`].
    groups: [Vec<AdapterGroup<'a>>; 7],
    /// In place of the groups.
    slots: Option<SlotRows<'a>>,
}

/// Adapters with a part on one projection that share products.
struct AdapterGroup<'a> {
    /// From the first row of an adapter to the last.
    start: i64,
    len: i64,
    /// The adapters with their indices, none twice.
    members: Vec<(&'a Adapter, usize)>,
    /// Scales `[len, sum of ranks]`, f32; `None` if all rows are of the one member.
    mask: Option<Tensor>,
}

/// Value of `u` of one projection for each of its groups.
pub(super) type LowRankInputs = Vec<Tensor>;

impl<'a> AdapterRows<'a> {
    /// Assigns each range of rows to its adapter. The ranges are sorted.
    ///
    /// # Errors
    /// If libtorch fails (memory).
    pub fn new(runs: Vec<AdapterRun<'a>>) -> Result<Self, TchError> {
        let runs = runs.into_iter().enumerate().map(|(index, run)| IndexedRun {
            rows: run.rows.start as i64..run.rows.end as i64,
            adapter: run.adapter,
            index,
            finite: run.finite,
        });
        Self::grouped(&runs.collect::<Vec<_>>(), None)
    }

    /// Assigns rows to adapters in slots by their scales: `[rows, ranks of the slots]`, f32, the scale of a row's adapter in the
    /// columns of its slot and 0 in the others. The scales are read when the products are computed.
    pub fn in_slots(slots: &'a AdapterSlots, scales: &Tensor) -> Self {
        Self { groups: Default::default(), slots: Some(SlotRows::new(slots, scales)) }
    }

    /// Assigns the rows of a packed batch to the adapters that its spans name.
    pub(super) fn for_packed(adapters: &'a [&'a Adapter], packed: &Packed) -> Result<Self, TchError> {
        let mut runs = runs(adapters, packed);
        // Waits for the device, once for each pass; without groups there is nothing to know.
        if adapters.len() > 1 && runs.first().is_some_and(|run| run.device() != Device::Cpu) {
            let finite: Vec<bool> =
                adapters.iter().map(|adapter| adapter.is_finite()).collect::<Result<_, _>>()?;
            runs.iter_mut().for_each(|run| run.finite = finite[run.index]);
        }
        Self::grouped(&runs, None)
    }

    /// Forms groups of at most `ranks`, or of the number that suits the adapters' device.
    fn grouped(runs: &[IndexedRun<'a>], ranks: Option<usize>) -> Result<Self, TchError> {
        let mut groups: [Vec<AdapterGroup<'a>>; 7] = Default::default();
        for (projection, groups) in Projection::ALL.into_iter().zip(&mut groups) {
            let targets = |run: &&IndexedRun<'a>| run.adapter.part(0, projection).is_some();
            let runs: Vec<&IndexedRun<'a>> = runs.iter().filter(targets).collect();
            let device = runs.first().map_or(Device::Cpu, |run| run.device());
            let ranks = ranks.unwrap_or(if device == Device::Cpu { 0 } else { AdapterSlots::MAX_RANKS });
            let mut rest = runs.as_slice();
            while let Some(group) = AdapterGroup::first(&mut rest, ranks, device)? {
                groups.push(group);
            }
        }
        Ok(Self { groups, slots: None })
    }

    /// Adds the adapters' parts of a projection of `x` to its output `y`, in place. Returns what their gradients need.
    pub(super) fn add(
        &self,
        layer: usize,
        projection: Projection,
        x: &Tensor,
        y: &Tensor,
    ) -> Result<LowRankInputs, TchError> {
        if let Some(slots) = &self.slots {
            slots.add(layer, &[projection], x, y)?;
        }
        self.groups[projection as usize]
            .iter()
            .map(|group| {
                let (a, b) = group.factors(layer, projection, x.kind())?;
                let inner = group.scale(linear(&group.rows(x)?, &a)?)?;
                add_linear(&group.rows(y)?, &inner, &b)?;
                Ok(inner)
            })
            .collect()
    }

    /// Adds the adapters' parts of projections of `x`, in the order of [`Projection::ALL`], to their outputs beside each other, in
    /// place. No gradients follow.
    pub(super) fn add_together(
        &self,
        layer: usize,
        projections: &[Projection],
        x: &Tensor,
        all: &Tensor,
        outputs: &[Tensor],
    ) -> Result<(), TchError> {
        if let Some(slots) = &self.slots {
            return slots.add(layer, projections, x, all);
        }
        for (projection, y) in projections.iter().zip(outputs) {
            self.add(layer, *projection, x, y)?;
        }
        Ok(())
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
        for (group, inner) in self.groups[projection as usize].iter().zip(inputs) {
            let (a, b) = group.factors(layer, projection, dy.kind())?;
            let (x, dy) = (group.rows(x)?, group.rows(dy)?);
            let du = group.scale(linear(&dy, &b.f_tr()?)?)?;
            group.add_gradients(layer, projection, gradients, [&x, inner, &dy, &du])?;
            add_linear(&group.rows(dx)?, &du, &a.f_tr()?)?;
        }
        Ok(())
    }
}

impl IndexedRun<'_> {
    fn device(&self) -> Device {
        let parts = Projection::ALL.into_iter().find_map(|projection| self.adapter.part(0, projection));
        parts.map_or(Device::Cpu, |part| part.a.device())
    }
}

/// Returns the runs of a packed batch.
fn runs<'a>(adapters: &'a [&'a Adapter], packed: &Packed) -> Vec<IndexedRun<'a>> {
    let mut runs: Vec<IndexedRun<'a>> = Vec::new();
    for span in &packed.spans {
        let Some(index) = span.adapter else { continue };
        let rows = span.start as i64..(span.start + span.len) as i64;
        match runs.last_mut() {
            Some(run) if run.index == index && run.rows.end == rows.start => run.rows.end = rows.end,
            _ => runs.push(IndexedRun { rows, adapter: adapters[index], index, finite: true }),
        }
    }
    runs
}

impl<'a> AdapterGroup<'a> {
    /// Takes the first runs whose adapters have at most `ranks` together and are finite, or the first run alone. Returns `None` if
    /// there are no runs.
    fn first(runs: &mut &[&IndexedRun<'a>], ranks: usize, device: Device) -> Result<Option<Self>, TchError> {
        let all = *runs;
        let Some(first) = all.first() else { return Ok(None) };
        let mut members = vec![(first.adapter, first.index)];
        let mut count = 1;
        for run in &all[1..] {
            // Also if the rows between those of two finite adapters are in the group: their states are NaN.
            if !first.finite || !run.finite {
                break;
            }
            if !members.iter().any(|(_, index)| *index == run.index) {
                let total: usize = members.iter().map(|(adapter, _)| adapter.rank).sum();
                if total + run.adapter.rank > ranks {
                    break;
                }
                members.push((run.adapter, run.index));
            } else if ranks == 0 {
                break;
            }
            count += 1;
        }
        let (own, rest) = all.split_at(count);
        *runs = rest;
        let start = first.rows.start;
        let len = own.last().map_or(0, |run| run.rows.end - start);
        let mask = if count == 1 { None } else { Some(mask(own, &members, start, len, device)?) };
        Ok(Some(Self { start, len, members, mask }))
    }

    fn rows(&self, x: &Tensor) -> Result<Tensor, TchError> {
        x.f_narrow(0, self.start, self.len)
    }

    /// The members' parts on the projection with their indices.
    fn parts(&self, layer: usize, projection: Projection) -> impl Iterator<Item = (&'a LowRank, usize)> {
        self.members
            .iter()
            .filter_map(move |(adapter, index)| Some((adapter.part(layer, projection)?, *index)))
    }

    /// Returns the members' factors side by side, `[sum of ranks, in]` and `[out, sum of ranks]`.
    fn factors(
        &self,
        layer: usize,
        projection: Projection,
        kind: Kind,
    ) -> Result<(Tensor, Tensor), TchError> {
        let (a, b): (Vec<&Tensor>, Vec<&Tensor>) =
            self.parts(layer, projection).map(|(part, _)| (&part.a, &part.b)).unzip();
        let join = |factors: &[&Tensor], dim: i64| match factors {
            [one] => one.f_to_kind(kind),
            _ => Tensor::f_cat(factors, dim)?.f_to_kind(kind),
        };
        Ok((join(&a, 0)?, join(&b, 1)?))
    }

    /// Multiplies inner products `[len, sum of ranks]` by the scales, in place.
    fn scale(&self, mut inner: Tensor) -> Result<Tensor, TchError> {
        match (&self.mask, self.members.as_slice()) {
            (Some(mask), _) => inner.f_mul_(mask),
            (None, [(adapter, _), ..]) => inner.f_mul_scalar_(adapter.scale()),
            (None, []) => Ok(inner),
        }
    }

    /// Adds the gradients of the factors, given the group's rows of `x`, `u`, `dy` and `du`.
    fn add_gradients(
        &self,
        layer: usize,
        projection: Projection,
        gradients: &[Adapter],
        [x, inner, dy, du]: [&Tensor; 4],
    ) -> Result<(), TchError> {
        let own = |index: usize| gradients.get(index).and_then(|gradient| gradient.part(layer, projection));
        if let (None, [(_, index)]) = (&self.mask, self.members.as_slice()) {
            let Some(gradient) = own(*index) else { return Ok(()) };
            add_outer(&gradient.b, dy, inner)?;
            return add_outer(&gradient.a, du, x);
        }
        let (db, da) = (linear(&dy.f_tr()?, &inner.f_tr()?)?, linear(&du.f_tr()?, &x.f_tr()?)?);
        let mut column = 0;
        for (part, index) in self.parts(layer, projection) {
            let rank = part.a.size()[0];
            if let Some(gradient) = own(index) {
                let _ = gradient.b.shallow_clone().f_add_(&db.f_narrow(1, column, rank)?)?;
                let _ = gradient.a.shallow_clone().f_add_(&da.f_narrow(0, column, rank)?)?;
            }
            column += rank;
        }
        Ok(())
    }
}

/// Returns the scales `[len, sum of ranks]` of a group's rows from `start` on.
fn mask(
    runs: &[&IndexedRun<'_>],
    members: &[(&Adapter, usize)],
    start: i64,
    len: i64,
    device: Device,
) -> Result<Tensor, TchError> {
    // No member has the number -1.
    let mut rows = vec![-1i64; len as usize];
    for run in runs {
        let own = members.iter().position(|(_, index)| *index == run.index).unwrap_or(0);
        rows[(run.rows.start - start) as usize..(run.rows.end - start) as usize].fill(own as i64);
    }
    let columns = |value: &dyn Fn(usize, &Adapter) -> f64| -> Vec<f64> {
        let of = |(member, (adapter, _)): (usize, &(&Adapter, usize))| {
            std::iter::repeat_n(value(member, adapter), adapter.rank)
        };
        members.iter().enumerate().flat_map(of).collect()
    };
    let tensor = |values: &[f64]| Tensor::f_from_slice(values)?.f_to_device(device);
    let owners = tensor(&columns(&|member, _| member as f64))?;
    let scales = tensor(&columns(&|_, adapter| adapter.scale()))?;
    let rows = Tensor::f_from_slice(&rows)?.f_to_device(device)?.f_unsqueeze(1)?;
    rows.f_eq_tensor(&owners)?.f_to_kind(Kind::Double)?.f_mul(&scales)?.f_to_kind(Kind::Float)
}

#[cfg(test)]
mod tests;
