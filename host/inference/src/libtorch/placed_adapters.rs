//! Places of adapters in slots, which recorded steps read.

use std::ops::Range;
use std::rc::{Rc, Weak};

use pl_model::{Adapter, AdapterSlots, Config, Projection};
use tch::{Device, Kind, TchError, Tensor};

/// Slots, and the adapters in them. An adapter of the same rank takes the place of one that no policy and no sequence has any
/// more, so that recorded steps last over many versions of the adapters.
#[derive(Default)]
pub(super) struct PlacedAdapters {
    slots: Option<Rc<AdapterSlots>>,
    /// Targets of the slots.
    targets: Vec<Projection>,
    places: Vec<Place>,
    /// Number of calls of [`PlacedAdapters::place`].
    calls: u64,
}

struct Place {
    ranks: Range<usize>,
    /// Never dangling: a weak reference keeps the address from being used again.
    adapter: Weak<Adapter>,
    last_use: u64,
}

/// The slots of a batch's adapters.
pub(super) struct BatchSlots {
    pub(super) slots: Rc<AdapterSlots>,
    /// Scale of a row's adapter in the columns of its slot, `[rows, ranks]`, f32.
    pub(super) scales: Tensor,
}

/// Result of placing the adapters of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// All have places in the memory that the slots had before.
    Same,
    /// All have places, in other memory: steps that were recorded before must not be replayed.
    Moved,
    /// They don't fit.
    TooMany,
}

impl PlacedAdapters {
    /// Gives all adapters of a batch a place.
    pub(super) fn place(
        &mut self,
        config: &Config,
        batch: &[&Rc<Adapter>],
        options: (Kind, Device),
    ) -> Result<Placement, TchError> {
        self.calls += 1;
        let mut missing: Vec<&Rc<Adapter>> = Vec::new();
        for adapter in batch {
            match self.places.iter_mut().find(|place| place.holds(adapter)) {
                Some(place) => place.last_use = self.calls,
                None if missing.iter().any(|other| Rc::ptr_eq(other, adapter)) => {}
                None => missing.push(adapter),
            }
        }
        let Some(slots) = self.slots.clone() else { return self.grow(config, &missing, options) };
        while let Some(adapter) = missing.pop() {
            let fits = |place: &Place| place.ranks.len() == adapter.rank;
            let targets = adapter.targets().iter().all(|target| self.targets.contains(target));
            let dead = self.places.iter().position(|place| fits(place) && place.adapter.strong_count() == 0);
            let taken: usize = self.live().map(|(place, _)| place.ranks.len()).sum();
            let index = match dead {
                _ if !targets => None,
                Some(index) => Some(index),
                None if taken + adapter.rank <= AdapterSlots::MAX_RANKS => None,
                // The one that was not used for the longest time.
                None => {
                    let idle = |place: &&Place| fits(place) && place.last_use < self.calls;
                    let oldest = self.places.iter().filter(idle).map(|place| place.last_use).min();
                    self.places.iter().position(|place| fits(place) && Some(place.last_use) == oldest)
                }
            };
            let Some(place) = index.and_then(|index| self.places.get_mut(index)) else {
                missing.push(adapter);
                return self.grow(config, &missing, options);
            };
            slots.write(place.ranks.clone(), adapter)?;
            (place.adapter, place.last_use) = (Rc::downgrade(adapter), self.calls);
        }
        Ok(Placement::Same)
    }

    /// Returns the slots.
    pub(super) fn slots(&self) -> Option<Rc<AdapterSlots>> {
        self.slots.clone()
    }

    /// Returns the first rank of the slot of an adapter that was placed.
    pub(super) fn first_rank(&self, adapter: &Rc<Adapter>) -> usize {
        self.places.iter().find(|place| place.holds(adapter)).map_or(0, |place| place.ranks.start)
    }

    /// Places that are in use, with their adapters.
    fn live(&self) -> impl Iterator<Item = (&Place, Rc<Adapter>)> {
        self.places.iter().filter_map(|place| Some((place, place.adapter.upgrade()?)))
    }

    /// Takes memory for the adapters that have places and some more.
    fn grow(
        &mut self,
        config: &Config,
        missing: &[&Rc<Adapter>],
        options: (Kind, Device),
    ) -> Result<Placement, TchError> {
        let old = self.live().map(|(place, adapter)| (adapter, place.last_use));
        let new = missing.iter().map(|adapter| (Rc::clone(adapter), self.calls));
        let all: Vec<(Rc<Adapter>, u64)> = old.chain(new).collect();
        let ranks: usize = all.iter().map(|(adapter, _)| adapter.rank).sum();
        if ranks > AdapterSlots::MAX_RANKS {
            return Ok(Placement::TooMany);
        }
        let has_target =
            |projection: &Projection| all.iter().any(|(adapter, _)| adapter.targets().contains(projection));
        self.targets = Projection::ALL.into_iter().filter(has_target).collect();
        // The old memory is freed with the last recorded step that owns it.
        self.slots = None;
        self.places.clear();
        let slots = AdapterSlots::new(config, ranks, &self.targets, options)?;
        let mut start = 0;
        for (adapter, last_use) in all {
            let ranks = start..start + adapter.rank;
            start = ranks.end;
            slots.write(ranks.clone(), &adapter)?;
            self.places.push(Place { ranks, adapter: Rc::downgrade(&adapter), last_use });
        }
        self.slots = Some(Rc::new(slots));
        Ok(Placement::Moved)
    }
}

impl Place {
    fn holds(&self, adapter: &Rc<Adapter>) -> bool {
        std::ptr::eq(self.adapter.as_ptr(), Rc::as_ptr(adapter))
    }
}
