//! Rollouts and evaluations of a training run, with their traces and metrics.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pl_dsl::workflow::objective::PolicyTraining;
use pl_dsl::workflow::{Curriculum, Evaluation, Rise, Train};
use pl_inference::EngineStats;
use pl_record::versions::RecordedVersions;
use pl_record::{TraceFile, Traces};
use pl_rollout::{
    EpisodeFailure, EpisodeSetup, RolloutBatch, RolloutProgress, SPAN_TARGET, TaskSource, Trace,
};
use pl_trainer::Learner;
use pl_types::{EpisodeId, TaskKey, Transition};
use serde_json::{Map, Value, json};
use tracing::Instrument;

use crate::cluster::TeamRef;
use crate::design::{DesignRecord, ScenarioDesigner};
use crate::error::Error;
use crate::evaluation::{EvaluationReport, Round, is_evaluation_due, mean_of, play_round};
use crate::generation::PolicyRouter;
use crate::host::Host;
use crate::progress::{Activity, Notice, Tracker};
use crate::schedule::lanes::{Lanes, StepPart};
use crate::session::{Session, token_counter};
use crate::workflow::CheckedWorkflow;

use super::alternation::Alternation;
use super::cursor::ScenarioCursor;
use super::step_times::EpisodeTime;
use super::step_weights::StepWeights;

/// An evaluation of a run.
pub(super) struct PlayedEvaluation {
    pub report: EvaluationReport,
    /// For `failures.jsonl`.
    pub failures: Vec<EpisodeFailure>,
}

/// Rollouts of one training step.
pub(super) struct PlayedStep {
    pub step: u64,
    /// Sorted by key.
    pub transitions: Arc<Vec<Transition>>,
    /// Metrics of the episodes, without timings.
    pub metrics: Map<String, Value>,
    /// Lines for `failures.jsonl`.
    pub failures: Vec<Value>,
    /// Lines for `designs.jsonl`.
    pub designs: Vec<DesignRecord>,
    /// Number of sampled tokens.
    pub tokens: u64,
    /// Positions in the tasks of the scenarios after those of this step.
    pub cursors: Vec<ScenarioCursor>,
    /// Wall-clock seconds that the rollouts took.
    pub seconds: f64,
    /// Times of each episode, in the order in which they start. Empty if another process has played them.
    pub episode_times: Vec<EpisodeTime>,
    /// Task of each episode, numbered in the order in which their first episodes start.
    pub episode_tasks: Vec<u32>,
    /// End of the rollouts. `None` if another process has played them.
    pub finished: Option<Instant>,
    /// Tasks that were put together because they ended first. Empty if the tasks are those that were drawn for the step, and
    /// for a step that another process has recorded.
    pub tasks: Vec<TaskKey>,
    /// Times in which weights were made ready since the step before: their ends and durations.
    pub published: Vec<(Instant, f64)>,
    /// Work of the embedded engines since the step before was played, evaluations included.
    pub engine: EngineStats,
    /// Versions that were used since the step before. `None` if episodes end with the weights that they begin with.
    pub versions: Option<RecordedVersions>,
}

/// A scenario of a run, with its source of tasks.
pub(super) struct TrainedScenario {
    name: Option<String>,
    pub weight: f64,
    pub curriculum: Option<Curriculum>,
    pub setup: Arc<EpisodeSetup>,
    /// Designer that writes the teams of its tasks. `None` if it has a team, or is only evaluated.
    pub designer: Option<ScenarioDesigner>,
    /// `None` if it is only evaluated.
    pub tasks: Option<TaskSource>,
}

/// Scenarios of a run with their task sources.
pub(super) struct Rollouts {
    router: Arc<PolicyRouter>,
    pub seed: u64,
    pub train: Train,
    /// Training of each policy. `None` for policies that are not trained.
    pub trainings: Vec<Option<PolicyTraining>>,
    pub scenarios: Vec<TrainedScenario>,
    pub alternation: Alternation,
    /// Lanes that the scenarios have where a schedule divides steps: one if tasks follow from the results of the step before.
    pub lanes: Lanes,
    evaluations: Vec<(Evaluation, TaskSource)>,
    traces: Option<Traces>,
}

/// Tasks of a scenario in a step, and their results.
pub(super) struct ScenarioBatch {
    /// Position in the workflow's scenarios.
    pub scenario: usize,
    pub tasks: u32,
    pub batch: RolloutBatch,
    /// Metrics of its designs. `None` without a designer.
    pub designs: Option<Map<String, Value>>,
}

impl Rollouts {
    /// Opens all sources of tasks. An invalid record is found here.
    pub fn new(host: &Host, checked: &CheckedWorkflow, session: &Session) -> Result<Rollouts, Error> {
        let workflow = &checked.workflow;
        let Some(train) = workflow.train.clone() else {
            return Err(Error::NoTrainBlock { workflow: workflow.name.clone() });
        };
        let (scenarios, evaluations) = host.block_on(async {
            let mut scenarios = Vec::new();
            for (index, (block, own)) in workflow.scenarios.iter().zip(&session.scenarios).enumerate() {
                let tasks = match block.weight > 0.0 {
                    true => {
                        let wanted = &block.environment.tasks;
                        let shuffle = Some(session.seed);
                        Some(checked.tasks(host, index, wanted, &own.environment, shuffle).await?)
                    }
                    false => None,
                };
                let designer = match tasks.is_some() {
                    true => ScenarioDesigner::new(checked, index, own, &session.formats)?,
                    false => None,
                };
                scenarios.push(TrainedScenario {
                    name: block.name.clone(),
                    weight: block.weight,
                    curriculum: block.environment.curriculum.clone(),
                    setup: Arc::clone(&own.setup),
                    designer,
                    tasks,
                });
            }
            let mut evaluations = Vec::new();
            for evaluation in &workflow.evaluations {
                let (index, tasks) = (evaluation.scenario, &evaluation.tasks);
                let environment = &session.scenarios[index].environment;
                let source = checked.tasks(host, index, tasks, environment, None).await?;
                evaluations.push((evaluation.clone(), source));
            }
            Ok::<_, Error>((scenarios, evaluations))
        })?;
        let router = Arc::clone(&session.router);
        let trainings = workflow.policies.iter().map(|policy| policy.training.clone()).collect();
        let (alternation, traces) = (Alternation::new(workflow), None);
        let learners = session.trainer.learners().iter();
        let policies = |learner: &Learner| learner.policies().iter().map(|own| own.policy).collect();
        let lanes = Lanes::of_workflow(workflow, &learners.map(policies).collect::<Vec<_>>());
        let mut rollouts = Rollouts {
            router,
            seed: session.seed,
            train,
            trainings,
            scenarios,
            alternation,
            lanes,
            evaluations,
            traces,
        };
        if rollouts.draws_in_turn() {
            rollouts.lanes = Lanes::ONE;
        }
        Ok(rollouts)
    }

    /// Writes the trace of every episode from now on.
    pub fn keep_traces(&mut self, traces: Traces) {
        self.traces = Some(traces);
    }

    /// Returns the evaluations that checkpoints are compared by, by their mean: those of the first block in the file that is
    /// run during training.
    pub fn scoring_evaluations(&self) -> Vec<&Evaluation> {
        let all = || self.evaluations.iter().map(|(evaluation, _)| evaluation);
        let first = all().find(|evaluation| evaluation.every > 0);
        all().filter(|evaluation| first.is_some_and(|first| first.block() == evaluation.block())).collect()
    }

    /// Returns true if the tasks of a step follow from the results of the step before.
    pub fn draws_in_turn(&self) -> bool {
        let rises = |curriculum: &Curriculum| matches!(curriculum.rise, Rise::Success { .. });
        let by_success = |own: &TrainedScenario| own.curriculum.as_ref().is_some_and(rises);
        self.train.max_refills > 0 || self.scenarios.iter().any(by_success)
    }

    /// Returns the fields of the step's line that tell scenarios apart, and counts their success for their curricula.
    pub(super) fn scenario_metrics(
        &self,
        batches: &[ScenarioBatch],
        levels: &[Option<u32>],
        cursors: &mut [ScenarioCursor],
    ) -> Map<String, Value> {
        let mut line = Map::new();
        let mut by_name = Map::new();
        for (index, scenario) in self.scenarios.iter().enumerate() {
            let own: Vec<&ScenarioBatch> = batches.iter().filter(|one| one.scenario == index).collect();
            let episodes = || own.iter().flat_map(|one| &one.batch.episodes);
            let success = mean_of(episodes().map(|episode| f64::from(episode.success)));
            if let (Some(curriculum), Some(success)) = (&scenario.curriculum, success) {
                cursors[index].count_success(curriculum, success);
            }
            let Some(name) = &scenario.name else {
                line.extend(levels[index].map(|level| ("level".to_owned(), Value::from(level))));
                continue;
            };
            if own.is_empty() {
                continue;
            }
            let transitions = own.iter().flat_map(|one| &one.batch.transitions);
            let mut fields = Map::new();
            fields.insert("tasks".into(), own.iter().map(|one| one.tasks).sum::<u32>().into());
            fields.insert("episodes".into(), episodes().count().into());
            fields.insert("rollout_success".into(), json!(success));
            fields.insert("reward".into(), json!(mean_of(transitions.map(|transition| transition.reward))));
            fields.extend(levels[index].map(|level| ("level".to_owned(), Value::from(level))));
            fields
                .extend(own.iter().find_map(|one| Some(("designs".to_owned(), one.designs.clone()?.into()))));
            by_name.insert(name.clone(), Value::Object(fields));
        }
        if !by_name.is_empty() {
            line.insert("scenarios".into(), Value::Object(by_name));
        }
        line
    }

    /// Names of all agents and of the designers of the run.
    pub fn agent_names(&self) -> Vec<&str> {
        // All scenarios have the same agents.
        let agents = self.scenarios.first().map(|scenario| scenario.setup.agents.as_slice());
        let agents = agents.unwrap_or_default().iter().map(|agent| agent.name.as_str());
        let designers = self.scenarios.iter().filter_map(|scenario| scenario.designer.as_ref());
        agents.chain(designers.map(|designer| designer.designer().name.as_str())).collect()
    }

    /// Writes the best designs so far as files into the run folder.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write_best_designs(&self, run: &Path) -> Result<(), Error> {
        let designers = self.scenarios.iter().filter_map(|scenario| scenario.designer.as_ref());
        designers.into_iter().try_for_each(|designer| designer.write_best(run))
    }

    /// Returns true if an evaluation is due after `step`.
    pub fn evaluates_after(&self, step: u64, last: bool) -> bool {
        self.evaluations.iter().any(|(evaluation, _)| is_evaluation_due(evaluation.every, step, last))
    }

    /// Runs the evaluations that are due after `step`.
    pub async fn evaluate(
        &self,
        host: &Host,
        step: u64,
        last: bool,
        weights: &StepWeights,
    ) -> Result<Vec<PlayedEvaluation>, Error> {
        let mut all_played = Vec::new();
        let all = self.evaluations.iter().enumerate();
        for (index, (evaluation, source)) in all.filter(|(_, (e, _))| is_evaluation_due(e.every, step, last))
        {
            let in_flight = self.train.episodes as usize;
            let round = Round { seed: self.seed, step, versions: &weights.versions, in_flight };
            let mut tracker = self.start_tracker(host, &evaluation.name);
            let update = move |p: RolloutProgress| tracker.update(p.done as u64, p.total as u64);
            let file = TraceFile { step, evaluation: Some(evaluation.name.clone()) };
            let keep = |batch| self.keep(host, Some(&file), batch);
            let player = |setup| weights.player(TeamRef::Evaluation(index as u32), &setup);
            let setup = &self.scenarios[evaluation.scenario].setup;
            let span =
                tracing::info_span!(target: SPAN_TARGET, "evaluation", step, evaluation = evaluation.name);
            let playing =
                play_round((setup, &player), evaluation, source, &round, update, keep).instrument(span);
            let (report, batch) = match playing.await {
                Ok(played) => played,
                Err(error) => {
                    let before = all_played.into_iter().flat_map(|played: PlayedEvaluation| played.failures);
                    return Err(with_failures(error, before));
                }
            };
            all_played.push(PlayedEvaluation { report, failures: batch.failures });
        }
        Ok(all_played)
    }

    /// Returns the title of a part of a step, for progress bars: with the names of its scenarios if there are several parts.
    pub(super) fn part_title(&self, part: StepPart, lanes: &Lanes) -> String {
        let StepPart { step, lane } = part;
        if lanes.count() == 1 {
            return format!("step {step}");
        }
        let own = self.scenarios.iter().enumerate();
        let own = own.filter(|(index, own)| own.weight > 0.0 && lanes.of_scenario(*index) == lane);
        let names: Vec<&str> = own.filter_map(|(_, own)| own.name.as_deref()).collect();
        format!("step {step}, {}", names.join(", "))
    }

    pub(super) fn start_tracker(&self, host: &Host, title: &str) -> Box<dyn Tracker> {
        let generated_tokens = token_counter(&self.router);
        host.progress().start(Activity::Episodes { title, generated_tokens })
    }

    /// Writes the traces of a step.
    ///
    /// # Errors
    /// If the file can't be written.
    pub(super) fn write_traces(&self, file: &TraceFile, traces: &[Trace]) -> Result<(), Error> {
        match &self.traces {
            Some(folder) => Ok(folder.write(file, traces)?),
            None => Ok(()),
        }
    }

    /// Writes the traces of a batch, also if every episode failed, and reports failures. Without a `file`, traces are not
    /// written.
    pub(super) fn keep(
        &self,
        host: &Host,
        file: Option<&TraceFile>,
        batch: Result<RolloutBatch, pl_rollout::Error>,
    ) -> Result<RolloutBatch, Error> {
        let failed = |error, run, episode| Error::Rollout { source: Box::new(error), run, episode };
        let Some(traces) = &self.traces else { return batch.map_err(|source| failed(source, None, None)) };
        let run = traces.run().to_path_buf();
        match batch {
            Ok(batch) => {
                if let Some(file) = file {
                    traces.write(file, &batch.traces)?;
                }
                Notice::of_episodes(&batch, Some(&run)).into_iter().for_each(|notice| host.notify(notice));
                Ok(batch)
            }
            Err(pl_rollout::Error::NoEpisode { traces: lost, episodes, step, cause, failures }) => {
                if let Some(file) = file {
                    traces.write(file, &lost)?;
                }
                let episode = lost.first().map(|trace| EpisodeId::from_key(&trace.key));
                let traces = Vec::new();
                let source = pl_rollout::Error::NoEpisode { traces, episodes, step, cause, failures };
                Err(failed(source, Some(run), episode))
            }
            Err(source) => Err(failed(source, None, None)),
        }
    }
}

/// Returns an error in an evaluation, with the failures of those before it if it has those of its own.
fn with_failures(mut error: Error, before: impl Iterator<Item = EpisodeFailure>) -> Error {
    if let Error::Rollout { source, .. } = &mut error
        && let pl_rollout::Error::NoEpisode { failures, .. } = &mut **source
    {
        failures.splice(0..0, before);
    }
    error
}

#[cfg(test)]
mod tests {
    use pl_types::Phase;

    use super::*;
    use crate::test_failures::failure;

    #[test]
    fn the_failures_of_earlier_evaluations_come_with_the_error_of_a_later_one() {
        let failure = |name: &str| failure(Phase::Evaluate(name.to_owned()), 0, 0, name);
        let failures = vec![failure("second")];
        let (cause, traces) = (String::new(), Vec::new());
        let source = pl_rollout::Error::NoEpisode { episodes: 1, step: 2, cause, failures, traces };
        let error = Error::Rollout { source: Box::new(source), run: None, episode: None };
        let Error::Rollout { source, .. } = with_failures(error, [failure("first")].into_iter()) else {
            panic!()
        };
        let pl_rollout::Error::NoEpisode { failures, .. } = *source else { panic!("{source}") };
        let tasks: Vec<&str> = failures.iter().map(|failure| failure.task_id.as_str()).collect();
        assert_eq!(tasks, ["first", "second"]);
    }
}
