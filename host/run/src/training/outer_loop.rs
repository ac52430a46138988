//! The outer loop: play steps, update the policies, hand the new weights over, evaluate, save checkpoints.
//!
//! This thread trains; the rollout thread ([`super::rollout_thread`]) plays. [`StepSchedule`] names the weights
//! that each step is played with. A run that was killed at any moment continues from its last checkpoint and
//! ends as if it had never been killed: everything that the loop writes is either named in the checkpoint's
//! [`LoopState`] or cut off when the run resumes. Steps that were played ahead of their update are named too.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use pl_dsl::workflow::{Evaluation, Train};
use pl_record::{LogLengths, RunFolder};
use pl_rollout::SPAN_TARGET;
use pl_trainer::checkpoint::{Checkpoints, EvaluationScore};
use pl_trainer::{LearnerSeconds, StepMetrics, UpdateProgress};
use pl_types::{GenerateError, seed};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::checkpoints::PolicyVersions;
use crate::error::Error;
use crate::evaluation::{EvaluationReport, mean};
use crate::host::Host;
use crate::memory::ProcessMemory;
use crate::model_card::model_cards;
use crate::progress::{Activity, MetricsLine, StepSeconds};
use crate::run_folder::draw;
use crate::schedule::StepSchedule;
use crate::schedule::admission::{Admission, AdmissionRules};
use crate::session::Session;

use super::cursor::{ScenarioCursor, cursors};
use super::rollout_thread::{Handover, RolloutEvent, RolloutThread};
use super::rollouts::{PlayedStep, Rollouts};
use super::{StopRequest, TrainingRun};

/// State of the loop after a step, part of every checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopState {
    /// Number of finished steps.
    pub step: u64,
    /// Positions in the tasks of the scenarios after the finished steps. Empty before the first step.
    #[serde(alias = "next_task", deserialize_with = "cursors")]
    pub scenarios: Vec<ScenarioCursor>,
    /// Lengths of the run folder's append-only files.
    pub lengths: LogLengths,
    /// Steps that were played and not trained on yet, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<StepAhead>,
}

/// A step that was played ahead of its update. Its transitions are in its step file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepAhead {
    step: u64,
    metrics: Map<String, Value>,
    failures: Vec<Value>,
    tokens: u64,
    #[serde(alias = "next_task", deserialize_with = "cursors")]
    scenarios: Vec<ScenarioCursor>,
}

impl From<&PlayedStep> for StepAhead {
    fn from(played: &PlayedStep) -> Self {
        StepAhead {
            step: played.step,
            metrics: played.metrics.clone(),
            failures: played.failures.clone(),
            tokens: played.tokens,
            scenarios: played.cursors.clone(),
        }
    }
}

impl StepAhead {
    /// Reads the step's transitions from the run folder.
    pub(super) fn read(self, folder: &RunFolder) -> Result<PlayedStep, Error> {
        let transitions = folder.read_step(self.step)?;
        let StepAhead { step, metrics, failures, tokens, scenarios: cursors } = self;
        Ok(PlayedStep {
            step,
            transitions,
            metrics,
            failures,
            tokens,
            cursors,
            seconds: 0.0,
            episode_seconds: Vec::new(),
            finished: None,
        })
    }
}

/// Reason for which a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnding {
    /// All steps are finished.
    Done,
    /// The user requested a stop. A checkpoint was saved.
    Interrupted,
}

impl TrainingRun<'_> {
    /// Runs all remaining steps, or until a stop is requested.
    ///
    /// # Errors
    /// If a step can't be played, an update fails, or the run folder can't be written. The last checkpoint
    /// stands.
    pub fn train(&mut self, stop: &StopRequest) -> Result<RunEnding, Error> {
        let Self { host, train, session, rollouts, folder, state } = self;
        let checkpoints = Checkpoints::new(RunFolder::checkpoints(folder.root()), train.keep_checkpoints);
        // Finishes what a run that was killed at its very end left undone.
        checkpoints.tidy()?;
        draw(host, folder);
        let schedule = StepSchedule::from(&*train);
        if state.step == schedule.steps() {
            return Ok(RunEnding::Done);
        }
        let played = std::mem::take(&mut state.ahead)
            .into_iter()
            .map(|ahead| ahead.read(folder))
            .collect::<Result<VecDeque<_>, _>>()?;
        let rules = AdmissionRules {
            slots: train.episodes as usize,
            draws_in_turn: rollouts.draws_in_turn(),
            keeps_versions: schedule.overlaps() && session.router.keeps_versions(&session.trainer),
        };
        let thread = RolloutThread {
            host,
            rollouts,
            router: Arc::clone(&session.router),
            admission: Admission::new(rules),
            keeps_versions: rules.keeps_versions,
            cursors: played.back().map_or(&state.scenarios, |last| &last.cursors).clone(),
            steps: schedule.steps(),
            stop: (!schedule.overlaps()).then(|| stop.clone()),
            weights: BTreeMap::new(),
            open: BTreeMap::new(),
        };
        let (handovers, received) = unbounded_channel();
        let (sender, events) = channel();
        let router = Arc::clone(&session.router);
        let ended = std::thread::scope(|scope| {
            scope.spawn(move || thread.run(received, &sender));
            let last_planned = state.step + played.len() as u64;
            let outer_loop = OuterLoop {
                host,
                train,
                schedule,
                rollouts,
                session,
                folder,
                state,
                played,
                last_planned,
                checkpoints,
                handovers,
                events,
                started: Instant::now(),
            };
            // The rollout thread ends when the loop is dropped.
            outer_loop.run(stop)
        });
        host.block_on(router.release());
        ended
    }
}

/// The training side of the loop.
struct OuterLoop<'r> {
    host: &'r Host,
    train: &'r Train,
    schedule: StepSchedule,
    rollouts: &'r Rollouts,
    session: &'r mut Session,
    folder: &'r mut RunFolder,
    state: &'r mut LoopState,
    /// Steps that were played and not trained on yet, in order. Their step files are written.
    played: VecDeque<PlayedStep>,
    /// Last step that the rollout thread was asked to play.
    last_planned: u64,
    checkpoints: Checkpoints,
    handovers: UnboundedSender<Handover>,
    events: Receiver<Result<RolloutEvent, Error>>,
    /// Start of the loop.
    started: Instant,
}

/// Times and token counts of a step, for `timings.jsonl`.
#[derive(Default)]
struct StepTimes {
    seconds: StepSeconds,
    sampled_tokens: u64,
    trained_tokens: u64,
    /// Parts of `seconds.train`.
    learners: Vec<LearnerSeconds>,
    /// Seconds of each episode.
    episode_seconds: Vec<f64>,
    timeline: Vec<TimelinePart>,
}

/// Part of a step on the clock of the loop, in seconds since its start.
#[derive(Serialize)]
struct TimelinePart {
    part: &'static str,
    start: f64,
    end: f64,
}

impl OuterLoop<'_> {
    fn run(mut self, stop: &StopRequest) -> Result<RunEnding, Error> {
        let steps = self.schedule.steps();
        if self.state.step == 0 {
            // The untrained team is the baseline. A resumed run has evaluated its last step already.
            self.hand_over(true, true)?;
            self.evaluate(&mut StepTimes::default())?;
        } else {
            self.hand_over(false, true)?;
        }
        // Score of the finished steps, until a checkpoint has it.
        let mut unsaved = None;
        while self.state.step < steps {
            let waiting = Instant::now();
            let Some(played) = self.next_played()? else {
                if let Some(score) = unsaved.take() {
                    self.save(score)?;
                }
                return Ok(RunEnding::Interrupted);
            };
            let mut times = self.update(played, waiting.elapsed().as_secs_f64())?;
            let (step, interrupted) = (self.state.step, stop.is_requested());
            self.hand_over(true, !interrupted)?;
            let score = self.evaluate(&mut times)?;
            self.append_times(&times)?;
            let improved = match &score {
                Some(score) => is_best(&self.checkpoints, score)?,
                None => false,
            };
            let due = step.is_multiple_of(u64::from(self.train.checkpoint_every.max(1)));
            unsaved = Some(score);
            if (step == steps || interrupted || due || improved)
                && let Some(score) = unsaved.take()
            {
                self.save(score)?;
            }
            if interrupted && step < steps {
                return Ok(RunEnding::Interrupted);
            }
        }
        Ok(RunEnding::Done)
    }

    /// Hands the current weights to the rollout thread: for evaluations, and for the steps that the schedule
    /// plays with them.
    fn hand_over(&mut self, evaluate: bool, play: bool) -> Result<(), Error> {
        let update = self.state.step;
        let trainer = &self.session.trainer;
        let weights = match self.schedule.overlaps() {
            true => PolicyVersions::copied(trainer),
            false => PolicyVersions::shared(trainer),
        };
        let steps = if play {
            self.schedule.steps_to_play(update, self.last_planned)
        } else {
            RangeInclusive::new(1, 0)
        };
        self.last_planned = self.last_planned.max(*steps.end());
        let evaluate = evaluate && self.rollouts.evaluates_after(update, update == self.schedule.steps());
        match self.handovers.send(Handover { update, weights, evaluate, steps }) {
            Ok(()) => Ok(()),
            // The thread ended with an error, which is its last event.
            Err(_) => loop {
                self.next_event()?;
            },
        }
    }

    /// Returns the next step to train on. Returns `None` if a stop was requested before it was played.
    fn next_played(&mut self) -> Result<Option<PlayedStep>, Error> {
        loop {
            if let Some(played) = self.played.pop_front() {
                return Ok(Some(played));
            }
            if let Some(RolloutEvent::Stopped) = self.next_event()? {
                return Ok(None);
            }
        }
    }

    /// Waits for the next event of the rollout thread. Returns `None` for a played step, which it keeps.
    fn next_event(&mut self) -> Result<Option<RolloutEvent>, Error> {
        let event = self.events.recv().unwrap_or(Err(Error::Engine(GenerateError::Stopped)))?;
        let RolloutEvent::Played(played) = event else { return Ok(Some(event)) };
        self.folder.write_step(played.step, &played.transitions)?;
        self.played.push_back(*played);
        Ok(None)
    }

    /// Trains on a step and writes its line of metrics. `wait` is the time that the trainer waited for it.
    fn update(&mut self, played: PlayedStep, wait: f64) -> Result<StepTimes, Error> {
        let step = played.step;
        for failure in &played.failures {
            self.folder.failures.append(failure)?;
        }
        let shuffle = self.train.shuffle_rewards;
        let shuffle = shuffle.then(|| seed::trainer(self.session.seed, "shuffled rewards", "", &[step]));
        if !self.schedule.overlaps() {
            self.host.block_on(self.session.router.sleep())?;
        }
        let started = Instant::now();
        let mut tracker = self.host.progress().start(Activity::Update);
        let mut progress = |progress: UpdateProgress| tracker.update(progress.done, progress.total);
        let trainer = &mut self.session.trainer;
        let span =
            tracing::info_span!(target: SPAN_TARGET, "update", step, transitions = played.transitions.len());
        let metrics = span.in_scope(|| trainer.update(step, &played.transitions, shuffle, &mut progress))?;
        drop(tracker);
        let tokens = trainer.take_trained_completions();
        if !tokens.is_empty() {
            self.folder.write_tokens(step, &tokens)?;
        }
        let train = started.elapsed().as_secs_f64();
        let seconds = StepSeconds { play: played.seconds, wait, train, evaluate: 0.0 };
        let played_until =
            played.finished.map(|finished| self.timeline_part("play", finished, played.seconds));
        let trained_until = self.timeline_part("train", Instant::now(), train);
        self.state.step = step;
        self.state.scenarios.clone_from(&played.cursors);
        let line = step_line(step, &played, &metrics);
        self.folder.append_metrics(step, &line)?;
        self.report(None, &line, seconds);
        Ok(StepTimes {
            seconds,
            sampled_tokens: played.tokens,
            trained_tokens: metrics.fed_tokens,
            learners: self.session.trainer.learner_seconds(),
            episode_seconds: played.episode_seconds.iter().copied().map(milliseconds).collect(),
            timeline: played_until.into_iter().chain([trained_until]).collect(),
        })
    }

    /// Waits for the evaluations that are due after the finished steps and writes their lines. Returns the
    /// score if the scoring evaluation is among them.
    fn evaluate(&mut self, times: &mut StepTimes) -> Result<Option<EvaluationScore>, Error> {
        let step = self.state.step;
        if !self.rollouts.evaluates_after(step, step == self.schedule.steps()) {
            return Ok(None);
        }
        let reports = loop {
            if let Some(RolloutEvent::Evaluated { reports, seconds: taken }) = self.next_event()? {
                times.seconds.evaluate = taken;
                times.timeline.push(self.timeline_part("evaluate", Instant::now(), taken));
                break reports;
            }
        };
        for report in &reports {
            let line = evaluation_line(step, report);
            self.folder.append_metrics(step, &line)?;
            self.report(Some(&report.name), &line, times.seconds);
        }
        let scoring = self.rollouts.scoring_evaluations();
        let scores = || {
            let own = reports.iter().filter(|report| scoring.iter().any(|one| one.name == report.name));
            own.map(|report| report.success)
        };
        let is_scored = scores().next().is_some();
        Ok(is_scored.then(|| EvaluationScore { evaluation: identity(&scoring), value: mean(scores()) }))
    }

    /// Saves a checkpoint after the finished steps, with the steps that must have been played ahead of it.
    fn save(&mut self, score: Option<EvaluationScore>) -> Result<(), Error> {
        let step = self.state.step;
        let last = self.schedule.played_before_checkpoint(step);
        while step + (self.played.len() as u64) < last {
            self.next_event()?;
        }
        let ahead = self.played.iter().filter(|played| played.step <= last);
        self.state.ahead = ahead.map(StepAhead::from).collect();
        self.state.lengths = self.folder.sync()?;
        let cards = model_cards(self.folder.root(), step)?;
        let trainer = &self.session.trainer;
        self.checkpoints.save_with_cards(trainer, step, score, &json!(self.state), &cards)?;
        draw(self.host, self.folder);
        Ok(())
    }

    fn append_times(&mut self, times: &StepTimes) -> Result<(), Error> {
        let StepTimes { seconds, sampled_tokens, trained_tokens, learners, episode_seconds, timeline } =
            times;
        let memory = ProcessMemory::read();
        let step = self.state.step;
        let mut line = json!({
            "step": step,
            "seconds": seconds,
            "learners": learners,
            "slots": self.train.episodes,
            "episode_seconds": episode_seconds,
            "sampled_tokens_per_second": *sampled_tokens as f64 / seconds.play.max(1e-9),
            "trained_tokens_per_second": *trained_tokens as f64 / seconds.train.max(1e-9),
            "memory_bytes": memory.map(|memory| memory.resident),
            "peak_memory_bytes": memory.map(|memory| memory.peak),
            "timeline": timeline,
        });
        if self.session.router.uses_servers() {
            // Since the step before: the schedule may have played several meanwhile.
            line["servers"] = json!(self.session.router.take_server_stats());
        }
        Ok(self.folder.append_timings(step, &line)?)
    }

    /// Returns a part of a step that took some seconds up to `end`.
    fn timeline_part(&self, part: &'static str, end: Instant, seconds: f64) -> TimelinePart {
        let end = end.saturating_duration_since(self.started).as_secs_f64();
        TimelinePart { part, start: milliseconds((end - seconds).max(0.0)), end: milliseconds(end) }
    }

    fn report(&self, evaluation: Option<&str>, line: &Value, seconds: StepSeconds) {
        let (step, steps) = (self.state.step, self.schedule.steps());
        self.host.progress().metrics(&MetricsLine { step, steps, evaluation, line, seconds });
    }
}

/// Rounds seconds to milliseconds.
fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

/// Returns the line of metrics of an evaluation.
fn evaluation_line(step: u64, report: &EvaluationReport) -> Value {
    let mut line = Map::new();
    line.insert("kind".into(), "evaluation".into());
    line.insert("step".into(), step.into());
    line.insert("name".into(), report.name.clone().into());
    line.insert("success".into(), report.success.into());
    line.extend(report.metrics());
    Value::Object(line)
}

/// Returns true if no checkpoint of the same evaluation has at least this score.
fn is_best(checkpoints: &Checkpoints, score: &EvaluationScore) -> Result<bool, Error> {
    let best = checkpoints.best()?.and_then(|best| best.score);
    Ok(best.is_none_or(|best| best.evaluation != score.evaluation || score.value > best.value))
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

/// Returns the line of metrics of a training step.
fn step_line(step: u64, played: &PlayedStep, metrics: &StepMetrics) -> Value {
    let mut line = Map::new();
    line.insert("kind".into(), "step".into());
    line.insert("step".into(), step.into());
    line.extend(played.metrics.clone());
    line.insert("transitions".into(), played.transitions.len().into());
    line.insert("groups".into(), metrics.groups.into());
    line.insert("flat_groups".into(), metrics.flat_groups.into());
    let gap = metrics
        .policies
        .iter()
        .filter_map(|m| m.max_logprob_gap)
        .fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))));
    line.insert("max_logprob_gap".into(), json!(gap));
    let policies = metrics.policies.iter().map(|m| (m.policy.clone(), json!(m))).collect();
    line.insert("policies".into(), Value::Object(policies));
    Value::Object(line)
}
