//! Model-based tests: a trainer and episodes of random length around an [`Admission`]. Messages between the two take a random
//! time each, and keep their order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::schedule::StepSchedule;
use crate::schedule::batches::{BatchRule, RepeatingRun};
use crate::schedule::lanes::Lanes;
use pl_dsl::workflow::objective::UpdateSteps;
use pl_types::TaskKey;

/// A run to simulate. Lengths are in ticks of a virtual clock.
#[derive(Debug, Clone)]
struct Model {
    schedule: StepSchedule,
    rules: AdmissionRules,
    /// Number of episodes of each step, from step 1 on; repeated.
    episodes: Vec<usize>,
    /// Length of each episode; repeated.
    lengths: Vec<u64>,
    /// Length of each update; repeated.
    updates: Vec<u64>,
    /// Time that each message between the trainer and the rollouts takes; repeated.
    transits: Vec<u64>,
    /// Number of episodes that a step adds when it is collected; repeated. Only steps that are drawn in turn add any.
    refills: Vec<usize>,
    /// Steps between evaluations. 0 for none.
    every: u64,
    /// Rule by which tasks are handed over, and the number of tasks of a step. `None` for those that were drawn for it.
    batches: Option<(BatchRule, u32)>,
}

/// Things that happened, in order.
#[derive(Debug, Clone, Default, PartialEq)]
struct History {
    /// Learners of each part and their updates in the weights of its episodes.
    versions: BTreeMap<StepPart, Vec<UpdateKey>>,
    /// Episodes started, in order, with their times.
    starts: Vec<(StepPart, usize, u64)>,
    /// Parts handed over, in order.
    closed: Vec<StepPart>,
    /// Tasks of each step that was handed over by arrival.
    batches: Vec<RecordedBatch>,
    /// Evaluated updates, in order.
    evaluated: Vec<u64>,
    /// Time at which the run ended.
    end: u64,
}

/// A learner on the virtual clock.
#[derive(Debug, Clone, Copy)]
struct LearnerModel {
    trained: u64,
    /// End of its update in progress.
    end: Option<u64>,
}

/// Message from the trainer to the rollouts, or back.
#[derive(Debug, Clone)]
enum Message {
    /// Updates of all learners after the one of a learner, and the evaluation that is due.
    Weights {
        learner: usize,
        updates: Vec<u64>,
        evaluate: Option<u64>,
    },
    Played(StepPart),
    Evaluated,
}

/// Messages on their way.
struct Transit<'m> {
    times: &'m [u64],
    sent: u64,
    messages: VecDeque<(u64, Message)>,
}

impl Transit<'_> {
    fn send(&mut self, now: u64, message: Message) {
        let last = self.messages.back().map_or(0, |(arrival, _)| *arrival);
        let arrival = last.max(now + Model::at(self.times, self.sent));
        self.sent += 1;
        self.messages.push_back((arrival, message));
    }

    fn next(&self) -> Option<u64> {
        self.messages.front().map(|(arrival, _)| *arrival)
    }

    fn receive(&mut self, now: u64) -> Option<Message> {
        self.messages.pop_front_if(|(arrival, _)| *arrival <= now).map(|(_, message)| message)
    }
}

/// Updates whose weights are held for episodes.
struct Weights(BTreeSet<UpdateKey>);

impl Weights {
    /// Drops what nothing will use, as a run does: the newest of each learner stay.
    fn drop_unused(&mut self, admission: &Admission) {
        let newest: BTreeMap<usize, u64> = self.0.iter().map(|own| (own.learner, own.step)).collect();
        self.0.retain(|own| newest[&own.learner] == own.step || admission.uses(*own));
    }

    fn have(&self, updates: &[UpdateKey]) -> bool {
        updates.iter().all(|update| self.0.contains(update))
    }
}

impl Model {
    fn at<T: Copy>(list: &[T], index: u64) -> T {
        list[index as usize % list.len()]
    }

    /// Returns the task of each episode of a step.
    fn task_of(&self, step: u64) -> Vec<u32> {
        let episodes = Self::at(&self.episodes, step) as u32;
        match &self.batches {
            // Tasks of several episodes, which end in any order.
            Some((_, tasks)) => (0..tasks * (1 + episodes % 3)).map(|episode| episode % tasks).collect(),
            None => (0..episodes).collect(),
        }
    }

    /// Plays the steps after `first`, those before are trained on and `ahead` more are played, until `last` steps are
    /// trained on or the run has nothing left to do.
    fn run(&self, first: u64, last: u64) -> History {
        self.run_with(&vec![0; self.schedule.learners()], first, last)
    }

    /// Like [`Model::run`], with updates of each learner that take longer.
    fn run_with(&self, delays: &[u64], first: u64, last: u64) -> History {
        let mut history = History::default();
        let ahead = if first == 0 { 0 } else { self.schedule.played_before_checkpoint(first) };
        let batches = self.batches.clone().map(|(rule, tasks)| Batches::new(rule, tasks as usize, ahead));
        let mut admission = Admission::new(self.schedule.clone(), self.rules).with_batches(batches);
        let lanes = self.schedule.lanes();
        let of_step = |step: u64| (0..lanes.count()).map(move |lane| StepPart { step, lane });
        let mut played: BTreeSet<StepPart> = (first + 1..=ahead).flat_map(of_step).collect();
        let mut learners = vec![LearnerModel { trained: first, end: None }; self.schedule.learners()];
        let (mut planned, mut evaluated, mut now) = (vec![ahead; lanes.count()], first, 0);
        // Those of a checkpoint.
        let mut weights = Weights(BTreeSet::new());
        for learner in 0..learners.len() {
            let update = |step| UpdateKey { learner, step };
            weights.0.extend(self.schedule.earlier_updates(learner, first).map(update));
            weights.0.insert(update(self.schedule.last_update(learner, first)));
        }
        // Episodes in progress with their ends, and the end of the evaluation in progress.
        let mut running: Vec<(StepPart, usize, u64)> = Vec::new();
        let mut evaluation_end: Option<u64> = None;
        let mut refilled: BTreeSet<u64> = BTreeSet::new();
        let transit = || Transit { times: &self.transits, sent: 0, messages: VecDeque::new() };
        let (mut to_rollouts, mut to_trainer) = (transit(), transit());
        let mut play = |admission: &mut Admission, trained: &[u64]| {
            for (lane, planned) in planned.iter_mut().enumerate() {
                let steps = self.schedule.steps_to_play(lane, trained, *planned);
                *planned = (*planned).max(*steps.end());
                admission.play(lane, steps);
            }
        };
        let slowest =
            |learners: &[LearnerModel]| learners.iter().map(|learner| learner.trained).min().unwrap_or(0);
        let is_due = |step: u64| self.every > 0 && step.is_multiple_of(self.every);
        play(&mut admission, &vec![first; learners.len()]);
        while slowest(&learners) < last || (is_due(last) && evaluated < last) {
            while let Some(action) = admission.next_action() {
                match action {
                    Action::Evaluate { update } => {
                        assert!(running.is_empty(), "an evaluation plays alone");
                        assert!(learners.iter().all(|learner| learner.trained == update));
                        assert!(weights.have(&self.schedule.updates_after(update)));
                        history.evaluated.push(update);
                        evaluation_end = Some(now + 3);
                    }
                    Action::Draw { part } => {
                        let updates = self.schedule.lane_updates(part.lane, part.step);
                        assert!(weights.have(&updates), "{part:?} has no weights {updates:?}");
                        history.versions.insert(part, updates);
                        admission.add_episodes(part, &self.task_of(part.step));
                    }
                    Action::Start { part, episode } => {
                        // A learner has one version at a time, unless several are kept.
                        let of_lane = |other: &&StepPart| other.lane == part.lane;
                        let mut versions = running.iter().map(|(other, ..)| other).filter(of_lane);
                        if !self.rules.keeps_versions {
                            assert!(versions.all(|other| history.versions[other] == history.versions[&part]));
                        }
                        if self.rules.draws_in_turn {
                            assert!(running.iter().all(|(other, ..)| *other == part));
                        }
                        assert!(evaluation_end.is_none(), "nothing plays beside an evaluation");
                        history.starts.push((part, episode, now));
                        let number = part.step * 7 + part.lane as u64 * 3 + episode as u64;
                        running.push((part, episode, now + Self::at(&self.lengths, number)));
                        assert!(running.len() <= self.rules.slots && running.len() == admission.running());
                    }
                    Action::Collect { part } => {
                        let more = Self::at(&self.refills, part.step);
                        if self.rules.draws_in_turn && more > 0 && refilled.insert(part.step) {
                            admission.add_episodes(part, &vec![0; more]);
                            continue;
                        }
                        admission.close(part);
                        if self.batches.is_none() {
                            history.closed.push(part);
                            to_trainer.send(now, Message::Played(part));
                        }
                        weights.drop_unused(&admission);
                    }
                    Action::HandOver(batch) => {
                        let part = StepPart { step: batch.step, lane: 0 };
                        history.closed.push(part);
                        to_trainer.send(now, Message::Played(part));
                        history.batches.push(batch);
                    }
                }
            }
            // Steps of a lane between the last trained one and the newest drawn one: the bound on what is held.
            for lane in 0..lanes.count() {
                let own = |(learner, _): &(usize, &LearnerModel)| lanes.of_learner(*learner) == lane;
                let own = learners.iter().enumerate().filter(own);
                let trained = own.map(|(_, learner)| learner.trained).min().unwrap_or(0);
                let is_open = |part: &&StepPart| part.lane == lane && part.step > trained;
                let open = history.versions.keys().filter(is_open).count() as u64;
                assert!(open <= self.schedule.staleness() + 1, "{open} steps are ahead of update {trained}");
            }
            let trained = slowest(&learners);
            for (index, learner) in learners.iter_mut().enumerate() {
                let waits = is_due(learner.trained) && evaluated < learner.trained;
                if learner.end.is_none()
                    && !waits
                    && learner.trained < last
                    && played.contains(&StepPart { step: learner.trained + 1, lane: lanes.of_learner(index) })
                {
                    let seconds = Self::at(&self.updates, learner.trained + 3 * index as u64);
                    learner.end = Some(now + seconds + delays[index]);
                }
            }
            let updates = learners.iter().filter_map(|learner| learner.end);
            let messages = to_rollouts.next().into_iter().chain(to_trainer.next());
            let ends = running.iter().map(|(.., end)| *end).chain(updates).chain(evaluation_end);
            let Some(next) = ends.chain(messages).min() else {
                panic!("nothing is in progress after update {trained} of {last}: {admission:?}");
            };
            now = next;
            let (ended, others) = running.iter().partition(|(.., end)| *end == now);
            running = others;
            let ended: Vec<(StepPart, usize, u64)> = ended;
            ended.iter().for_each(|(part, episode, _)| admission.finished(*part, *episode));
            if evaluation_end == Some(now) {
                evaluation_end = None;
                admission.evaluated();
                to_trainer.send(now, Message::Evaluated);
                weights.drop_unused(&admission);
            }
            for index in 0..learners.len() {
                if learners[index].end != Some(now) {
                    continue;
                }
                let before = slowest(&learners);
                learners[index] = LearnerModel { trained: learners[index].trained + 1, end: None };
                let update = slowest(&learners);
                let evaluate = (update > before && is_due(update)).then_some(update);
                let updates = learners.iter().map(|learner| learner.trained).collect();
                to_rollouts.send(now, Message::Weights { learner: index, updates, evaluate });
            }
            while let Some(Message::Weights { learner, updates, evaluate }) = to_rollouts.receive(now) {
                let step = self.schedule.last_update(learner, updates[learner]);
                weights.0.insert(UpdateKey { learner, step });
                if let Some(update) = evaluate {
                    admission.evaluate(update);
                }
                play(&mut admission, &updates);
                weights.drop_unused(&admission);
            }
            while let Some(message) = to_trainer.receive(now) {
                match message {
                    Message::Played(part) => drop(played.insert(part)),
                    Message::Evaluated => evaluated = slowest(&learners),
                    Message::Weights { .. } => unreachable!("the trainer sends them"),
                }
            }
        }
        history.end = now;
        history
    }
}

fn models() -> impl Strategy<Value = Model> {
    let learners = prop::collection::vec((0_u64..5, prop::collection::vec(update_steps(), 1..3)), 1..4);
    let numbers =
        (1_u64..12, learners, 1_usize..9, any::<bool>(), any::<bool>(), 0_u64..4, any::<[bool; 3]>());
    let lists = (
        prop::collection::vec(0_usize..9, 1..5),
        // A long tail: most episodes are short.
        prop::collection::vec(prop_oneof![4 => 1_u64..6, 1 => 20_u64..90], 1..40),
        prop::collection::vec(0_u64..30, 1..5),
        prop::collection::vec(0_usize..4, 1..4),
        prop::collection::vec(0_u64..25, 1..9),
    );
    (numbers, lists).prop_map(|(numbers, (episodes, lengths, updates, refills, transits))| {
        let (steps, learners, slots, draws_in_turn, keeps_versions, every, meets) = numbers;
        let (mut staleness, of_policies): (Vec<u64>, Vec<Vec<UpdateSteps>>) = learners.into_iter().unzip();
        if !keeps_versions {
            // Versions that are not kept side by side change together.
            staleness = vec![staleness[0]; staleness.len()];
        }
        let mut schedule = StepSchedule::new(steps, staleness).with_updates(of_policies);
        if !draws_in_turn {
            // A scenario of each learner's own, in which the one before it may play too.
            let scenario = |own: usize| match meets[own % 3] {
                true => (own.saturating_sub(1)..=own).collect(),
                false => BTreeSet::from([own]),
            };
            let scenarios: Vec<BTreeSet<usize>> = (0..schedule.learners()).map(scenario).collect();
            schedule = schedule.clone().with_lanes(Lanes::new(schedule.learners(), &scenarios));
        }
        let rules = AdmissionRules { slots, draws_in_turn, keeps_versions };
        Model { schedule, rules, episodes, lengths, updates, transits, refills, every, batches: None }
    })
}

/// Policies that are frozen at first, updated after some steps alone, or on several steps at once.
pub(in crate::schedule) fn update_steps() -> impl Strategy<Value = UpdateSteps> {
    let update = |(freeze, every, many): (u64, u64, bool)| {
        let count = if many { every } else { 1 };
        UpdateSteps { first: freeze + count, every, count }
    };
    (0_u64..4, 1_u64..5, any::<bool>()).prop_map(update)
}

/// Runs in which tasks are trained on in the order in which they end, with their staleness.
fn models_by_arrival() -> impl Strategy<Value = (Model, u64)> {
    (models(), 2_u64..9, 1_u32..5).prop_map(|(model, staleness, tasks)| {
        let (steps, learners) = (model.schedule.steps(), model.schedule.learners());
        let schedule = StepSchedule::by_arrival(steps, staleness, learners);
        let schedule = schedule.with_updates(model.schedule.updates.clone());
        let batches = Some((BatchRule::Arrival { late: schedule.late() }, tasks));
        let rules = AdmissionRules { draws_in_turn: false, ..model.rules };
        (Model { schedule, rules, batches, ..model }, staleness)
    })
}

/// Versions of the weights of each part of a step by the schedule alone.
fn versions(schedule: &StepSchedule, steps: RangeInclusive<u64>) -> BTreeMap<StepPart, Vec<UpdateKey>> {
    let versions = |part: StepPart| (part, schedule.lane_updates(part.lane, part.step));
    parts(schedule, steps).into_iter().map(versions).collect()
}

/// All parts of steps.
fn parts(schedule: &StepSchedule, steps: RangeInclusive<u64>) -> Vec<StepPart> {
    let of_step = |step: u64| (0..schedule.lanes().count()).map(move |lane| StepPart { step, lane });
    steps.flat_map(of_step).collect()
}

/// Returns the parts of a lane.
fn of_lane(parts: &[StepPart], lane: usize) -> Vec<StepPart> {
    parts.iter().copied().filter(|part| part.lane == lane).collect()
}

/// The part of a step in a run with one lane.
fn whole(step: u64) -> StepPart {
    StepPart { step, lane: 0 }
}

#[test]
fn stragglers_play_beside_the_next_step() {
    let rules = AdmissionRules { slots: 3, draws_in_turn: false, keeps_versions: true };
    let mut admission = Admission::new(StepSchedule::new(2, vec![1]), rules);
    admission.play(0, 1..=2);
    assert_eq!(admission.next_action(), Some(Action::Draw { part: whole(1) }));
    assert_eq!(admission.next_action(), None);
    admission.add_episodes(whole(1), &[0, 0]);
    let start = |step, episode| Action::Start { part: whole(step), episode };
    let all = |admission: &mut Admission| std::iter::from_fn(|| admission.next_action()).collect::<Vec<_>>();
    assert_eq!(all(&mut admission), [start(1, 0), start(1, 1), Action::Draw { part: whole(2) }]);
    admission.add_episodes(whole(2), &[0, 0, 0]);
    assert_eq!(all(&mut admission), [start(2, 0)]);
    admission.finished(whole(1), 0);
    assert_eq!(all(&mut admission), [start(2, 1)]);
    // The slow one of step 1 holds the whole of step 2 back from the trainer, not from playing.
    admission.finished(whole(2), 0);
    assert_eq!(all(&mut admission), [start(2, 2)]);
    admission.finished(whole(2), 0);
    admission.finished(whole(2), 0);
    assert_eq!(all(&mut admission), []);
    admission.finished(whole(1), 0);
    assert_eq!(all(&mut admission), [Action::Collect { part: whole(1) }]);
    admission.close(whole(1));
    assert_eq!(all(&mut admission), [Action::Collect { part: whole(2) }]);
    admission.close(whole(2));
    assert!(!admission.uses(UpdateKey { learner: 0, step: 0 }));
}

#[test]
fn a_stopped_admission_starts_nothing_and_closes_nothing() {
    let rules = AdmissionRules { slots: 1, draws_in_turn: false, keeps_versions: true };
    let mut admission = Admission::new(StepSchedule::new(2, vec![1]), rules);
    admission.play(0, 1..=2);
    admission.next_action();
    admission.add_episodes(whole(1), &[0]);
    assert_eq!(admission.next_action(), Some(Action::Start { part: whole(1), episode: 0 }));
    admission.stop();
    assert_eq!((admission.next_action(), admission.running()), (None, 1));
    admission.finished(whole(1), 0);
    assert_eq!((admission.next_action(), admission.running()), (None, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    /// Every run ends, uses the versions that the schedule names, and hands its steps over in order; the model checks the
    /// bounds on slots, steps ahead and versions at every start.
    #[test]
    fn runs_end_in_order_within_their_bounds(model in models()) {
        let steps = model.schedule.steps();
        let history = model.run(0, steps);
        let all = parts(&model.schedule, 1..=steps);
        for lane in 0..model.schedule.lanes().count() {
            prop_assert_eq!(of_lane(&history.closed, lane), of_lane(&all, lane));
            // Oldest first: the order of starts is that of keys.
            prop_assert!(history.starts.iter().filter(|(part, ..)| part.lane == lane).is_sorted());
        }
        prop_assert_eq!(&history.versions, &versions(&model.schedule, 1..=steps));
        let evaluated: Vec<u64> = match model.every {
            0 => Vec::new(),
            every => (1..=steps).filter(|step| step.is_multiple_of(every)).collect(),
        };
        prop_assert_eq!(&history.evaluated, &evaluated);
    }

    /// With slots for all, a lane plays as it does alone, however slow the learners of the others are.
    #[test]
    fn a_lane_does_not_wait_for_another(model in models(), slower in 1_u64..100) {
        let steps = model.schedule.steps();
        let rules = AdmissionRules { slots: usize::MAX, ..model.rules };
        let model = Model { rules, every: 0, transits: vec![0], ..model };
        let lanes = model.schedule.lanes().clone();
        let first = |learner: usize| lanes.of_learner(learner) == 0;
        let delayed = |learner: usize| if first(learner) { 0 } else { slower };
        let own = |history: &History| -> Vec<(StepPart, usize, u64)> {
            history.starts.iter().copied().filter(|(part, ..)| part.lane == 0).collect()
        };
        let delays: Vec<u64> = (0..model.schedule.learners()).map(delayed).collect();
        prop_assert_eq!(own(&model.run_with(&delays, 0, steps)), own(&model.run(0, steps)));
    }

    /// Without staleness, nothing overlaps, so neither rule changes anything.
    #[test]
    fn a_staleness_of_zero_is_sync(model in models()) {
        let sync = Model { schedule: StepSchedule::new(model.schedule.steps(), vec![0; model.schedule.learners()]), ..model };
        let other = AdmissionRules { keeps_versions: !sync.rules.keeps_versions, ..sync.rules };
        let steps = sync.schedule.steps();
        let history = sync.run(0, steps);
        prop_assert_eq!(&Model { rules: other, ..sync.clone() }.run(0, steps), &history);
        let without_refills = Model { refills: vec![0], ..sync };
        let turned = !without_refills.rules.draws_in_turn;
        let rules = AdmissionRules { draws_in_turn: turned, ..without_refills.rules };
        let history = without_refills.run(0, steps);
        prop_assert_eq!(Model { rules, ..without_refills }.run(0, steps), history);
    }

    /// However long the episodes last, each task is trained on once, and no later than its staleness allows. A run that repeats
    /// the record has the same batches, however long its own episodes last.
    #[test]
    fn tasks_by_arrival_are_within_their_staleness(
        (model, staleness) in models_by_arrival(),
        other in prop::collection::vec(1_u64..60, 1..20),
    ) {
        let steps = model.schedule.steps();
        let tasks = model.batches.as_ref().unwrap().1;
        let history = model.run(0, steps);
        prop_assert_eq!(&history.closed, &parts(&model.schedule, 1..=steps));
        prop_assert_eq!(&history.versions, &versions(&model.schedule, 1..=steps));
        for RecordedBatch { step, tasks: own } in &history.batches {
            prop_assert!(own.len() == tasks as usize && own.is_sorted());
            for task in own {
                // Updates of the first learner before this one that the weights of the task don't have.
                let played = history.versions[&whole(task.step)][0].step;
                let is_update = |update: &u64| model.schedule.last_update(0, *update) == *update;
                let behind = (played + 1..*step).filter(is_update).count() as u64;
                prop_assert!(behind <= staleness, "{task} is {behind} updates behind in step {step}");
            }
        }
        let mut trained: Vec<TaskKey> = history.batches.iter().flat_map(|batch| batch.tasks.clone()).collect();
        trained.sort_unstable();
        let all = (1..=steps).flat_map(|step| (0..tasks).map(move |task| TaskKey { step, task }));
        prop_assert_eq!(trained, all.collect::<Vec<_>>());

        let run = RepeatingRun { schedule: &model.schedule, tasks: tasks as usize, is_barrier: &|_| false };
        let rule = run.rule(history.batches.clone()).unwrap();
        let repeated = Model { batches: Some((rule, tasks)), lengths: other, ..model };
        prop_assert_eq!(repeated.run(0, steps).batches, history.batches);
    }

    /// A run that goes on from a checkpoint trains on the tasks that the steps before have left.
    #[test]
    fn resumed_runs_by_arrival_train_on_the_rest((model, _) in models_by_arrival(), at in 1_u64..12) {
        let steps = model.schedule.steps();
        let at = at.min(steps);
        let first = model.schedule.played_before_checkpoint(at) + 1;
        let history = model.run(at, steps);
        prop_assert_eq!(&history.closed, &parts(&model.schedule, first..=steps));
        prop_assert!(history.batches.iter().flat_map(|batch| &batch.tasks).all(|task| task.step >= first));
    }

    /// A run that goes on from any checkpoint plays the rest with the same weights.
    #[test]
    fn resumed_runs_play_with_the_same_weights(model in models(), at in 1_u64..12) {
        let steps = model.schedule.steps();
        let at = at.min(steps);
        let resumed = model.run(at, steps);
        let first = model.schedule.played_before_checkpoint(at) + 1;
        prop_assert_eq!(&resumed.versions, &versions(&model.schedule, first..=steps));
        let mut closed = resumed.closed;
        closed.sort_unstable();
        prop_assert_eq!(closed, parts(&model.schedule, first..=steps));
    }
}
