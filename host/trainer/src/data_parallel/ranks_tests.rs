//! Updates of ranks on threads of one process, beside those of one process that does all ranks in turn.

use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier, Mutex};

use pl_dsl::workflow::objective::{Correction, Critic as CriticSettings, CriticBase, OldLogprobs};
use pl_dsl::workflow::{Policy, Train};
use pl_types::{TrainedCompletion, Transition};
use tch::{Device, Tensor};

use super::Collective;
use crate::error::CollectiveError;
use crate::fixtures::{critic, model, policy, ppo, same_bits, starts_below, train, transition, workflow};
use crate::metrics::UpdateMetrics;
use crate::preparation::TurnOutcome;
use crate::{Error, LearnerUpdate, Trainer};

/// A rank whose messages pass through memory.
#[derive(Debug)]
struct ThreadRank {
    rank: usize,
    board: Arc<Board>,
}

#[derive(Debug)]
struct Board {
    messages: Mutex<Vec<Vec<u8>>>,
    barrier: Barrier,
}

impl Board {
    fn ranks(count: usize) -> Vec<Arc<dyn Collective>> {
        let messages = Mutex::new(vec![Vec::new(); count]);
        let board = Arc::new(Board { messages, barrier: Barrier::new(count) });
        let new = |rank| ThreadRank { rank, board: Arc::clone(&board) };
        (0..count).map(|rank| Arc::new(new(rank)) as Arc<dyn Collective>).collect()
    }
}

impl Collective for ThreadRank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.board.messages.lock().unwrap().len()
    }

    fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, CollectiveError> {
        self.board.messages.lock().unwrap()[self.rank] = own;
        self.board.barrier.wait();
        let all = self.board.messages.lock().unwrap().clone();
        self.board.barrier.wait();
        Ok(all)
    }

    fn sum(&self, numbers: &mut Tensor) -> Result<(), CollectiveError> {
        let own = Vec::<f32>::try_from(&*numbers)?;
        let all = self.gather(own.iter().flat_map(|number| number.to_le_bytes()).collect())?;
        let mut sums = vec![0.0; own.len()];
        for (rank, of_rank) in all.iter().enumerate() {
            let numbers = of_rank.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
            for (sum, number) in sums.iter_mut().zip(numbers) {
                *sum = if rank == 0 { number } else { *sum + number };
            }
        }
        numbers.f_copy_(&Tensor::from_slice(&sums))?;
        Ok(())
    }
}

/// Policies with critics of all kinds and without, adapters and whole models, log-probabilities before the update among them.
fn policies() -> Vec<Policy> {
    let with_critic = |name: &str, lora: bool, critic: CriticSettings| Policy {
        training: Some(ppo(critic)),
        ..policy(name, lora)
    };
    let mut recomputed = policy("recomputed", true);
    let mut training = recomputed.training.take().unwrap();
    (training.objective.kl, training.objective.old_logprobs) = (0.1, OldLogprobs::Recompute);
    training.objective.correction = Correction::Tis;
    recomputed.training = Some(training);
    let warm = CriticSettings { warmup: 1, ..critic(CriticBase::Shared) };
    vec![
        recomputed,
        with_critic("read", true, critic(CriticBase::Policy)),
        with_critic("shared", true, warm),
        with_critic("adapted", true, critic(CriticBase::Adapter)),
        with_critic("modelled", true, critic(CriticBase::Model)),
        policy("whole", false),
        with_critic("whole-modelled", false, critic(CriticBase::Model)),
    ]
}

fn new_trainer(data_parallel: u32) -> Trainer {
    let train = Train { epochs: 2, mini_batches: 2, data_parallel, ..train() };
    let workflow = workflow(policies(), Some(train));
    Trainer::new(&workflow, starts_below(Path::new(".")), vec![model(true, 31)], 5, Device::Cpu).unwrap()
}

fn step_transitions(step: u64) -> Vec<Transition> {
    let of_policy = |policy| (0..12).map(move |i| (policy, i));
    (0..7)
        .flat_map(of_policy)
        .map(|(policy, i)| {
            let mut t = transition(policy, i + 20 * step as u32, 5, 4 + i as usize % 3);
            (t.key.task, t.key.node_visit, t.key.branch) = (i / 4, i / 2 % 2, i % 2);
            (t.group.task, t.group.turn) = (i / 4, i / 2 % 2);
            t.chosen = i % 2 == 0;
            t.next_prompt = (!t.chosen && t.key.node_visit == 0).then(|| vec![1, 2, 3, i + policy]);
            t.reward = f64::from((i * 5 + step as u32) % 7) / 3.0 - 1.0;
            t
        })
        .collect()
}

/// Every tensor that updates change, with names.
fn state(trainer: &Trainer) -> Vec<(String, Tensor)> {
    let policies = trainer.learners().iter().flat_map(|learner| learner.policies());
    policies
        .flat_map(|policy| {
            let critic = policy.critic.as_ref().map(|critic| &critic.optimizer);
            [Some(&policy.optimizer), critic].into_iter().flatten().flat_map(|optimizer| {
                let own = optimizer.parameters().map(|(name, t)| (name.to_owned(), t.copy()));
                own.chain(optimizer.state()).collect::<Vec<_>>()
            })
        })
        .collect()
}

type Outcome = (Vec<(String, Tensor)>, Vec<UpdateMetrics>, Vec<TrainedCompletion>);

/// Runs two updates of each learner.
fn run(trainer: &mut Trainer) -> Result<Outcome, Error> {
    let (mut metrics, mut completions) = (Vec::new(), Vec::new());
    for step in 1..3 {
        let transitions = step_transitions(step);
        for mut learner in trainer.learners_to_train().unwrap() {
            let own: Vec<u32> = learner.policies().map(|policy| policy as u32).collect();
            let transitions = transitions.iter().filter(|t| own.contains(&t.policy));
            let update: LearnerUpdate = learner.update(step, transitions, None, &mut |_| {})?;
            metrics.extend(update.policies);
            completions.extend(update.completions);
        }
    }
    Ok((state(trainer), metrics, completions))
}

/// Runs the same with a thread for each rank.
fn run_on_threads(count: usize) -> Vec<Outcome> {
    let learners = new_trainer(1).learners().len();
    let mut of_learners: Vec<_> = (0..learners).map(|_| Board::ranks(count).into_iter()).collect();
    let collectives: Vec<Vec<_>> =
        (0..count).map(|_| of_learners.iter_mut().map(|ranks| ranks.next().unwrap()).collect()).collect();
    std::thread::scope(|scope| {
        let start = |own: Vec<Arc<dyn Collective>>| {
            scope.spawn(move || {
                let mut trainer = new_trainer(count as u32);
                for (learner, collective) in own.into_iter().enumerate() {
                    trainer.set_collective(learner, Some(collective));
                }
                run(&mut trainer).unwrap()
            })
        };
        let threads: Vec<_> = collectives.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn ranks_have_the_bits_of_one_process_that_does_them_in_turn() {
    for count in [2, 3] {
        let (weights, metrics, completions) = run(&mut new_trainer(count)).unwrap();
        for (own_weights, own_metrics, own_completions) in run_on_threads(count as usize) {
            assert!(same_bits(&own_weights, &weights));
            assert_eq!(own_metrics, metrics);
            assert_eq!(own_completions, completions);
        }
    }
}

#[test]
fn the_number_of_ranks_changes_only_rounding() {
    let (alone, metrics, completions) = run(&mut new_trainer(1)).unwrap();
    let (divided, divided_metrics, divided_completions) = run(&mut new_trainer(2)).unwrap();
    assert!(!same_bits(&alone, &divided), "the gradients are summed in another order");
    assert_eq!(completions.len(), divided_completions.len());
    let order = |all: &[TrainedCompletion]| -> Vec<_> {
        all.iter().map(|own| (own.key.clone(), own.epoch)).collect()
    };
    assert_eq!(order(&completions), order(&divided_completions));
    for (one, other) in metrics.iter().zip(&divided_metrics) {
        assert_eq!(
            (&one.policy, one.tokens, one.optimizer_steps),
            (&other.policy, other.tokens, other.optimizer_steps)
        );
        assert!((one.loss - other.loss).abs() < 1e-3, "{}: {} and {}", one.policy, one.loss, other.loss);
        assert!((one.grad_norm - other.grad_norm).abs() < 1e-2 * (1.0 + one.grad_norm), "{}", one.policy);
        assert_eq!(one.ratio_quantiles.is_some(), other.ratio_quantiles.is_some());
    }
}

/// A rank whose peer goes after some sums.
#[derive(Debug)]
struct Forsaken {
    sums_left: AtomicUsize,
}

impl Forsaken {
    fn after(sums: usize) -> Option<Arc<dyn Collective>> {
        Some(Arc::new(Forsaken { sums_left: AtomicUsize::new(sums) }))
    }
}

impl Collective for Forsaken {
    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        2
    }

    fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, CollectiveError> {
        match self.sums_left.load(Relaxed) {
            0 => Err(CollectiveError::Away { rank: 1, source: std::io::ErrorKind::UnexpectedEof.into() }),
            _ => Ok(vec![own.clone(), own]),
        }
    }

    fn sum(&self, _: &mut Tensor) -> Result<(), CollectiveError> {
        match self.sums_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Ok(()),
            Err(_) => {
                Err(CollectiveError::Away { rank: 1, source: std::io::ErrorKind::UnexpectedEof.into() })
            }
        }
    }
}

#[test]
fn a_rank_that_is_away_is_named() {
    let mut trainer = new_trainer(2);
    (0..trainer.learners().len()).for_each(|learner| trainer.set_collective(learner, Forsaken::after(0)));
    let error = run(&mut trainer).unwrap_err();
    assert!(matches!(error, Error::Collective { step: 1, .. }));
    let message = error.to_string();
    assert!(message.contains("`recomputed`, `read`") && message.contains("rank 1 is away"), "{message}");
}

#[test]
fn a_saved_state_is_whole_after_an_update_that_failed() {
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = new_trainer(2);
    let learners = 0..trainer.learners().len();
    let path = |learner: usize| folder.path().join(learner.to_string());
    learners.clone().for_each(|learner| trainer.save_learner(&path(learner), learner, 0).unwrap());
    let (undisturbed, metrics, _) = run(&mut new_trainer(2)).unwrap();
    for learner in learners.clone() {
        let transitions = step_transitions(1);
        let own = &mut trainer.learners_mut()[learner];
        let is_own = |t: &&Transition| own.policies().iter().any(|policy| policy.policy == t.policy as usize);
        let transitions: Vec<_> =
            transitions.iter().filter(is_own).map(|t| (t, TurnOutcome::from(t))).collect();
        let planned = own.prepare(1, &transitions, None).unwrap();
        // In the middle of the second mini-batch: gradients are there, and one optimiser step was taken.
        own.set_collective(Forsaken::after(1));
        let error = own.update(&planned, &mut || {}).unwrap_err();
        assert!(matches!(error, Error::Collective { .. }), "{error}");
        trainer.set_collective(learner, None);
        trainer.load_learner(&path(learner), learner).unwrap();
    }
    let (weights, own_metrics, _) = run(&mut trainer).unwrap();
    assert!(same_bits(&weights, &undisturbed));
    assert_eq!(own_metrics, metrics);
}
