//! Kernels for the processor's vector units.

mod attention;
mod elementwise;
mod matrix;
mod product;
mod rotary;
mod simd;
mod softmax;
mod team;

pub use attention::{Attention, BLOCK, Heads, KeyValues, Query};
pub use elementwise::RmsNorm;
pub use matrix::{Format, Matrix};
pub use product::{Epilogue, Product, Term};
pub use rotary::Rotation;
pub use simd::Level;
pub use softmax::Distribution;

use team::{Scratch, Team};

/// The processor: its vector instructions and a team of threads.
pub struct Cpu {
    level: Level,
    team: Team,
    /// One a thread, grown on demand.
    scratch: Vec<Scratch>,
}

impl Cpu {
    /// Uses `threads` threads, the calling one included (0 counts as 1).
    ///
    /// # Errors
    /// When a thread can't be started.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        Self::with_level(threads, Level::detect())
    }

    /// As [`new`](Self::new), with at most the instructions of `level`.
    ///
    /// # Errors
    /// When a thread can't be started.
    pub fn with_level(threads: usize, level: Level) -> std::io::Result<Self> {
        let threads = threads.max(1);
        Ok(Self {
            level: level.min(Level::detect()),
            team: Team::new(threads)?,
            scratch: (0..threads).map(|_| Scratch::default()).collect(),
        })
    }

    /// The instructions in use.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Calls `body` once for each number below `count`, on whichever thread is free.
    pub fn each(&self, count: usize, body: impl Fn(usize) + Sync) {
        self.team.each(count, |_, i| body(i));
    }

    /// Threads in use.
    pub fn threads(&self) -> usize {
        self.team.threads()
    }
}
