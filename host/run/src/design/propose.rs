//! Proposals: the designer's completions of a round's prompt.

use std::sync::Arc;

use pl_types::{Generate, Phase, Request, StreamKey};

use super::prompt::{FittingPrompt, NoRoom, Shown, first_that_fits};
use super::record::{Archive, DesignRecord, Outcome};
use super::subject::{Proposal, Subject};
use super::view::TaskView;
use crate::error::Error;
use crate::session::Session;

/// Numbers of good and of wrong designs that a prompt shows, as far as they fit the context.
const SHOWN: [(usize, usize); 4] = [(3, 2), (2, 1), (1, 0), (0, 0)];

/// Name of the random streams of proposals.
const STREAMS: &str = "designer";

pub(super) struct Proposer<'s> {
    session: &'s Session,
    subject: &'s Subject<'s>,
    view: &'s TaskView,
}

impl<'s> Proposer<'s> {
    pub fn new(session: &'s Session, subject: &'s Subject<'s>, view: &'s TaskView) -> Proposer<'s> {
        Proposer { session, subject, view }
    }

    /// Proposes the designs of a round with these numbers.
    ///
    /// # Errors
    /// If the prompt doesn't fit the model, or generation fails.
    pub async fn propose(
        &self,
        round: u32,
        numbers: &[u32],
        archive: &Archive,
    ) -> Result<Vec<Proposal>, Error> {
        let designer = &self.subject.brief.designer;
        let (prompt, parents) = self.prompt(&archive.before(round))?;
        let seed = |number: &u32| {
            let key = StreamKey {
                seed: self.session.seed,
                phase: Phase::Evaluate(STREAMS.to_owned()),
                step: u64::from(round),
                task: *number,
                sample: 0,
                attempt: 0,
            };
            key.completion(0, 0, 0, 0, 0)
        };
        let request = Request {
            policy: designer.policy,
            prompt: prompt.into(),
            seeds: numbers.iter().map(seed).collect(),
            max_tokens: designer.max_tokens,
            sampling: self.subject.brief.sampling.clone(),
            stop: Arc::from([]),
            stop_ids: Arc::from([]),
            top_logprobs: 0,
            listener: None,
        };
        let completions = self.session.router.generate(request).await.map_err(Error::Engine)?;
        let proposals = completions.into_iter().map(|completion| Proposal {
            origin: STREAMS.to_owned(),
            parents: parents.clone(),
            design: without_fences(&completion.text).to_owned(),
            tokens: completion.tokens.len() as u64,
        });
        Ok(proposals.collect())
    }

    /// Returns the tokens of the prompt with as many earlier designs as fit, and their hashes.
    fn prompt(&self, earlier: &[&DesignRecord]) -> Result<(Vec<u32>, Vec<String>), Error> {
        let designer = &self.subject.brief.designer;
        let encoder = self.session.formats.encoder(None);
        let is_played = |one: &&&DesignRecord| matches!(one.outcome, Outcome::Played { .. });
        let selections = SHOWN.map(|(good, wrong)| {
            let best: Vec<&DesignRecord> = earlier.iter().filter(is_played).take(good).copied().collect();
            let others = earlier.iter().filter(|one| !is_played(one));
            Shown { example: best.is_empty(), wrong: others.take(wrong).copied().collect(), best }
        });
        let name = || designer.name.clone();
        let fitting = first_that_fits(&encoder, &self.subject.brief, self.view, selections)
            .map_err(|fault| Error::DesignerPrompt { designer: name(), reason: fault.cause })?;
        match fitting {
            Ok(FittingPrompt { tokens, shown, .. }) => {
                let parents = shown.best.iter().chain(&shown.wrong).map(|one| one.hash.clone());
                Ok((tokens, parents.collect()))
            }
            Err(NoRoom { prompt, context }) => {
                Err(Error::DesignerContext { designer: name(), prompt, design: designer.max_tokens, context })
            }
        }
    }
}

/// Returns the text within the first code fence of Markdown, or all of it.
pub(super) fn without_fences(text: &str) -> &str {
    let Some((_, fenced)) = text.split_once("```") else { return text };
    let inside = fenced.split_once('\n').map_or("", |(_, rest)| rest);
    inside.split_once("```").map_or(inside, |(design, _)| design)
}

#[cfg(test)]
mod tests {
    use super::without_fences;

    #[test]
    fn code_fences_of_markdown_are_removed() {
        assert_eq!(without_fences("agent a"), "agent a");
        assert_eq!(without_fences("Here:\n```mas\nagent a\n```\nIt is good."), "agent a\n");
        assert_eq!(without_fences("```\nagent a"), "agent a");
        assert_eq!(without_fences("```"), "");
    }
}
