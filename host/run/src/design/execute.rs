//! Execution of designs: their teams play the scenario's tasks with the session's models and environment.

use std::sync::Arc;

use pl_dsl::WorkflowSkeleton;
use pl_rollout::{EpisodeSetup, RolloutPlan, RolloutProgress, play_batch};
use pl_types::Phase;

use super::brief::DesignBrief;
use super::record::Outcome;
use super::team::{Team, TeamBuilder};
use crate::error::Error;
use crate::host::Host;
use crate::progress::Activity;
use crate::session::{Session, SessionScenario};
use crate::workflow::CheckedWorkflow;

/// Name of the random streams of executions. All designs share them, so that they play under the same luck.
const STREAMS: &str = "design";

pub(super) struct Executor<'s> {
    host: &'s Host,
    checked: &'s CheckedWorkflow,
    session: &'s Session,
    scenario: usize,
    builder: TeamBuilder,
}

impl<'s> Executor<'s> {
    pub fn new(
        host: &'s Host,
        checked: &'s CheckedWorkflow,
        session: &'s Session,
        (scenario, brief, skeleton): (usize, &DesignBrief, &WorkflowSkeleton),
    ) -> Result<Executor<'s>, Error> {
        let own = &session.scenarios[scenario];
        // Nothing is trained, and a team whose plugin fails has not succeeded.
        let setup = EpisodeSetup { fault_penalty: Some(0.0), ..EpisodeSetup::clone(&own.setup) };
        let own = SessionScenario { environment: Arc::clone(&own.environment), setup: Arc::new(setup) };
        let builder = TeamBuilder::new(checked, brief, skeleton.clone(), &own, &session.formats)?;
        Ok(Executor { host, checked, session, scenario, builder })
    }

    pub fn builder(&self) -> &TeamBuilder {
        &self.builder
    }

    /// Lets a team play the first tasks of training, one episode each. Returns the outcome and the number of tokens.
    ///
    /// # Errors
    /// If tasks can't be read.
    pub fn play(&self, team: Team, executions: u32) -> Result<(Outcome, u64), Error> {
        let setup = self.builder.setup_of(team, 0);
        let Session { scenarios, seed, trainer, .. } = self.session;
        let environment = &scenarios[self.scenario].environment;
        let block = &self.checked.workflow.scenarios[self.scenario].environment;
        let generated_tokens = self.session.token_counter();
        let mut tracker = self.host.progress().start(Activity::Episodes { title: STREAMS, generated_tokens });
        let batch = self.host.block_on(async {
            let source =
                self.checked.tasks(self.host, self.scenario, &block.tasks, environment, None).await?;
            let count = source.size().map_or(executions, |size| executions.min(size as u32));
            let tasks = source.take(0, count).await.map_err(Error::Tasks)?;
            let phase = Phase::Evaluate(STREAMS.to_owned());
            let plan = RolloutPlan::flat(*seed, phase, tasks, trainer.versions().into());
            let update = |p: RolloutProgress| tracker.update(p.done as u64, p.total as u64);
            play_batch(Arc::new(setup), &plan, update).await.map_err(Error::rollout)
        })?;
        Ok((Outcome::of_episodes(&batch), batch.episodes.iter().map(|episode| episode.tokens).sum()))
    }
}
