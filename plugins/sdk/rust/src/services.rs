//! Services of the host: sandboxed code, the episode's random stream, log lines in the trace, retrieval, policies.
//!
//! Native builds (`cargo test` of a plugin) have no host: there the functions use the stand-ins of
//! [`testing`].

#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

/// Runs untrusted code. Only environments and the tools of agents may call it: elsewhere the call traps.
pub mod sandbox {
    pub use crate::bindings::pl_host::plugin::sandbox::{Ending, File, Job, Verdict};

    /// Runs the jobs, each on a fresh worker. Verdicts have the order of the jobs.
    #[must_use]
    pub fn execute(jobs: &[Job]) -> Vec<Verdict> {
        #[cfg(target_arch = "wasm32")]
        return crate::bindings::pl_host::plugin::sandbox::execute(jobs);
        #[cfg(not(target_arch = "wasm32"))]
        return jobs.iter().map(super::testing::run).collect();
    }

    /// Runs one Python program with an empty standard input.
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

/// The episode's random stream. Its position is part of the snapshot.
pub mod random {
    /// The next number of the stream.
    #[must_use]
    pub fn next() -> u64 {
        #[cfg(target_arch = "wasm32")]
        return crate::bindings::pl_host::plugin::random::next();
        #[cfg(not(target_arch = "wasm32"))]
        return super::testing::next_random();
    }

    /// A number below `bound`, all equally likely. Returns 0 if `bound` is 0.
    #[must_use]
    pub fn below(bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Lemire (2019): the high half of a product, redrawn if the low half would favour small numbers.
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(next()) * u128::from(bound);
            #[expect(clippy::cast_possible_truncation, reason = "the low half is needed")]
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }
}

/// Log lines in the run's trace.
pub mod log {
    use crate::bindings::pl_host::plugin::log::Level;

    fn write(level: Level, message: &str) {
        #[cfg(target_arch = "wasm32")]
        crate::bindings::pl_host::plugin::log::write(level, message);
        #[cfg(not(target_arch = "wasm32"))]
        eprintln!("{}: {message}", format!("{level:?}").to_lowercase());
    }

    /// Logs a detail for the plugin's author.
    pub fn debug(message: &str) {
        write(Level::Debug, message);
    }

    /// Logs information for users.
    pub fn info(message: &str) {
        write(Level::Info, message);
    }

    /// Logs a possible problem.
    pub fn warn(message: &str) {
        write(Level::Warn, message);
    }
}

/// Passages from the corpora of the environment. Only environments and the tools of agents may call it: elsewhere the
/// call traps.
pub mod retrieval {
    pub use crate::bindings::pl_host::plugin::retrieval::Passage;

    /// Returns the `k` best passages of the environment's first corpus for `query`, best first.
    ///
    /// # Errors
    /// The reason as text, if the environment has no corpus.
    pub fn retrieve(query: &str, k: u32) -> Result<Vec<Passage>, String> {
        find(None, query, k)
    }

    /// Returns the `k` best passages of `corpus`, a name in the workflow.
    ///
    /// # Errors
    /// The reason as text, if the environment has no such corpus.
    pub fn retrieve_from(corpus: &str, query: &str, k: u32) -> Result<Vec<Passage>, String> {
        find(Some(corpus), query, k)
    }

    fn find(corpus: Option<&str>, query: &str, k: u32) -> Result<Vec<Passage>, String> {
        #[cfg(target_arch = "wasm32")]
        return crate::bindings::pl_host::plugin::retrieval::retrieve(corpus, query, k);
        #[cfg(not(target_arch = "wasm32"))]
        return super::testing::find_passages(corpus, query, k);
    }
}

/// Policies that the plugin's `grant` names. Only rewards may ask them: elsewhere, and without the grant, the call traps.
pub mod policies {
    pub use crate::bindings::pl_host::plugin::policies::{Message, Role};

    /// Returns the greedy completion of a conversation by `policy`, a name in the workflow.
    ///
    /// # Errors
    /// The reason as text, if the policy can't generate.
    pub fn ask(policy: &str, messages: &[Message], max_tokens: u32) -> Result<String, String> {
        #[cfg(target_arch = "wasm32")]
        return crate::bindings::pl_host::plugin::policies::ask(policy, messages, max_tokens);
        #[cfg(not(target_arch = "wasm32"))]
        return super::testing::answer(policy, messages, max_tokens);
    }

    impl Message {
        /// A message of the user.
        pub fn user(text: impl Into<String>) -> Self {
            Self { role: Role::User, text: text.into() }
        }
    }
}
