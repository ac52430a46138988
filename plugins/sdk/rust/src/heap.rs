//! The plugin's heap: the standard library's allocation algorithm (dlmalloc) over memory that is there when
//! an instance starts.
//!
//! The standard library grows the linear memory at the first allocation. Growth costs two system calls, one
//! to make the pages accessible and one to revoke that when the host recycles the instance: a fifth of the
//! time of restoring an episode. Therefore the first pages are a static here, and the memory grows only when
//! they are full.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr;

use core::arch::wasm32;
use dlmalloc::{Allocator, Dlmalloc};

/// Size of the static first heap in bytes. It holds several times an episode's state of some ten kilobytes
/// with its snapshot and views. Pages that are never written take no memory.
const INITIAL_BYTES: usize = 256 << 10;
const PAGE: usize = 64 << 10;

#[global_allocator]
static HEAP: Heap = Heap(UnsafeCell::new(Dlmalloc::new_with_allocator(Pages { first: Cell::new(true) })));

static INITIAL_PAGES: InitialPages = InitialPages(UnsafeCell::new([MaybeUninit::uninit(); INITIAL_BYTES]));

/// Has the alignment of dlmalloc's allocations.
#[repr(align(16))]
struct InitialPages(UnsafeCell<[MaybeUninit<u8>; INITIAL_BYTES]>);

struct Heap(UnsafeCell<Dlmalloc<Pages>>);

// SAFETY: a plugin has one thread.
unsafe impl Sync for InitialPages {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    /// # Safety
    /// The reference must end before the next call.
    #[allow(
        clippy::mut_from_ref,
        reason = "a plugin has one thread, and the allocator makes no calls outside"
    )]
    unsafe fn dlmalloc(&self) -> &mut Dlmalloc<Pages> {
        // SAFETY: the caller upholds it.
        unsafe { &mut *self.0.get() }
    }
}

// SAFETY: dlmalloc upholds the contract; every reference to it ends with the call that created it.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.dlmalloc().malloc(layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.dlmalloc().calloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; the memory came from here with this layout.
        unsafe { self.dlmalloc().free(memory, layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; the memory came from here with this layout.
        unsafe { self.dlmalloc().realloc(memory, layout.size(), layout.align(), size) }
    }
}

/// Source of dlmalloc's memory.
struct Pages {
    /// True until [`INITIAL_PAGES`] is handed out.
    first: Cell<bool>,
}

// SAFETY: it hands out memory that has no other owner: the initial pages, once, and memory that it grew
// itself.
unsafe impl Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        if size <= INITIAL_BYTES && self.first.replace(false) {
            return (INITIAL_PAGES.0.get().cast(), INITIAL_BYTES, 0);
        }
        let pages = size.div_ceil(PAGE);
        match wasm32::memory_grow::<0>(pages) {
            usize::MAX => (ptr::null_mut(), 0, 0),
            // dlmalloc uses the end address too, and 2^32 has no address: leave out the last 16 bytes.
            before => match (before + pages).checked_mul(PAGE) {
                Some(end) => ((before * PAGE) as *mut u8, end - before * PAGE, 0),
                None => ((before * PAGE) as *mut u8, pages * PAGE - 16, 0),
            },
        }
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        ptr::null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}
