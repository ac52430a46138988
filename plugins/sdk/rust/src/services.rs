//! What the host does for guests: code in a sandbox, the episode's random stream, lines for the trace, passages.
//!
//! On the host's own machine (`cargo test` of a guest) there is no host to ask, so the functions answer from
//! [`testing`], which a test fills.

#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

/// Untrusted code. Only environments may call it: elsewhere the call traps.
pub mod sandbox {
    pub use crate::bindings::pl_host::plugin::sandbox::{Ending, File, Job, Verdict};

    /// Runs the jobs, each on a fresh worker. Verdicts come in the order of the jobs.
    #[must_use]
    pub fn execute(jobs: &[Job]) -> Vec<Verdict> {
        #[cfg(target_arch = "wasm32")]
        return crate::bindings::pl_host::plugin::sandbox::execute(jobs);
        #[cfg(not(target_arch = "wasm32"))]
        return jobs.iter().map(super::testing::run).collect();
    }

    /// Runs one Python program with nothing on its standard input.
    #[must_use]
    pub fn python(source: &str) -> Verdict {
        let job = Job {
            language: "python".to_owned(),
            source: source.to_owned(),
            stdin: String::new(),
            files: Vec::new(),
        };
        execute(&[job]).pop().unwrap_or_else(|| Verdict {
            ending: Ending::LostWorker,
            exit: None,
            stdout: String::new(),
            stderr: "the sandbox returned no verdict".to_owned(),
        })
    }
}

/// The episode's random stream. Its position travels with the snapshot.
pub mod random {
    /// The next number of the stream.
    #[must_use]
    pub fn next() -> u64 {
        #[cfg(target_arch = "wasm32")]
        return crate::bindings::pl_host::plugin::random::next();
        #[cfg(not(target_arch = "wasm32"))]
        return super::testing::next_random();
    }

    /// A number below `bound`, every one as likely as the others. 0 for a bound of 0.
    #[must_use]
    pub fn below(bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Lemire (2019): the high half of a product, redrawn where the low half would favour small numbers.
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(next()) * u128::from(bound);
            #[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }
}

/// Lines for the run's trace.
pub mod log {
    use crate::bindings::pl_host::plugin::log::Level;

    fn write(level: Level, message: &str) {
        #[cfg(target_arch = "wasm32")]
        crate::bindings::pl_host::plugin::log::write(level, message);
        #[cfg(not(target_arch = "wasm32"))]
        eprintln!("{}: {message}", format!("{level:?}").to_lowercase());
    }

    /// What only the plugin's author wants to know.
    pub fn debug(message: &str) {
        write(Level::Debug, message);
    }

    /// What a user may want to know.
    pub fn info(message: &str) {
        write(Level::Info, message);
    }

    /// What a user should look into.
    pub fn warn(message: &str) {
        write(Level::Warn, message);
    }
}

/// Passages from the workflow's corpus.
pub mod retrieval {
    pub use crate::bindings::pl_host::plugin::retrieval::Passage;

    /// The `k` passages that fit `query` best, best first.
    ///
    /// # Errors
    /// In words, when the workflow has no corpus.
    pub fn retrieve(query: &str, k: u32) -> Result<Vec<Passage>, String> {
        #[cfg(target_arch = "wasm32")]
        return crate::bindings::pl_host::plugin::retrieval::retrieve(query, k);
        #[cfg(not(target_arch = "wasm32"))]
        return super::testing::find_passages(query, k);
    }
}
