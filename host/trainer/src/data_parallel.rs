//! Data parallelism: ranks that share the work of each optimiser step.
//!
//! Each rank runs the passes of its share of a mini-batch, the gradients are summed over the ranks in their order, and every
//! rank takes the same optimiser step, so that all have the same weights. Passes before an update are divided as well. One
//! process may do the shares of all ranks in turn; the bits are those of processes that each do one.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tch::{Kind, TchError, Tensor, no_grad};

use crate::error::CollectiveError;

/// Numbers that ranks sum at a time: 64 MiB of f32, so that buffers stay small beside a model.
const SUM_ELEMENTS: i64 = 1 << 24;

/// Communication of a rank with the others. All ranks make the same calls in the same order.
pub trait Collective: fmt::Debug + Send + Sync {
    /// Index of this rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn ranks(&self) -> usize;

    /// Sends a message to every rank. Returns those of all ranks, in their order.
    ///
    /// # Errors
    /// If a rank is away.
    fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, CollectiveError>;

    /// Replaces the numbers `[n]` (f32 or f64) by their sums over all ranks, added in the order of ranks.
    ///
    /// # Errors
    /// If a rank is away or libtorch fails.
    fn sum(&self, numbers: &mut Tensor) -> Result<(), CollectiveError>;
}

/// Division of a learner's work among ranks.
#[derive(Debug, Clone)]
pub(crate) struct DataParallel {
    ranks: usize,
    /// `None` if this process does the shares of all ranks.
    collective: Option<Arc<dyn Collective>>,
}

impl DataParallel {
    /// All ranks in this process.
    pub fn alone(ranks: usize) -> Self {
        Self { ranks: ranks.max(1), collective: None }
    }

    /// One rank in this process.
    pub fn joined(collective: Arc<dyn Collective>) -> Self {
        Self { ranks: collective.ranks(), collective: Some(collective) }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Ranks whose shares this process does.
    pub fn own(&self) -> std::ops::Range<usize> {
        match &self.collective {
            Some(collective) => collective.rank()..collective.rank() + 1,
            None => 0..self.ranks,
        }
    }

    /// Returns true if this process does the work with an index, where ranks take turns.
    pub fn does(&self, index: usize) -> bool {
        self.own().contains(&(index % self.ranks))
    }

    /// Returns the values of all ranks in their order, given those of the ranks of this process.
    pub fn gather<T: Serialize + DeserializeOwned>(&self, own: Vec<T>) -> Result<Vec<T>, CollectiveError> {
        let Some(collective) = &self.collective else { return Ok(own) };
        let encoded = postcard::to_allocvec(&own).map_err(CollectiveError::message)?;
        let mut all = Vec::new();
        for message in collective.gather(encoded)? {
            all.append(&mut postcard::from_bytes(&message).map_err(CollectiveError::message)?);
        }
        Ok(all)
    }

    /// Fills in the rows that other ranks computed. Rows of others are empty here.
    pub fn fill(&self, rows: &mut [Vec<f32>]) -> Result<(), CollectiveError> {
        if self.collective.is_none() {
            return Ok(());
        }
        for of_rank in self.gather(vec![rows.to_vec()])? {
            if of_rank.len() != rows.len() {
                return Err(CollectiveError::Differs);
            }
            for (row, other) in rows.iter_mut().zip(of_rank).filter(|(_, other)| !other.is_empty()) {
                *row = other;
            }
        }
        Ok(())
    }

    /// Sums gradients over ranks in other processes, in place.
    pub fn sum(&self, gradients: &[Tensor]) -> Result<(), CollectiveError> {
        let Some(collective) = &self.collective else { return Ok(()) };
        no_grad(|| {
            for parts in parts(gradients, SUM_ELEMENTS)? {
                let mut flat = Tensor::f_cat(&parts, 0)?;
                collective.sum(&mut flat)?;
                let mut start = 0;
                for mut part in parts {
                    let count = part.size()[0];
                    part.f_copy_(&flat.f_narrow(0, start, count)?)?;
                    start += count;
                }
            }
            Ok(())
        })
    }
}

/// Divides tensors into lists of flat views with at most `most` numbers of one kind each.
fn parts(tensors: &[Tensor], most: i64) -> Result<Vec<Vec<Tensor>>, TchError> {
    let mut lists: Vec<Vec<Tensor>> = Vec::new();
    let (mut room, mut kind) = (0, Kind::Float);
    for tensor in tensors {
        let flat = tensor.f_view([-1])?;
        let mut start = 0;
        while start < flat.size()[0] {
            if room == 0 || kind != flat.kind() {
                lists.push(Vec::new());
                (room, kind) = (most, flat.kind());
            }
            let count = room.min(flat.size()[0] - start);
            let part = flat.f_narrow(0, start, count)?;
            lists.last_mut().into_iter().for_each(|list| list.push(part.shallow_clone()));
            (start, room) = (start + count, room - count);
        }
    }
    Ok(lists)
}

/// Sums of the gradients of ranks that one process does in turn.
pub(crate) struct RankSums {
    /// `None` before the first rank.
    sums: Option<Vec<Tensor>>,
}

impl RankSums {
    pub fn new() -> Self {
        Self { sums: None }
    }

    /// Adds the gradients of a rank, which are zero afterwards.
    pub fn add(&mut self, gradients: &[Tensor]) -> Result<(), TchError> {
        let copy = |gradient: &Tensor| {
            let mut copy = gradient.f_empty_like()?;
            copy.f_copy_(gradient).map(|()| copy)
        };
        no_grad(|| {
            match &mut self.sums {
                None => self.sums = Some(gradients.iter().map(copy).collect::<Result<_, _>>()?),
                Some(sums) => {
                    for (sum, gradient) in sums.iter_mut().zip(gradients) {
                        let _ = sum.f_add_(gradient)?;
                    }
                }
            }
            gradients.iter().try_for_each(|gradient| gradient.shallow_clone().f_zero_().map(drop))
        })
    }

    /// Writes the sums to the gradients.
    pub fn write(self, gradients: &[Tensor]) -> Result<(), TchError> {
        no_grad(|| {
            for (sum, gradient) in self.sums.iter().flatten().zip(gradients) {
                gradient.shallow_clone().f_copy_(sum)?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod ranks_tests;

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    #[test]
    fn parts_are_views_of_one_kind_and_bounded_size() {
        let numbers = |count: i64, kind| Tensor::zeros([count], (kind, Device::Cpu));
        let tensors = [
            numbers(3, Kind::Float).view([1, 3]),
            numbers(6, Kind::Float),
            numbers(2, Kind::Double),
            numbers(0, Kind::Double),
            numbers(1, Kind::Float),
        ];
        let lists = parts(&tensors, 4).unwrap();
        let sizes = |list: &Vec<Tensor>| list.iter().map(|part| part.size()[0]).collect::<Vec<_>>();
        let all: Vec<Vec<i64>> = lists.iter().map(sizes).collect();
        assert_eq!(all, [vec![3, 1], vec![4], vec![1], vec![2], vec![1]]);
        let mut first = lists[0][1].shallow_clone();
        let _ = first.fill_(7.0);
        assert_eq!(tensors[1].double_value(&[0]), 7.0);
    }
}
