//! Costs of a run, from its `timings.jsonl`.

use std::path::Path;

use pl_record::{ProcessClock, read_jsonl};
use serde::Deserialize;

use super::contention::{RecordedEpisode, contention, seconds_alone};
use super::{EvaluationCosts, RunCosts, StepCosts};
use crate::error::Error;
use crate::evaluation::mean;
use crate::progress::StepSeconds;
use crate::schedule::lanes::Lanes;

/// Reads the costs of a run's finished steps, for a run whose evaluations have some intervals in steps. Each of its evaluations
/// takes as long as those of the run did in the mean.
///
/// # Errors
/// [`Error::Costs`] if the folder has no timings of a finished step, or they can't be read.
pub fn read_costs(run: &Path, every: &[u32]) -> Result<RunCosts, Error> {
    #[derive(Deserialize)]
    struct Line {
        clock_started: Option<String>,
        seconds: StepSeconds,
        #[serde(default)]
        slots: usize,
        #[serde(default)]
        episode_starts: Vec<f64>,
        #[serde(default)]
        episode_seconds: Vec<f64>,
        #[serde(default)]
        episode_tokens: Vec<f64>,
        #[serde(default)]
        episode_tasks: Vec<u32>,
        #[serde(default)]
        episode_lanes: Vec<usize>,
        #[serde(default)]
        learners: Vec<Learner>,
    }
    #[derive(Deserialize)]
    struct Learner {
        seconds: f64,
        #[serde(default)]
        start: f64,
        #[serde(default)]
        policies: Vec<String>,
        #[serde(default)]
        lane: usize,
    }
    let path = run.join("timings.jsonl");
    let failed = |problem: String| Error::Costs { problem };
    let mut lines: Vec<Line> = read_jsonl(&path).map_err(|error| failed(error.to_string()))?;
    // Runs of earlier versions have no times of episodes: a step is one episode then.
    let has_episodes = lines.iter().all(|line| line.slots > 0);
    let slots = lines.iter().map(|line| if has_episodes { line.slots } else { 1 }).max();
    let slots =
        slots.ok_or_else(|| failed(format!("{}: the run has not finished a step", path.display())))?;
    let of_last = lines.last().map(|line| line.learners.as_slice()).unwrap_or_default();
    let policies = of_last.iter().map(|learner| learner.policies.clone()).collect();
    let lanes = of_last.iter().map(|learner| learner.lane).collect();
    let recorded = lines.iter().map(|line| RecordedStep {
        clock: ProcessClock {
            started: line.clock_started.clone(),
            trained: line.learners.first().map(|learner| learner.start),
        },
        episodes: line
            .episode_starts
            .iter()
            .zip(&line.episode_seconds)
            .zip(&line.episode_tokens)
            .map(|((start, seconds), tokens)| RecordedEpisode {
                start: *start,
                end: start + seconds,
                tokens: *tokens,
            })
            .collect(),
    });
    let (contention, alone) = without_contention(recorded.collect());
    for (line, seconds) in lines.iter_mut().zip(alone) {
        if seconds.len() == line.episode_seconds.len() {
            line.episode_seconds = seconds;
        }
    }
    let costs = |line: Line| StepCosts {
        lanes: if has_episodes { line.episode_lanes } else { Vec::new() },
        tasks: if has_episodes { line.episode_tasks } else { Vec::new() },
        episodes: match has_episodes && !line.episode_seconds.is_empty() {
            true => line.episode_seconds,
            false => vec![line.seconds.play],
        },
        train: match line.learners.as_slice() {
            [] => vec![line.seconds.train],
            learners => learners.iter().map(|learner| learner.seconds).collect(),
        },
        publish: line.seconds.publish,
    };
    let evaluated = lines.iter().flat_map(|line| [line.seconds.baseline, line.seconds.evaluate]);
    let seconds = mean(evaluated.filter(|seconds| *seconds > 0.0));
    let evaluations = EvaluationCosts { seconds, every: every.to_vec() };
    let steps = lines.into_iter().map(costs).collect();
    Ok(RunCosts { slots, contention, steps, policies, lanes: Lanes::of_learners(lanes), evaluations })
}

/// Times of a step on the clock of the process that played it.
struct RecordedStep {
    /// With the start of the first learner's update.
    clock: ProcessClock,
    episodes: Vec<RecordedEpisode>,
}

/// Returns the contention of the episodes of a run's steps, and the seconds that each would have taken alone.
fn without_contention(mut steps: Vec<RecordedStep>) -> (f64, Vec<Vec<f64>>) {
    // The clock of a resumed run starts again.
    let (mut offset, mut end) = (0.0, 0.0f64);
    let mut last: Option<&ProcessClock> = None;
    for RecordedStep { clock, episodes } in &mut steps {
        if last.is_some_and(|last| clock.is_after_resume(last)) {
            offset = end;
        }
        last = Some(clock);
        for episode in episodes {
            (episode.start, episode.end) = (episode.start + offset, episode.end + offset);
            end = end.max(episode.end);
        }
    }
    let all: Vec<RecordedEpisode> = steps.iter().flat_map(|step| step.episodes.iter().copied()).collect();
    let contention = contention(&all);
    let mut alone = seconds_alone(&all, contention).into_iter();
    (contention, steps.iter().map(|step| alone.by_ref().take(step.episodes.len()).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whichever steps of the recorded run had one, and the untrained team.
    #[test]
    fn an_evaluation_takes_the_mean_of_those_that_were_measured() {
        let run = tempfile::tempdir().unwrap();
        let seconds = [(4.0, 0.0), (0.0, 0.0), (0.0, 2.0)].map(|(baseline, evaluate)| {
            let own =
                serde_json::json!({ "play": 1.0, "train": 1.0, "baseline": baseline, "evaluate": evaluate });
            serde_json::json!({ "seconds": own }).to_string()
        });
        std::fs::write(run.path().join("timings.jsonl"), seconds.map(|line| line + "\n").concat()).unwrap();
        let costs = read_costs(run.path(), &[10, 0]).unwrap();
        assert_eq!(costs.evaluations, EvaluationCosts { seconds: 3.0, every: vec![10, 0] });
    }

    /// Steps that play beside each other may start in any order; a process that goes on with a run starts its clock again.
    #[test]
    fn the_contention_of_steps_is_that_of_all_that_play_at_a_time() {
        let episode = |start, end| RecordedEpisode { start, end, tokens: (end - start) * 10.0 };
        let step = |trained, episodes: &[RecordedEpisode]| RecordedStep {
            clock: ProcessClock { started: None, trained: Some(trained) },
            episodes: episodes.to_vec(),
        };
        let overlapping = [step(4.0, &[episode(0.2, 4.0)]), step(6.0, &[episode(0.1, 2.0)])];
        let seconds = |steps: Vec<RecordedStep>| {
            let all: Vec<RecordedEpisode> = steps.iter().flat_map(|step| step.episodes.clone()).collect();
            (without_contention(steps).1.concat(), seconds_alone(&all, contention(&all)))
        };
        let (found, expected) = seconds(overlapping.into());
        assert_eq!(found, expected);
        let resumed = vec![step(4.0, &[episode(0.0, 4.0)]), step(2.0, &[episode(0.0, 1.0)])];
        let (found, overlapping) = seconds(resumed);
        assert!((found[0] - 4.0).abs() < 1e-12 && (found[1] - 1.0).abs() < 1e-12, "{found:?}");
        assert!(overlapping[0] <= 4.0);
        // Its first update may begin later than the last one of the process before it.
        let slow = RecordedEpisode { tokens: 20.0, ..episode(0.0, 4.0) };
        let step = |started: &str, episodes: &[RecordedEpisode]| {
            let clock = ProcessClock { started: Some(started.to_owned()), trained: Some(4.0) };
            RecordedStep { clock, episodes: episodes.to_vec() }
        };
        let (found, overlapping) =
            seconds(vec![step("first", &[slow]), step("second", &[slow, episode(10.0, 12.0)])]);
        assert!((found[0] - 4.0).abs() < 1e-12 && overlapping[0] < 3.0, "{found:?} {overlapping:?}");
    }
}
