//! Execution of designs: their teams play the scenario's tasks with the session's models and environment.

use std::cell::RefCell;
use std::sync::Arc;

use pl_dsl::workflow::{Rollout, Workflow};
use pl_rollout::{EpisodeFailure, RolloutPlan, RolloutProgress, play_batch};
use pl_types::Phase;

use super::record::Outcome;
use crate::diagnostics::Diagnostics;
use crate::error::Error;
use crate::evaluation::mean;
use crate::host::Host;
use crate::plugins::PluginCatalog;
use crate::progress::Activity;
use crate::session::{Session, episode_setups};
use crate::workflow::CheckedWorkflow;

/// Name of the random streams of executions. All designs share them, so that they play under the same luck.
const STREAMS: &str = "design";

/// Episodes in flight.
const IN_FLIGHT: usize = 64;

pub(super) struct Executor<'s> {
    host: &'s Host,
    checked: &'s CheckedWorkflow,
    session: &'s Session,
    scenario: usize,
    /// The workflow of the latest design, with the plugins that are loaded.
    latest: RefCell<Option<CheckedWorkflow>>,
}

impl<'s> Executor<'s> {
    pub fn new(
        host: &'s Host,
        checked: &'s CheckedWorkflow,
        session: &'s Session,
        scenario: usize,
    ) -> Executor<'s> {
        Executor { host, checked, session, scenario, latest: RefCell::new(None) }
    }

    /// Plays a design on the first tasks of training, one episode each. Returns its outcome and the number of tokens.
    ///
    /// # Errors
    /// If tasks can't be read, or an agent of it can't be created.
    pub fn play(&self, design: Workflow, executions: u32) -> Result<(Outcome, u64), Error> {
        let mut latest = self.latest.borrow_mut();
        let plugins = match latest.take() {
            Some(before) => before.plugins,
            None => {
                let CheckedWorkflow { folder, plugins, .. } = self.checked;
                PluginCatalog::new(self.host, folder, plugins.reads().given().clone())?
            }
        };
        let team = latest.insert(CheckedWorkflow {
            workflow: self.with_policies_of_session(design),
            text: String::new(),
            folder: self.checked.folder.clone(),
            overrides: Vec::new(),
            warnings: Diagnostics::default(),
            places: self.checked.places.clone(),
            plugins,
        });
        let Session { formats, date, router, scenarios, seed, trainer, .. } = self.session;
        let environment = &scenarios[self.scenario].environment;
        let mut setups = episode_setups(
            team,
            Arc::clone(formats),
            *date,
            std::slice::from_ref(environment),
            router.clone(),
        )?;
        let block = &self.checked.workflow.scenarios[self.scenario].environment;
        let Some(setup) = setups.pop() else {
            return Err(Error::NoTasks { environment: block.name.clone() });
        };
        let generated_tokens = self.session.token_counter();
        let mut tracker = self.host.progress().start(Activity::Episodes { title: STREAMS, generated_tokens });
        let batch = self.host.block_on(async {
            let source =
                self.checked.tasks(self.host, self.scenario, &block.tasks, environment, None).await?;
            let count = source.size().map_or(executions, |size| executions.min(size as u32));
            let plan = RolloutPlan {
                seed: *seed,
                phase: Phase::Evaluate(STREAMS.to_owned()),
                step: 0,
                tasks: source.take(0, count).await.map_err(Error::Tasks)?,
                first_task: 0,
                mode: Rollout::Flat,
                samples: 1,
                in_flight: IN_FLIGHT,
                versions: trainer.versions().into(),
            };
            let update = |p: RolloutProgress| tracker.update(p.done as u64, p.total as u64);
            play_batch(Arc::new(setup), &plan, update).await.map_err(|error| Error::Rollout {
                source: error.into(),
                run: None,
                episode: None,
            })
        })?;
        let episodes = &batch.episodes;
        let solved = episodes.iter().map(|episode| f64::from(episode.success));
        let tokens: u64 = episodes.iter().map(|episode| episode.tokens).sum();
        let outcome = Outcome::Played {
            success: mean(solved.chain(std::iter::repeat_n(0.0, batch.lost))),
            truncated: mean(episodes.iter().map(|episode| f64::from(episode.truncated))),
            tokens: mean(episodes.iter().map(|episode| episode.tokens as f64)),
            episodes: (episodes.len() + batch.lost) as u32,
            failure: batch.failures.first().map(EpisodeFailure::describe),
        };
        Ok((outcome, tokens))
    }

    /// Gives a design the session's policies, by their names: it may lack those of used files that it doesn't name.
    fn with_policies_of_session(&self, mut design: Workflow) -> Workflow {
        let policies = &self.checked.workflow.policies;
        for agent in &mut design.agents {
            let name = design.policies.get(agent.policy).map(|policy| policy.name.as_str());
            let own = policies.iter().position(|policy| Some(policy.name.as_str()) == name);
            agent.policy = own.unwrap_or(agent.policy);
        }
        design.models = self.checked.workflow.models.clone();
        design.policies = policies.clone();
        for policy in &mut design.policies {
            policy.training = None;
        }
        design.train = None;
        design
    }
}
