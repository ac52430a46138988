//! The rounds of a search.

use std::path::PathBuf;

use super::execute::Executor;
use super::propose::Proposer;
use super::record::{Archive, DesignRecord};
use super::subject::{Proposal, Subject};
use super::view::view_of_first_task;
use crate::error::Error;
use crate::host::Host;
use crate::session::Session;
use crate::stop_request::StopRequest;
use crate::workflow::CheckedWorkflow;

/// Options of a search.
#[derive(Debug, Clone)]
pub struct SearchOptions {
    /// Scenario to design a team for. `None` for the first that has a designer.
    pub scenario: Option<String>,
    /// Rounds of proposals, those of earlier searches in the folder included.
    pub rounds: u32,
    /// Tokens after which no further design is proposed or played: those of designs and of episodes.
    pub budget: Option<u64>,
    /// Folder of the designs.
    pub folder: PathBuf,
}

/// End of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchEnding {
    /// All rounds were played.
    Done,
    /// The budget is spent.
    Spent,
    /// It was interrupted.
    Interrupted,
}

/// Looks for teams of a scenario. Each design is recorded and then handed to `found`.
///
/// # Errors
/// If the workflow has no designer, the folder has other designs or can't be written, or generation fails. A design that is
/// wrong or fails is no error.
pub fn search<E: From<Error>>(
    host: &Host,
    checked: &CheckedWorkflow,
    session: &Session,
    options: &SearchOptions,
    stop: &StopRequest,
    mut found: impl FnMut(&DesignRecord) -> Result<(), E>,
) -> Result<SearchEnding, E> {
    let subject = Subject::new(checked, options.scenario.as_deref())?;
    let mut archive = Archive::open(&options.folder, subject.fingerprint(session.seed))?;
    let view = host.block_on(view_of_first_task(host, checked, session, subject.scenario))?;
    let proposer = Proposer::new(session, &subject, &view);
    let executor =
        Executor::new(host, checked, session, (subject.scenario, &subject.brief, &subject.skeleton))?;
    let files = executor.builder().files(&checked.folder, &options.folder);
    // A search that was killed may have recorded a design and not written it.
    files.write_best(host, &mut archive)?;
    for round in 0..=options.rounds {
        let missing = missing(&archive, round, subject.count(round, &view));
        if missing.is_empty() {
            continue;
        }
        let is_over = |archive: &Archive| options.budget.is_some_and(|budget| archive.tokens() >= budget);
        if is_over(&archive) {
            return Ok(SearchEnding::Spent);
        }
        let proposals = match round {
            0 => subject.hand_made(&view).into_iter().map(Proposal::hand_made).collect(),
            _ => host.block_on(proposer.propose(round, &missing, &archive))?,
        };
        for (index, proposal) in proposals.into_iter().enumerate() {
            // Those of a model are the missing ones alone.
            let index = if round == 0 { index as u32 } else { missing[index] };
            if !missing.contains(&index) {
                continue;
            }
            if stop.is_requested() {
                return Ok(SearchEnding::Interrupted);
            }
            if is_over(&archive) {
                return Ok(SearchEnding::Spent);
            }
            let record = subject.assess(round, index, proposal, &archive, &executor)?;
            archive.append(&record)?;
            files.write_best(host, &mut archive)?;
            found(&record)?;
        }
    }
    Ok(SearchEnding::Done)
}

/// Numbers of a round's designs that are not recorded.
fn missing(archive: &Archive, round: u32, count: u32) -> Vec<u32> {
    (0..count).filter(|index| !archive.has(round, *index)).collect()
}
