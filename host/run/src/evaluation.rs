//! Evaluation of a team on held-out tasks.

mod statistics;

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use pl_dsl::workflow::{Evaluation, RoleAssignment, Scenario, Tasks};
use pl_rollout::{
    EpisodeSetup, PlayEpisodes, RolloutBatch, RolloutPlan, RolloutProgress, TaskSource, play_batch,
};
use pl_types::{Phase, SamplingOverrides};
use serde_json::{Value, json};

use crate::error::Error;
use crate::host::Host;
use crate::progress::{Activity, Notice};
use crate::session::Session;
use crate::stop_request::StopRequest;
use crate::workflow::CheckedWorkflow;

pub use statistics::{AgentReport, EvaluationReport};
pub(crate) use statistics::{mean, mean_of};

/// Function that returns the player of a setup's episodes.
pub(crate) type PlayerOf<'a> = dyn Fn(Arc<EpisodeSetup>) -> Arc<dyn PlayEpisodes> + Sync + 'a;

/// Parameters of one round of an evaluation.
pub(crate) struct Round<'a> {
    pub seed: u64,
    pub step: u64,
    pub versions: &'a [u64],
    pub in_flight: usize,
}

/// Result of an evaluation.
pub struct EvaluationResult {
    pub report: EvaluationReport,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Number of sampled tokens.
    pub tokens: u64,
    batch: RolloutBatch,
    name: String,
}

/// Outcome of the evaluations of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvaluationEnding {
    /// All evaluations are finished.
    Done,
    /// A stop was requested. The evaluation in progress has no result.
    Interrupted,
}

/// Runs each evaluation of a workflow and hands its result to `finished`. A workflow without any is evaluated
/// on the tasks of each scenario. If a stop is requested, the evaluation in progress is given up.
///
/// # Errors
/// If tasks can't be read, every episode of an evaluation fails, or `finished` fails.
pub fn evaluate<E: From<Error>>(
    host: &Host,
    checked: &CheckedWorkflow,
    session: &Session,
    stop: &StopRequest,
    mut finished: impl FnMut(&EvaluationResult) -> Result<(), E>,
) -> Result<EvaluationEnding, E> {
    for evaluation in evaluations(checked) {
        checked.require_team(evaluation.scenario)?;
        let round = Round {
            seed: session.seed,
            step: 0,
            versions: &session.trainer.versions(),
            in_flight: checked
                .workflow
                .train
                .as_ref()
                .map_or(RolloutPlan::IN_FLIGHT, |train| train.episodes as usize),
        };
        let (title, generated_tokens) = (evaluation.name.as_str(), session.token_counter());
        let mut tracker = host.progress().start(Activity::Episodes { title, generated_tokens });
        let started = Instant::now();
        let played = async {
            let scenario = &session.scenarios[evaluation.scenario];
            let source = checked
                .tasks(host, evaluation.scenario, &evaluation.tasks, &scenario.environment, None)
                .await?;
            let update = |p: RolloutProgress| tracker.update(p.done as u64, p.total as u64);
            let keep = |batch: Result<RolloutBatch, pl_rollout::Error>| batch.map_err(Error::rollout);
            let player = |setup: Arc<EpisodeSetup>| setup as Arc<dyn PlayEpisodes>;
            play_round((&scenario.setup, &player), &evaluation, &source, &round, update, keep).await
        };
        let ended = host.block_on(async {
            tokio::select! {
                played = played => Some(played),
                () = stop.requested() => None,
            }
        });
        drop(tracker);
        let Some(played) = ended else { return Ok(EvaluationEnding::Interrupted) };
        let (report, batch) = played?;
        Notice::of_episodes(&batch, None).into_iter().for_each(|notice| host.notify(notice));
        let seconds = started.elapsed().as_secs_f64();
        let tokens = batch.episodes.iter().map(|episode| episode.tokens).sum();
        finished(&EvaluationResult { report, seconds, tokens, batch, name: evaluation.name })?;
    }
    Ok(EvaluationEnding::Done)
}

/// Returns the evaluations of a workflow, or one on the tasks of each scenario.
fn evaluations(checked: &CheckedWorkflow) -> Vec<Evaluation> {
    if !checked.workflow.evaluations.is_empty() {
        return checked.workflow.evaluations.clone();
    }
    let evaluation = |(index, scenario): (usize, &Scenario)| {
        let environment = &scenario.environment;
        let tasks = match &environment.tasks {
            Tasks::Generated { level, .. } => {
                let level = environment.curriculum.as_ref().map_or(*level, |curriculum| curriculum.to);
                Tasks::Generated { split: "test".to_owned(), level }
            }
            file => file.clone(),
        };
        Evaluation {
            name: scenario.name.as_ref().unwrap_or(&environment.name).clone(),
            scenario: index,
            every: 0,
            tasks,
            limit: 100,
            samples: 1,
            sampling: SamplingOverrides::default(),
            roles: Vec::new(),
        }
    };
    checked.workflow.scenarios.iter().enumerate().map(evaluation).collect()
}

/// Returns true if an evaluation with an interval in steps is due after `step`. After the last step, all are due that have one.
pub(crate) fn is_evaluation_due(every: u32, step: u64, last: bool) -> bool {
    every > 0 && (last || step.is_multiple_of(u64::from(every)))
}

/// Returns a setup whose agents use the policies that an evaluation maps them to.
pub(crate) fn with_roles(mut setup: EpisodeSetup, roles: &[RoleAssignment]) -> EpisodeSetup {
    for role in roles {
        if let Some(agent) = setup.agents.get_mut(role.agent) {
            agent.policy = role.policy;
        }
    }
    setup
}

/// Returns the setup of an evaluation: with its roles and its sampling.
pub(crate) fn of_evaluation(setup: EpisodeSetup, evaluation: &Evaluation) -> EpisodeSetup {
    let mut setup = with_roles(setup, &evaluation.roles);
    for agent in &mut setup.agents {
        agent.sampling = evaluation.sampling.apply(&agent.sampling);
    }
    setup
}

/// Plays one round of an evaluation. `player` plays with the setup of the evaluation; `keep` receives the batch, also if
/// every episode failed.
pub(crate) async fn play_round(
    (setup, player): (&Arc<EpisodeSetup>, &PlayerOf<'_>),
    evaluation: &Evaluation,
    source: &TaskSource,
    round: &Round<'_>,
    progress: impl FnMut(RolloutProgress),
    keep: impl FnOnce(Result<RolloutBatch, pl_rollout::Error>) -> Result<RolloutBatch, Error>,
) -> Result<(EvaluationReport, RolloutBatch), Error> {
    let available = source.size().unwrap_or(usize::MAX);
    let count = (evaluation.limit as usize).min(available) as u32;
    let tasks = source.take(0, count).await.map_err(Error::Tasks)?;
    let phase = Phase::Evaluate(evaluation.name.clone());
    let plan = RolloutPlan {
        step: round.step,
        samples: evaluation.samples,
        in_flight: round.in_flight,
        ..RolloutPlan::flat(round.seed, phase, tasks, round.versions.into())
    };
    let setup = of_evaluation(EpisodeSetup::clone(setup), evaluation);
    let acting: BTreeSet<usize> = setup.turns.nodes.iter().flat_map(|node| node.agents.clone()).collect();
    let agents: Vec<(usize, String)> = setup
        .agents
        .iter()
        .enumerate()
        .filter(|(index, _)| acting.contains(index))
        .map(|(index, agent)| (index, agent.name.clone()))
        .collect();
    let played = play_batch(player(Arc::new(setup)), &plan, progress).await;
    let batch = keep(played.and_then(|batch| batch.with_episodes(round.step)))?;
    let tasks = plan.tasks.len();
    let report = EvaluationReport::new(&evaluation.name, tasks, evaluation.samples, &agents, &batch);
    Ok((report, batch))
}

impl EvaluationResult {
    /// Writes every completion as a line of JSON, in the order of tasks, samples and turns: `evaluation`,
    /// `task` (its id), `sample`, `agent`, `turn` (earlier visits of the agent), `prompt` and `completion`
    /// (token ids), `text`, `action` (JSON), `reward` and `success` (the agent's own).
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_completions(&self, session: &Session, out: &mut impl Write) -> std::io::Result<()> {
        for transition in &self.batch.transitions {
            let (key, action) = (&transition.key, &transition.action);
            let line = json!({
                "evaluation": self.name,
                "task": transition.task_id,
                "sample": key.sample,
                "agent": transition.agent,
                "turn": transition.turn,
                "prompt": transition.prompt,
                "completion": transition.completion,
                "text": session.decode(transition.policy as usize, &transition.completion),
                "action": serde_json::from_str::<Value>(action).unwrap_or_else(|_| action.as_str().into()),
                "reward": transition.reward,
                "success": transition.success,
            });
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}
