//! Counts allocations while a bench asks for it.
//!
//! The allocator of the program is the system's; in front of it stands one flag, which is off except
//! in `tenure bench decoders` and costs one relaxed load per allocation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Runs `work` and gives how many allocations the whole process made meanwhile.
pub(super) fn count<T>(work: impl FnOnce() -> T) -> (T, u64) {
    COUNT.store(0, Ordering::Relaxed);
    IS_COUNTING.store(true, Ordering::Relaxed);
    let made = work();
    IS_COUNTING.store(false, Ordering::Relaxed);
    (made, COUNT.load(Ordering::Relaxed))
}

#[allow(unsafe_code, reason = "an allocator can only be written so; it passes every call on unchanged")]
mod allocator {
    use super::{COUNT, IS_COUNTING};
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::sync::atomic::Ordering;

    struct Counting;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    fn note() {
        if IS_COUNTING.load(Ordering::Relaxed) {
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
    }

    // SAFETY: every call goes to the system's allocator with the caller's own arguments, so what the
    // caller promises holds for it too; counting touches two atomics and allocates nothing.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            note();
            // SAFETY: as the caller promised.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
            // SAFETY: as the caller promised; the pointer came from the system's allocator.
            unsafe { System.dealloc(pointer, layout) }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            note();
            // SAFETY: as the caller promised.
            unsafe { System.alloc_zeroed(layout) }
        }

        unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            note();
            // SAFETY: as the caller promised; the pointer came from the system's allocator.
            unsafe { System.realloc(pointer, layout, size) }
        }
    }
}
