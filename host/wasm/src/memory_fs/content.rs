//! The content of a file in pages.
//!
//! Only written pages exist: a hole reads as zeros and costs nothing, as on Linux. A page grows in powers of two, so that
//! small files are cheap, and counts against the budget by its capacity.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::memory_budget::{Exhausted, MemoryBudget, MemoryCharge};

/// Maximum size of a page, in bytes.
pub const PAGE: usize = 64 << 10;

/// Smallest allocation of a page.
const SMALLEST_PAGE: usize = 64;

/// Bytes that the host needs for a page in addition to its content.
const PAGE_OVERHEAD: u64 = 128;

/// Bytes that could be written in the time in which a page is made and freed.
const NEW_PAGE: u64 = 3_000;

/// Maximum size of a file, holes included, in bytes.
pub(super) const MAX_SIZE: u64 = 1 << 46;

/// Content of a file.
#[derive(Debug)]
pub(super) struct Content {
    size: u64,
    /// Pages by their number. Bytes after the end of a page are zeros up to the next one.
    pages: BTreeMap<u64, Page>,
}

#[derive(Debug)]
struct Page {
    bytes: Vec<u8>,
    charge: MemoryCharge,
}

impl Page {
    fn new(budget: &MemoryBudget) -> Result<Self, Exhausted> {
        Ok(Self { bytes: Vec::new(), charge: budget.charge(PAGE_OVERHEAD)? })
    }

    /// Makes the page at least `length` bytes long. Returns the number of bytes that move to a larger allocation.
    fn extend(&mut self, length: usize) -> Result<u64, Exhausted> {
        let mut moved = 0;
        if length > self.bytes.capacity() {
            moved = self.bytes.len() as u64;
            let capacity = length.next_power_of_two().max(SMALLEST_PAGE);
            self.charge.grow(PAGE_OVERHEAD + capacity as u64)?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        if length > self.bytes.len() {
            self.bytes.resize(length, 0);
        }
        Ok(moved)
    }

    /// Cuts the page off and frees the memory. Returns the number of bytes that move to a smaller allocation.
    fn truncate(&mut self, length: usize) -> u64 {
        if length >= self.bytes.len() {
            return 0;
        }
        self.bytes.truncate(length);
        self.bytes.shrink_to_fit();
        self.charge.shrink(PAGE_OVERHEAD + length as u64);
        length as u64
    }
}

impl Content {
    pub(super) fn new() -> Self {
        Self { size: 0, pages: BTreeMap::new() }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Reads at most `length` bytes from `offset`. Returns nothing at the end.
    pub(super) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let end = offset.saturating_add(length as u64).min(self.size);
        let mut read = vec![0; end.saturating_sub(offset) as usize];
        for (page, range) in spans(offset, read.len()) {
            if let Some(page) = self.pages.get(&page) {
                let target = &mut read[(range.position)..(range.position + range.length)];
                let stored = page.bytes.get(range.start..).unwrap_or(&[]);
                let count = stored.len().min(target.len());
                target[..count].copy_from_slice(&stored[..count]);
            }
        }
        read
    }

    /// Writes at `offset`, and returns the number of other bytes that it had to write: zeros before the data, those of
    /// pages that moved, and [`NEW_PAGE`] for each new page. The bytes before the failure of a page are written.
    pub(super) fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        budget: &MemoryBudget,
    ) -> Result<u64, Exhausted> {
        let mut others = 0;
        for (number, range) in spans(offset, data.len()) {
            let page = match self.pages.entry(number) {
                Entry::Vacant(vacant) => {
                    others += NEW_PAGE;
                    vacant.insert(Page::new(budget)?)
                }
                Entry::Occupied(occupied) => occupied.into_mut(),
            };
            let end = range.start + range.length;
            others += range.start.saturating_sub(page.bytes.len()) as u64;
            others += page.extend(end)?;
            page.bytes[range.start..end]
                .copy_from_slice(&data[range.position..range.position + range.length]);
            self.size = self.size.max(number * PAGE as u64 + end as u64);
        }
        Ok(others)
    }

    /// Sets the size. A larger file gets a hole; the pages after the end of a smaller one are freed. Returns the number
    /// of bytes that moved.
    pub(super) fn resize(&mut self, size: u64) -> u64 {
        let mut moved = 0;
        if size < self.size {
            let (last, length) = (size / PAGE as u64, (size % PAGE as u64) as usize);
            let mut cut = self.pages.split_off(&last);
            if let Some(mut page) = cut.remove(&last).filter(|_| length > 0) {
                moved = page.truncate(length);
                self.pages.insert(last, page);
            }
        }
        self.size = size;
        moved
    }
}

/// Part of a page.
struct PageRange {
    /// Position in the data.
    position: usize,
    /// Start within the page.
    start: usize,
    length: usize,
}

/// Returns the pages that `length` bytes from `offset` lie in, and their parts.
fn spans(offset: u64, length: usize) -> impl Iterator<Item = (u64, PageRange)> {
    let mut position = 0;
    std::iter::from_fn(move || {
        if position == length {
            return None;
        }
        let at = offset + position as u64;
        let start = (at % PAGE as u64) as usize;
        let range = PageRange { position, start, length: (PAGE - start).min(length - position) };
        position += range.length;
        Some((at / PAGE as u64, range))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Operation {
        Write(u64, Vec<u8>),
        Resize(u64),
        Read(u64, usize),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        // Around the borders of pages.
        let place = prop_oneof![0u64..300, 65_400u64..65_700, 131_000u64..131_200, 0u64..200_000];
        let bytes = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            (1usize..150_000, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
        ];
        prop_oneof![
            (place.clone(), bytes).prop_map(|(offset, bytes)| Operation::Write(offset, bytes)),
            place.clone().prop_map(Operation::Resize),
            (place, 0usize..150_000).prop_map(|(offset, length)| Operation::Read(offset, length)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn content_equals_that_of_a_plain_buffer(operations in prop::collection::vec(operation(), 1..30)) {
            let budget = MemoryBudget::new(u64::MAX);
            let (mut content, mut plain) = (Content::new(), Vec::new());
            for operation in operations {
                match operation {
                    Operation::Write(offset, bytes) => {
                        content.write(offset, &bytes, &budget).unwrap();
                        let end = offset as usize + bytes.len();
                        if !bytes.is_empty() {
                            plain.resize(plain.len().max(end), 0);
                            plain[offset as usize..end].copy_from_slice(&bytes);
                        }
                    }
                    Operation::Resize(size) => {
                        prop_assert!(content.resize(size) <= size.min(PAGE as u64));
                        plain.resize(size as usize, 0);
                    }
                    Operation::Read(offset, length) => {
                        let start = (offset as usize).min(plain.len());
                        let end = (start + length).min(plain.len());
                        prop_assert_eq!(content.read(offset, length), &plain[start..end]);
                    }
                }
                prop_assert_eq!(content.size(), plain.len() as u64);
            }
            prop_assert_eq!(content.read(0, usize::MAX), plain);
        }
    }

    #[test]
    fn truncated_content_returns_its_memory() {
        let budget = MemoryBudget::new(1 << 20);
        let mut content = Content::new();
        for _ in 0..20 {
            content.write(0, &vec![1; 900 << 10], &budget).unwrap();
            assert!(content.write(2 << 20, &vec![1; 200 << 10], &budget).is_err());
            content.resize(10);
            content.write(1 << 30, b"far away", &budget).unwrap();
            content.resize(0);
        }
        drop(content);
        // Nothing is left.
        budget.take(1 << 20).unwrap();
    }

    #[test]
    fn zeros_before_the_data_are_counted_each_time() {
        let budget = MemoryBudget::new(1 << 20);
        let mut content = Content::new();
        let write = |content: &mut Content, offset| content.write(offset, b"x", &budget).unwrap();
        assert_eq!([write(&mut content, 40_000), write(&mut content, 40_000)], [NEW_PAGE + 40_000, 0]);
        assert_eq!(content.resize(10), 10);
        // Zeros, and the ten bytes that move to a larger allocation.
        assert_eq!([write(&mut content, 40_000), write(&mut content, 40_001)], [39_990 + 10, 0]);
        // Only those of the page: a hole has no zeros.
        assert_eq!(write(&mut content, 3 * PAGE as u64 + 5), NEW_PAGE + 5);
        // The last page is freed, and the first one cut off.
        assert_eq!(content.resize(30_000), 30_000);
        assert_eq!(content.resize(30_000), 0);
        assert_eq!(content.resize(0), 0);
        assert_eq!(write(&mut content, 0), NEW_PAGE);
    }

    #[test]
    fn small_files_cost_little() {
        let budget = MemoryBudget::new(1000 * (64 + PAGE_OVERHEAD));
        let contents: Vec<Content> = (0..1000)
            .map(|_| {
                let mut content = Content::new();
                content.write(0, b"a line\n", &budget).unwrap();
                content
            })
            .collect();
        assert_eq!(contents.len(), 1000);
    }
}
