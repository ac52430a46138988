//! Schedules whose times were worked out by hand.

use proptest::prelude::*;

use super::*;

/// Simulates steps of one episode each, one at a time.
fn simulate(steps: u64, staleness: u64, costs: &[StepCosts]) -> Simulation {
    Simulation::new(steps, staleness, &RunCosts::of_steps(costs.to_vec()))
}

fn step(rollout: f64, train: f64) -> StepCosts {
    StepCosts { episodes: vec![rollout], tasks: vec![0], train: vec![train], ..StepCosts::default() }
}

fn constant(rollout: f64, train: f64) -> [StepCosts; 1] {
    [step(rollout, train)]
}

fn rollout(costs: &StepCosts) -> f64 {
    costs.episodes.iter().sum()
}

#[test]
fn worked_examples() {
    // Four steps of 3 + 2 seconds in turn.
    let sync = simulate(4, 0, &constant(3.0, 2.0));
    assert_eq!(sync.seconds, 20.0);
    assert!((sync.rollout_idle - 0.4).abs() < 1e-12 && (sync.train_idle - 0.6).abs() < 1e-12);
    // All rollouts without a pause, then the last update.
    assert_eq!(simulate(4, 1, &constant(3.0, 2.0)).seconds, 14.0);
    // The first rollouts, then all updates without a pause.
    assert_eq!(simulate(4, 1, &constant(2.0, 3.0)).seconds, 14.0);
    // One slow step of rollouts: a larger staleness plays it earlier.
    let costs: Vec<StepCosts> = [1.0, 1.0, 1.0, 7.0, 1.0, 1.0].map(|rollout| step(rollout, 2.0)).into();
    assert_eq!(simulate(6, 1, &costs).seconds, 18.0);
    assert_eq!(simulate(6, 3, &costs).seconds, 16.0);
    // Half a second before each step in which nothing starts.
    let published = [StepCosts { publish: 0.5, ..step(3.0, 2.0) }];
    assert_eq!((simulate(4, 0, &published).seconds, simulate(4, 1, &published).seconds), (22.0, 16.0));
}

/// Evaluations are those of the workflow, however long its run is.
#[test]
fn evaluations_are_due_at_the_start_at_their_intervals_and_at_the_end() {
    let seconds = |steps, staleness, every: &[u32]| {
        let evaluations = EvaluationCosts { seconds: 1.0, every: every.to_vec() };
        let costs = RunCosts { evaluations, ..RunCosts::of_steps(constant(3.0, 2.0).to_vec()) };
        Simulation::new(steps, staleness, &costs).seconds
    };
    assert_eq!(seconds(4, 0, &[]), 20.0);
    assert_eq!(seconds(4, 0, &[0]), 20.0);
    assert_eq!(seconds(4, 0, &[1]), 25.0);
    // After steps 0, 2 and 4; after 0, 3 and 4; after 0, 2, 3 and 4; after 0 and 4.
    assert_eq!(
        [seconds(4, 0, &[2]), seconds(4, 0, &[3]), seconds(4, 0, &[2, 3]), seconds(4, 0, &[10])],
        [23.0, 23.0, 24.0, 22.0]
    );
    // At the start and at the end, beside nothing else.
    assert_eq!(seconds(4, 1, &[10]), 16.0);
}

#[test]
fn a_straggler_does_not_hold_up_the_next_step() {
    // Two slots; one of two episodes is slow. Step by step, a step takes 8 seconds.
    let step =
        StepCosts { episodes: vec![8.0, 2.0], tasks: vec![0, 1], train: vec![1.0], ..StepCosts::default() };
    let costs = RunCosts { slots: 2, ..RunCosts::of_steps(vec![step]) };
    let seconds = |staleness| Simulation::new(4, staleness, &costs).seconds;
    assert_eq!(seconds(0), 36.0);
    // Slot 1: 8 + 2 + 8 + 2; slot 2: 2 + 8, and 2 of step 2 until its weights are there.
    assert!(seconds(3) <= 23.0 && seconds(3) >= 21.0, "{}", seconds(3));
    let idle = Simulation::new(4, 0, &costs).rollout_idle;
    assert!((idle - (1.0 - 40.0 / 72.0)).abs() < 1e-12);
}

/// Two episodes of 2 and 4 seconds: beside each other each runs at half its speed.
#[test]
fn episodes_slow_each_other_down() {
    let steps = vec![StepCosts {
        episodes: vec![2.0, 4.0],
        tasks: vec![0, 1],
        train: vec![1.0],
        ..StepCosts::default()
    }];
    let costs = |slots| RunCosts { slots, contention: 1.0, ..RunCosts::of_steps(steps.clone()) };
    // The sum of both, however many play at a time.
    assert_eq!(Simulation::new(1, 0, &costs(1)).seconds, 7.0);
    let both = Simulation::new(1, 0, &costs(2));
    assert_eq!(both.seconds, 7.0);
    // One slot is idle for the last 2 seconds of the rollouts, and both during the update.
    assert!((both.rollout_idle - (1.0 - 10.0 / 14.0)).abs() < 1e-12);
}

/// Learners that are slow in different steps wait for each other without staleness, and not with it.
#[test]
fn learners_have_a_pace_of_their_own() {
    let step = |train: [f64; 2]| StepCosts {
        episodes: vec![1.0],
        tasks: vec![0],
        train: train.into(),
        ..StepCosts::default()
    };
    let policies = vec![vec!["small".to_owned()], vec!["large".to_owned()]];
    let steps = vec![step([1.0, 5.0]), step([5.0, 1.0])];
    let costs = RunCosts { policies, ..RunCosts::of_steps(steps) };
    assert_eq!(Simulation::new(6, 0, &costs).seconds, 36.0);
    // The first rollout, then 18 seconds of updates for each learner.
    assert_eq!(Simulation::new(6, 5, &costs).seconds, 19.0);
    // They wait for each other at checkpoints: two steps of 6 seconds each, or one of 5.
    let schedule = StepSchedule::new(6, vec![5, 5]);
    let saved = |checkpoint_every| Simulation::of(schedule.clone(), checkpoint_every, 5, &costs).seconds;
    assert_eq!((saved(2), saved(1)), (19.0, 31.0));
    // Evaluations stop all learners.
    let evaluations = EvaluationCosts { seconds: 1.0, every: vec![1] };
    assert_eq!(Simulation::new(6, 5, &RunCosts { evaluations, ..costs }).seconds, 38.0);
}

/// A slow learner holds up its own episodes alone.
#[test]
fn a_lane_is_as_fast_as_it_is_alone() {
    let step = StepCosts {
        episodes: vec![1.0, 1.0],
        tasks: vec![0, 1],
        lanes: vec![0, 1],
        train: vec![1.0, 9.0],
        ..StepCosts::default()
    };
    let lanes = Lanes::new(2, &[[0].into(), [1].into()]);
    let both = RunCosts { slots: 2, lanes, ..RunCosts::of_steps(vec![step]) };
    let shared = RunCosts { lanes: Lanes::ONE, ..both.clone() };
    let schedule = StepSchedule::new(4, vec![1, 1]);
    let fast = |costs: &RunCosts| {
        let mut simulator = Simulator::new(schedule.clone().with_lanes(costs.lanes.clone()), 0, costs);
        simulator.play_ahead();
        loop {
            while let Some(action) = simulator.admission.next_action() {
                simulator.act(action);
            }
            simulator.train();
            if simulator.learners[0].trained == 4 || !simulator.advance() {
                return simulator.now;
            }
        }
    };
    // The first rollout, and updates without a pause; or step 3 after the slow learner's first update.
    assert_eq!((fast(&both), fast(&shared)), (5.0, 21.0));
    // The slow learner has the same end.
    assert_eq!((Simulation::new(4, 1, &both).seconds, Simulation::new(4, 1, &shared).seconds), (37.0, 37.0));
}

/// Nothing waits for a learner between two updates on two steps each.
#[test]
fn an_update_of_two_steps_takes_the_time_of_both() {
    let step =
        StepCosts { episodes: vec![1.0], tasks: vec![0], train: vec![1.0, 3.0], ..StepCosts::default() };
    let costs = RunCosts::of_steps(vec![step]);
    let pairs = UpdateSteps { first: 2, every: 2, count: 2 };
    let seconds = |staleness: u64| {
        let schedule = StepSchedule::new(4, vec![staleness; 2]);
        let updates = vec![vec![UpdateSteps::ALL], vec![pairs]];
        Simulation::of(schedule.with_updates(updates), 0, staleness, &costs).seconds
    };
    // Steps of 1 + 1 and 1 + 6 seconds in turn.
    assert_eq!(seconds(0), 18.0);
    // The first two rollouts, then the slow learner without a pause.
    assert_eq!(seconds(2), 14.0);
}

/// Two tasks a step, one of which is slow in every other step.
#[test]
fn a_slow_task_holds_up_a_later_update() {
    let step = |slow: f64| StepCosts {
        episodes: vec![1.0, slow],
        tasks: vec![0, 1],
        train: vec![2.0],
        ..StepCosts::default()
    };
    let steps = vec![step(7.0), step(1.0)];
    let costs = RunCosts { slots: 8, ..RunCosts::of_steps(steps) };
    // Both wait for the first task that takes 7 seconds, or don't.
    assert_eq!(Simulation::new(2, 2, &costs).seconds, 11.0);
    assert_eq!(Simulation::by_arrival(2, 2, &costs).unwrap().seconds, 9.0);
    // Nothing is late with a staleness of 1, or if the tasks are not known.
    assert_eq!(Simulation::by_arrival(2, 1, &costs), None);
    let unknown = StepCosts { tasks: Vec::new(), ..step(1.0) };
    assert_eq!(Simulation::by_arrival(2, 2, &RunCosts { steps: vec![unknown], ..costs }), None);
}

proptest! {
    #[test]
    fn no_schedule_beats_the_work_that_has_to_be_done(
        costs in prop::collection::vec((0.01f64..9.0, 0.01f64..9.0), 1..20),
        steps in 1u64..30,
        staleness in 0u64..6,
    ) {
        let costs: Vec<StepCosts> = costs
            .into_iter()
            .map(|(rollout, train)| step(rollout, train))
            .collect();
        let sum = |part: fn(&StepCosts) -> f64| -> f64 {
            (0..steps as usize).map(|step| part(&costs[step % costs.len()])).sum()
        };
        let (rollout, train) = (sum(rollout), sum(|c| c.train[0]));
        let seconds = simulate(steps, staleness, &costs).seconds;
        prop_assert!(seconds >= rollout.max(train) - 1e-9);
        prop_assert!(seconds <= rollout + train + 1e-9);
        // A larger staleness is never slower.
        prop_assert!(simulate(steps, staleness + 1, &costs).seconds <= seconds + 1e-9);
        let sync = simulate(steps, 0, &costs).seconds;
        prop_assert!((sync - rollout - train).abs() < 1e-9);
    }
}
