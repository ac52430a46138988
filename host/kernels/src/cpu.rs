//! Kernels for the vector instructions of CPUs.

pub mod affinity;
mod attention;
mod elementwise;
mod flash;
pub mod fused;
mod groups;
pub mod matmul;
mod matrix;
mod product;
mod rotary;
mod simd;
mod softmax;
mod storage;
mod thread_pool;
mod unpack;

pub use attention::{Attention, BLOCK, Heads, KvCache, Query};
pub use elementwise::RmsNorm;
pub use flash::{FlashAttention, FlashGradients, FlashResults, FlashSequence};
pub use groups::{CodeWidth, GroupFormat, QuantizedRow};
pub use matrix::{Matrix, Storage, WeightFormat};
pub use product::{Epilogue, Product, Term};
pub use rotary::Rotation;
pub use simd::SimdLevel;
pub use softmax::Distribution;

use thread_pool::{Scratch, ThreadPool};

/// Runs a body for each number below a count, on any threads, and returns when all have ended.
pub type ParallelFor<'a> = &'a dyn Fn(usize, &(dyn Fn(usize) + Sync));

/// Vector instructions and threads of the kernels of training.
#[derive(Clone, Copy)]
pub struct Workers<'a> {
    level: SimdLevel,
    threads: usize,
    parallel_for: ParallelFor<'a>,
}

impl<'a> Workers<'a> {
    /// Uses the best instructions of this CPU, and `parallel_for`, which has at most `threads` threads.
    pub fn new(threads: usize, parallel_for: ParallelFor<'a>) -> Self {
        Self::with_level(SimdLevel::detect(), threads, parallel_for)
    }

    /// Same as [`new`](Self::new), with at most the instructions of `level`.
    pub fn with_level(level: SimdLevel, threads: usize, parallel_for: ParallelFor<'a>) -> Self {
        Self { level: level.min(SimdLevel::detect()), threads, parallel_for }
    }
}

/// The CPU: its vector instructions and a pool of threads.
pub struct Cpu {
    level: SimdLevel,
    pool: ThreadPool,
    /// One per thread, grown on demand.
    scratch: Vec<Scratch>,
    /// Buffer for the results of attention's parts. All threads write it; only the calling thread borrows it.
    part_results: Scratch,
}

impl Cpu {
    /// Uses `threads` threads, including the calling one (0 counts as 1).
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        Self::with_level(threads, SimdLevel::detect())
    }

    /// Same as [`new`](Self::new), with at most the instructions of `level`.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn with_level(threads: usize, level: SimdLevel) -> std::io::Result<Self> {
        let threads = threads.max(1);
        Ok(Self {
            level: level.min(SimdLevel::detect()),
            pool: ThreadPool::new(threads)?,
            scratch: (0..threads).map(|_| Scratch::default()).collect(),
            part_results: Scratch::default(),
        })
    }

    /// Returns the set of instructions in use.
    pub fn level(&self) -> SimdLevel {
        self.level
    }

    /// Calls `body` once for each number below `count`, on any free thread.
    pub fn parallel_for(&self, count: usize, body: impl Fn(usize) + Sync) {
        self.pool.for_each(count, |_, i| body(i));
    }

    /// Returns the number of threads in use.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }
}
