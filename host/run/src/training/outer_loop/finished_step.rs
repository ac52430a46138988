//! Steps that all learners have trained on: their lines in the run folder, the evaluations after them, and checkpoints.

use pl_dsl::workflow::Evaluation;
use pl_trainer::checkpoint::{CheckpointInfo, EvaluationScore};
use pl_trainer::{StepMetrics, Trainer};
use serde_json::{Value, json};

use crate::error::Error;
use crate::evaluation::mean;
use crate::model_card::model_cards;
use crate::progress::{MetricsLine, Notice, StepSeconds};
use crate::run_folder::draw;

use super::OuterLoop;
use crate::training::loop_events::{LoopEvent, RolloutEvent};
use crate::training::loop_state::StepAhead;
use crate::training::metrics_lines::{evaluation_line, step_line};
use crate::training::pace::LearnerResult;
use crate::training::rollouts::{PlayedEvaluation, PlayedStep};
use crate::training::step_times::{EpisodeColumns, LearnerTimes, StepTimes, milliseconds};

impl OuterLoop<'_> {
    /// Writes the lines of a step that all learners have trained on.
    pub(super) fn finish_step(
        &mut self,
        results: Vec<LearnerResult>,
        learners: &[Vec<String>],
        names: &[String],
    ) -> Result<StepTimes, Error> {
        let step = self.state.step + 1;
        let played = self.played.remove(&step).ok_or_else(|| Error::lost("the results of a step"))?;
        for failure in &played.failures {
            self.folder.failures.append(failure)?;
        }
        for design in &played.designs {
            self.folder.append_design(design)?;
        }
        let metrics = StepMetrics::new(results.iter().map(|result| &result.trained.update), names);
        let times = self.step_times(&played, &results, learners);
        let updates = results.into_iter().map(|result| result.trained.update);
        let mut tokens: Vec<_> = updates.flat_map(|update| update.completions).collect();
        for (step, tokens) in self.collected.take_tokens(&mut tokens) {
            self.folder.add_tokens(step, tokens)?;
        }
        if !tokens.is_empty() {
            tokens.sort_by(|a, b| (&a.key, a.epoch).cmp(&(&b.key, b.epoch)));
            self.folder.write_tokens(step, &tokens)?;
        }
        self.state.step = step;
        self.collected.finish(self.schedule, step, &played.transitions);
        self.state.scenarios.clone_from(&played.cursors);
        self.kept.drop_unused(self.schedule, step);
        let line = step_line(step, &played, &metrics);
        self.folder.append_metrics(step, &line)?;
        self.report(None, &line, times.seconds);
        let is_updated = (0..self.schedule.learners()).any(|own| self.schedule.is_updated(own, step));
        if let Some(notice) = self.flat_steps.add(&metrics, is_updated, line["rollout_success"].as_f64()) {
            self.host.notify(notice);
        }
        Ok(times)
    }

    fn step_times(
        &mut self,
        played: &PlayedStep,
        results: &[LearnerResult],
        learners: &[Vec<String>],
    ) -> StepTimes {
        let clock = self.clock;
        let times = |(result, names): (&LearnerResult, &Vec<String>)| LearnerTimes {
            policies: names.clone(),
            lane: self.rollouts.lanes.of_learner(result.trained.learner),
            seconds: result.trained.update.seconds,
            wait: milliseconds(result.waited),
            start: clock.seconds(result.trained.started),
            end: clock.seconds(result.trained.ended),
        };
        // Parts of a step don't overlap those of the step before, also if a learner was ahead.
        let free = self.trained_until;
        let first = results.iter().map(|result| result.trained.started).min().unwrap_or(free).max(free);
        let last = results.iter().map(|result| result.trained.ended).max().unwrap_or(first);
        let wait = (first - free).as_secs_f64();
        let train = last.saturating_duration_since(first).as_secs_f64();
        self.trained_until = last;
        // A sum of no numbers would be -0.
        let publish = played.published.iter().fold(0.0, |sum, (_, seconds)| sum + seconds);
        let published = played.published.iter().map(|(end, seconds)| clock.part("publish", *end, *seconds));
        let untrained = std::mem::take(&mut self.untrained_times);
        let parts = [
            played.finished.map(|finished| clock.part("play", finished, played.seconds)),
            Some(clock.part("train", last, train)),
        ];
        let before = untrained.timeline.into_iter().map(|part| part.of_step(0));
        StepTimes {
            step: played.step,
            seconds: StepSeconds {
                play: played.seconds,
                wait,
                train,
                evaluate: 0.0,
                baseline: untrained.seconds.evaluate,
                publish,
            },
            sampled_tokens: played.tokens,
            trained_tokens: results.iter().map(|result| result.trained.update.fed_tokens).sum(),
            learners: results.iter().zip(learners).map(times).collect(),
            episodes: EpisodeColumns::new(&played.episode_times, &played.episode_tasks, clock),
            engine: played.engine,
            timeline: before.chain(published).chain(parts.into_iter().flatten()).collect(),
        }
    }

    /// Waits for the evaluations that are due after the finished steps and writes their lines. Returns the
    /// score if the scoring evaluation is among them.
    pub(super) fn evaluate(&mut self, times: &mut StepTimes) -> Result<Option<EvaluationScore>, Error> {
        let step = self.state.step;
        if !self.is_evaluation_due(step) {
            return Ok(None);
        }
        let evaluations = loop {
            if let Some(LoopEvent::Rollout(RolloutEvent::Evaluated { evaluations, ended, seconds })) =
                self.next_event()?
            {
                times.seconds.evaluate = seconds;
                times.timeline.push(self.clock.part("evaluate", ended, seconds));
                break evaluations;
            }
        };
        for PlayedEvaluation { report, failures } in &evaluations {
            for failure in failures {
                self.folder.failures.append(failure)?;
            }
            let line = evaluation_line(step, report);
            self.folder.append_metrics(step, &line)?;
            self.report(Some(&report.name), &line, times.seconds);
        }
        let scoring = self.rollouts.scoring_evaluations();
        let scores = || {
            let reports = evaluations.iter().map(|one| &one.report);
            let own = reports.filter(|report| scoring.iter().any(|one| one.name == report.name));
            own.map(|report| report.success)
        };
        let is_scored = scores().next().is_some();
        Ok(is_scored.then(|| EvaluationScore { evaluation: identity(&scoring), value: mean(scores()) }))
    }

    /// Saves a checkpoint after the finished steps, with the steps that must have been played ahead of it.
    pub(super) fn save(
        &mut self,
        trainer: &mut Trainer,
        score: Option<EvaluationScore>,
    ) -> Result<(), Error> {
        let step = self.state.step;
        let mut unused = Vec::new();
        for remote in self.remote.values_mut() {
            unused.extend(self.host.block_on(remote.fetch_state(trainer, step))?);
        }
        let last = self.schedule.played_before_checkpoint(step);
        while step + (self.played.len() as u64) < last {
            self.next_event()?;
        }
        let ahead = self.played.values().filter(|played| played.step <= last);
        self.state.ahead = ahead.map(|played| StepAhead::from(&**played)).collect();
        self.state.lengths = self.folder.sync()?;
        self.rollouts.write_best_designs(self.folder.root())?;
        let cards = model_cards(self.folder.root(), step)?;
        let earlier = self.kept.earlier(self.schedule, step);
        self.checkpoints.save_with(trainer, step, score, &json!(self.state), &cards, &earlier)?;
        if let Some(cluster) = self.cluster {
            self.host.block_on(async {
                cluster.forget(step).await;
                for hash in &unused {
                    cluster.remove(hash).await;
                }
            });
        }
        draw(self.host, self.folder);
        Ok(())
    }

    /// Returns true if no checkpoint of the same evaluation has at least this score.
    pub(super) fn is_best(&self, score: &EvaluationScore) -> Result<bool, Error> {
        let best = self.checkpoints.best()?.and_then(|best| best.score);
        Ok(best.is_none_or(|best| best.evaluation != score.evaluation || score.value > best.value))
    }

    /// Notifies the user if the untrained team has a higher score than the best checkpoint.
    pub(super) fn compare_with_untrained(&self) -> Result<(), Error> {
        if let (Some(untrained), Some(best)) = (&self.state.untrained, self.checkpoints.best()?)
            && let Some(notice) = untrained_is_better(untrained, &best)
        {
            self.host.notify(notice);
        }
        Ok(())
    }

    pub(super) fn append_times(&mut self, times: &StepTimes) -> Result<(), Error> {
        let mut line = times.line(self.clock, self.train.episodes);
        if self.router.uses_servers() {
            // Since the step before: the schedule may have played several meanwhile.
            line["servers"] = json!(self.router.take_server_stats());
        }
        Ok(self.folder.append_timings(times.step, &line)?)
    }

    fn report(&self, evaluation: Option<&str>, line: &Value, seconds: StepSeconds) {
        let (step, steps) = (self.state.step, self.schedule.steps());
        self.host.progress().metrics(&MetricsLine { step, steps, evaluation, line, seconds });
    }
}

/// Returns a notice if the untrained team has a higher score than the best checkpoint, by the same evaluation.
fn untrained_is_better(untrained: &EvaluationScore, best: &CheckpointInfo) -> Option<Notice> {
    let score = best.score.as_ref().filter(|score| score.evaluation == untrained.evaluation)?;
    let (untrained, best, step) = (untrained.value, score.value, best.step);
    (best < untrained).then_some(Notice::UntrainedIsBetter { untrained, best, step })
}

/// Returns a text that is equal for evaluations whose results can be compared: the name of their block, and a
/// hash of all of its settings except the interval.
fn identity(evaluations: &[&Evaluation]) -> String {
    let settings =
        |evaluation: &&Evaluation| json!(Evaluation { every: 0, ..(*evaluation).clone() }).to_string();
    let all = evaluations.iter().map(settings).collect::<Vec<_>>().join("\n");
    let block = evaluations.first().map_or("", |evaluation| evaluation.block());
    format!("{block} {}", &blake3::hash(all.as_bytes()).to_hex()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untrained_team_with_a_higher_score_than_the_best_checkpoint_is_told() {
        let score =
            |evaluation: &str, value: f64| EvaluationScore { evaluation: evaluation.to_owned(), value };
        let told = |best: Option<EvaluationScore>| {
            let best = CheckpointInfo { step: 20, path: "checkpoints/step-00000020".into(), score: best };
            untrained_is_better(&score("test", 0.31), &best).map(|notice| notice.to_string())
        };
        let own = told(Some(score("test", 0.25))).unwrap();
        assert!(own.contains("the untrained team was better: success 0.310 > 0.250"), "{own}");
        assert!(own.contains("step 20"), "{own}");
        // No worse, scored by another evaluation, not scored.
        for best in [Some(score("test", 0.31)), Some(score("test of fewer tasks", 0.25)), None] {
            assert_eq!(told(best), None);
        }
    }
}
