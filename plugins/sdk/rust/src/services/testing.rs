//! Stand-ins for the host's services in a plugin's own tests, one set per thread.

use std::cell::RefCell;

use super::policies::Message;
use super::retrieval::Passage;
use super::sandbox::{Ending, Job, Verdict};

type Sandbox = Box<dyn FnMut(&Job) -> Verdict>;
type Corpus = Box<dyn FnMut(&str, u32) -> Vec<Passage>>;
type Policies = Box<dyn FnMut(&str, &[Message]) -> String>;

struct Services {
    sandbox: Option<Sandbox>,
    corpus: Option<Corpus>,
    policies: Option<Policies>,
    random: u64,
}

thread_local! {
    static SERVICES: RefCell<Services> = const { RefCell::new(Services { sandbox: None, corpus: None, policies: None, random: 0 }) };
}

/// Sets the function that answers sandbox jobs.
pub fn set_sandbox(run: impl FnMut(&Job) -> Verdict + 'static) {
    SERVICES.with_borrow_mut(|services| services.sandbox = Some(Box::new(run)));
}

/// Sets the function that answers retrieval queries, of whichever corpus.
pub fn set_corpus(find: impl FnMut(&str, u32) -> Vec<Passage> + 'static) {
    SERVICES.with_borrow_mut(|services| services.corpus = Some(Box::new(find)));
}

/// Sets the function that answers questions to policies.
pub fn set_policies(answer: impl FnMut(&str, &[Message]) -> String + 'static) {
    SERVICES.with_borrow_mut(|services| services.policies = Some(Box::new(answer)));
}

/// Restarts the random stream from `seed`.
pub fn set_random(seed: u64) {
    SERVICES.with_borrow_mut(|services| services.random = seed);
}

/// Verdict of a program that printed `stdout` and exited with 0.
#[must_use]
pub fn printed(stdout: &str) -> Verdict {
    Verdict { ending: Ending::Ok, exit: Some(0), stdout: stdout.to_owned(), stderr: String::new() }
}

pub(super) fn run(job: &Job) -> Verdict {
    SERVICES.with_borrow_mut(|services| match &mut services.sandbox {
        Some(run) => run(job),
        None => Verdict {
            ending: Ending::LostWorker,
            exit: None,
            stdout: String::new(),
            stderr: "no sandbox here: a test sets one with services::testing::set_sandbox".to_owned(),
        },
    })
}

pub(super) fn find_passages(_: Option<&str>, query: &str, k: u32) -> Result<Vec<Passage>, String> {
    SERVICES.with_borrow_mut(|services| match &mut services.corpus {
        Some(find) => Ok(find(query, k)),
        None => Err("no corpus here: a test sets one with services::testing::set_corpus".to_owned()),
    })
}

pub(super) fn answer(policy: &str, messages: &[Message], _: u32) -> Result<String, String> {
    SERVICES.with_borrow_mut(|services| match &mut services.policies {
        Some(answer) => Ok(answer(policy, messages)),
        None => Err("no policies here: a test sets them with services::testing::set_policies".to_owned()),
    })
}

/// `SplitMix64` (Steele, Lea and Flood 2014).
pub(super) fn next_random() -> u64 {
    SERVICES.with_borrow_mut(|services| {
        services.random = services.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = services.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}
