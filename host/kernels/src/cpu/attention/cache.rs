//! Keys and values of all tokens, in blocks.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Number of tokens of a block: one vector of AVX-512.
pub const BLOCK: usize = 16;

/// Dimensions of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub dim: usize,
}

impl Heads {
    /// Returns the number of values in a row of queries, keys and values.
    pub fn stride(self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.dim
    }

    /// Returns the width of a value in the cache, padded to whole vectors of any width.
    pub(super) fn padded_dim(self) -> usize {
        self.dim.next_multiple_of(16)
    }

    /// Returns the number of values of a block's keys of one head.
    pub(super) fn keys_len(self) -> usize {
        self.dim * BLOCK
    }

    /// Returns the number of values of a block's values of one head.
    fn values_len(self) -> usize {
        self.padded_dim() * BLOCK
    }
}

/// Keys and values of all layers, in blocks. Memory for a block is allocated when it is first written, and
/// kept.
pub struct KvCache {
    pub(super) heads: Heads,
    layers: usize,
    pages: Vec<Option<Page>>,
}

/// Memory of a block. For each layer and head: keys `[dim, BLOCK]`, then values `[BLOCK, padded_dim]`.
struct Page {
    start: NonNull<f32>,
    layout: Layout,
}

// SAFETY: the page owns its memory.
unsafe impl Send for Page {}
// SAFETY: threads that write it at the same time write different slots; see `KvCache::write`.
unsafe impl Sync for Page {}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr().cast(), self.layout) }
    }
}

impl KvCache {
    /// Creates a cache without blocks.
    ///
    /// # Panics
    /// If there are no heads, or if the number of query heads is not a multiple of the number of key heads.
    pub fn new(heads: Heads, layers: usize) -> Self {
        let Heads { heads: query_heads, kv_heads, .. } = heads;
        assert!(query_heads > 0 && kv_heads > 0 && query_heads.is_multiple_of(kv_heads), "{heads:?}");
        Self { heads, layers, pages: Vec::new() }
    }

    /// Frees the memory of all blocks.
    pub fn clear(&mut self) {
        self.pages = Vec::new();
    }

    /// Returns the size of one block in bytes.
    pub fn block_bytes(&self) -> usize {
        self.layers
            * self.heads.kv_heads
            * (self.heads.keys_len() + self.heads.values_len())
            * size_of::<f32>()
    }

    /// Copies a block.
    ///
    /// # Panics
    /// If `from` was never written.
    pub fn copy(&mut self, from: u32, to: u32) {
        self.reserve([to]);
        let count = self.block_bytes() / size_of::<f32>();
        let (from, to) = (self.page(from), self.page(to));
        // SAFETY: both are blocks of this size, and `self` is borrowed exclusively; copying one onto itself changes nothing.
        unsafe { std::ptr::copy(from.start.as_ptr(), to.start.as_ptr(), count) };
    }

    /// Allocates memory for blocks that have none.
    pub(crate) fn reserve(&mut self, blocks: impl IntoIterator<Item = u32>) {
        let bytes = self.block_bytes().max(1);
        for block in blocks {
            let index = block as usize;
            if index >= self.pages.len() {
                self.pages.resize_with(index + 1, || None);
            }
            if self.pages[index].is_none() {
                #[allow(clippy::expect_used, reason = "a block is never that large")]
                let layout = Layout::from_size_align(bytes, 64).expect("a block that fits memory");
                // SAFETY: the size is not zero.
                let start = unsafe { alloc_zeroed(layout) }.cast();
                let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
                self.pages[index] = Some(Page { start, layout });
            }
        }
    }

    fn page(&self, block: u32) -> &Page {
        let page = self.pages.get(block as usize).and_then(Option::as_ref);
        #[allow(clippy::expect_used, reason = "a mistake of the caller, as documented")]
        page.expect("a block that was written")
    }

    /// Returns the address of the keys of a layer's head; the values follow.
    #[inline(always)]
    pub(super) fn head_start(&self, block: u32, layer: usize, head: usize) -> *mut f32 {
        assert!(layer < self.layers && head < self.heads.kv_heads, "layer {layer}, head {head}");
        let offset = (layer * self.heads.kv_heads + head) * (self.heads.keys_len() + self.heads.values_len());
        // SAFETY: within the page, as checked.
        unsafe { self.page(block).start.as_ptr().add(offset) }
    }

    /// Writes one token's key and value of a head.
    ///
    /// # Safety
    /// The block was reserved, and no other thread reads or writes this slot of it.
    #[inline(always)]
    pub(crate) unsafe fn write(
        &self,
        layer: usize,
        block: u32,
        slot: usize,
        head: usize,
        key: &[f32],
        value: &[f32],
    ) {
        assert!(slot < BLOCK && key.len() == self.heads.dim && value.len() == self.heads.dim);
        let start = self.head_start(block, layer, head);
        // SAFETY: within the head's keys and values; the caller has the slot.
        unsafe {
            for (d, x) in key.iter().enumerate() {
                start.add(d * BLOCK + slot).write(*x);
            }
            let values = start.add(self.heads.keys_len() + slot * self.heads.padded_dim());
            values.copy_from_nonoverlapping(value.as_ptr(), value.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "heads: 0")]
    fn a_cache_without_query_heads_is_refused() {
        KvCache::new(Heads { heads: 0, kv_heads: 1, dim: 2 }, 1);
    }
}
