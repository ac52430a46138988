//! The guest's heap: the standard library's allocator, over memory that an instance already has when it starts.
//!
//! The standard library grows the memory before it gives out a single byte. Growing is two calls to the kernel, one
//! to open the pages and one to close them when the host takes the instance back: a fifth of the time that it takes to
//! restore an episode. So the first pages are a static here, and the memory grows when they are full.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr;

use core::arch::wasm32;
use dlmalloc::{Allocator, Dlmalloc};

/// Bytes of the heap that need no growth: an episode's state of some ten kilobytes, its snapshot and its views, several
/// times over. Pages that nobody writes to take no memory.
const FIRST: usize = 256 << 10;
const PAGE: usize = 64 << 10;

#[global_allocator]
static HEAP: Heap = Heap(UnsafeCell::new(Dlmalloc::new_with_allocator(Pages { first: Cell::new(true) })));

static FIRST_PAGES: FirstPages = FirstPages(UnsafeCell::new([MaybeUninit::uninit(); FIRST]));

/// As aligned as what dlmalloc hands out.
#[repr(align(16))]
struct FirstPages(UnsafeCell<[MaybeUninit<u8>; FIRST]>);

struct Heap(UnsafeCell<Dlmalloc<Pages>>);

// SAFETY: a guest has one thread, here and below.
unsafe impl Sync for FirstPages {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    /// # Safety
    /// The reference ends before the next call.
    #[allow(clippy::mut_from_ref, reason = "a guest has one thread, and the allocator calls nobody")]
    unsafe fn dlmalloc(&self) -> &mut Dlmalloc<Pages> {
        // SAFETY: the caller's.
        unsafe { &mut *self.0.get() }
    }
}

// SAFETY: dlmalloc's own promises; every reference to it ends with the call it was made for.
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

/// Where dlmalloc gets its memory from.
struct Pages {
    /// [`FIRST_PAGES`] are still to be given out.
    first: Cell<bool>,
}

// SAFETY: what it gives out is nobody else's: the first pages once, and memory that it grew itself.
unsafe impl Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        if size <= FIRST && self.first.replace(false) {
            return (FIRST_PAGES.0.get().cast(), FIRST, 0);
        }
        let pages = size.div_ceil(PAGE);
        match wasm32::memory_grow::<0>(pages) {
            usize::MAX => (ptr::null_mut(), 0, 0),
            // The end of what it has is an address too, and there is none after the last.
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
