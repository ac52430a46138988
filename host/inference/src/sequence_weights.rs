//! Weights by which the tokens of a sequence go through the model.

use crate::executor::Executor;
use crate::policies::PolicySnapshot;

/// Weights of a sequence, by position. It has several if later weights kept the cache of earlier ones.
pub(crate) struct SequenceWeights<E: Executor> {
    first: PolicySnapshot<E>,
    /// Later weights with the first position that they compute, in order.
    later: Vec<(usize, PolicySnapshot<E>)>,
}

impl<E: Executor> Clone for SequenceWeights<E> {
    fn clone(&self) -> Self {
        Self { first: self.first.clone(), later: self.later.clone() }
    }
}

impl<E: Executor> SequenceWeights<E> {
    /// The same weights at all positions.
    pub(crate) fn new(snapshot: PolicySnapshot<E>) -> Self {
        Self { first: snapshot, later: Vec::new() }
    }

    /// Returns the weights at the first position.
    pub(crate) fn first(&self) -> &PolicySnapshot<E> {
        &self.first
    }

    /// Returns the weights at the last position.
    pub(crate) fn newest(&self) -> &PolicySnapshot<E> {
        self.later.last().map_or(&self.first, |(_, snapshot)| snapshot)
    }

    /// Returns the weights at a position.
    pub(crate) fn at(&self, position: usize) -> &PolicySnapshot<E> {
        let own = self.later.iter().rev().find(|(start, _)| *start <= position);
        own.map_or(&self.first, |(_, snapshot)| snapshot)
    }

    /// Returns the position after `position` from which on other weights compute. `None` if there are no others.
    pub(crate) fn end(&self, position: usize) -> Option<usize> {
        self.later.iter().map(|(start, _)| *start).find(|start| *start > position)
    }

    /// Takes other weights from a position on, which is not before those of earlier calls.
    pub(crate) fn change(&mut self, position: usize, snapshot: PolicySnapshot<E>) {
        self.later.retain(|(start, _)| *start < position);
        self.later.push((position, snapshot));
    }
}
