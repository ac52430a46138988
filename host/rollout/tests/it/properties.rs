//! Properties for any number of tasks, samples, turns and agents and any turn graph, flat and tree.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use pl_dsl::workflow::{Edge, Node, Rollout, Target, Turns};
use pl_rollout::{Agreement, Error, Fault, RolloutBatch, RolloutPlan, Trace, replay};
use pl_types::Transition;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::common::{
    self, Script, World, digit, groups, line, plan, play, play_on_two, shown_state, when_odd,
};

#[derive(Debug, Clone)]
struct Shape {
    mode: Rollout,
    tasks: u32,
    samples: u32,
    seed: u64,
    agents: usize,
    turns: Turns,
    /// True if no action changes the path through the graph.
    fixed_path: bool,
    /// The episode is over once an action has this number.
    ends_at: Option<u64>,
    /// An agent and the visit that it skips.
    skips: Option<(usize, u32)>,
    /// The environment traps at an action with this number.
    traps_at: Option<u64>,
    jitter: u8,
}

/// Chains, loops and joint actions: every agent once, in one order.
fn regular_graph() -> impl Strategy<Value = (usize, Turns, bool)> {
    (1_usize..=4, 1_u32..=3, 0..4).prop_map(|(agents, max, kind)| {
        let each: Vec<Vec<usize>> = (0..agents).map(|agent| vec![agent]).collect();
        let each: Vec<&[usize]> = each.iter().map(Vec::as_slice).collect();
        let all: Vec<usize> = (0..agents).collect();
        let turns = match kind {
            0 => line(max, &each, Target::End),
            1 => line(max, &each, Target::Node(0)),
            2 => line(max, &[&all], Target::Node(0)),
            _ => line(max, &[&all[..1], &all], Target::Node(0)),
        };
        (agents, turns, true)
    })
}

/// Any nodes with any edges, some of which depend on actions.
fn random_graph() -> impl Strategy<Value = (usize, Turns, bool)> {
    let target = || prop_oneof![4 => (0_usize..3).prop_map(Target::Node), 1 => Just(Target::End)];
    let node = (1_u8..8, target(), proptest::option::of(target()));
    (vec(node, 3), 1_u32..=3).prop_map(|(nodes, max)| {
        let node = |(mask, to, odd): (u8, Target, Option<Target>)| Node {
            agents: (0..3).filter(|agent| mask >> agent & 1 == 1).collect(),
            edges: odd.map(when_odd).into_iter().chain([Edge { to, when: None }]).collect(),
        };
        let start = vec![Edge { to: Target::Node(0), when: None }];
        (3, Turns { max, start, nodes: nodes.into_iter().map(node).collect() }, false)
    })
}

fn shape(traps: bool) -> impl Strategy<Value = Shape> {
    let rare = |some: std::ops::Range<u64>| proptest::option::weighted(0.3, some);
    (
        (prop_oneof![Just(Rollout::Flat), Just(Rollout::Tree)], 1_u32..=4, 1_u32..=5, any::<u64>()),
        prop_oneof![regular_graph(), random_graph()],
        rare(0..10),
        proptest::option::weighted(0.3, (0_usize..3, 0_u32..2)),
        if traps { (0_u64..10).prop_map(Some).boxed() } else { Just(None).boxed() },
        any::<u8>(),
    )
        .prop_map(|(size, (agents, turns, fixed_path), ends_at, skips, traps_at, jitter)| {
            let (mode, tasks, samples, seed) = size;
            Shape { mode, tasks, samples, seed, agents, turns, fixed_path, ends_at, skips, traps_at, jitter }
        })
}

impl Shape {
    fn world(&self, jitter: u8) -> Arc<World> {
        let (ends_at, traps_at, agents) = (self.ends_at, self.traps_at, self.agents);
        let skips = self.skips.map(|(agent, visit)| (common::agent_name(agent), visit));
        let script = Script {
            apply: Arc::new(move |state| {
                let acted = |number: Option<u64>| {
                    number.is_some() && (0..agents).any(|agent| state.last(agent) == number)
                };
                if acted(traps_at) {
                    return Err(Fault::new("apply", "it trapped"));
                }
                Ok((acted(ends_at), false))
            }),
            skip: Arc::new(move |turn| {
                skips.as_ref().is_some_and(|(agent, visit)| turn.agent == *agent && turn.visit == *visit)
            }),
            names_copy: false,
            ..Script::default()
        };
        World::with_jitter(script, jitter)
    }

    fn plan(&self, in_flight: usize) -> RolloutPlan {
        RolloutPlan { seed: self.seed, in_flight, ..plan(self.mode, self.tasks, self.samples) }
    }

    /// Plays one episode after another, with a model that completes at once.
    fn play(&self) -> (Arc<World>, Option<RolloutBatch>) {
        let world = self.world(0);
        let batch = play(&world.setup(self.agents, self.turns.clone()), &self.plan(1)).ok();
        (world, batch)
    }
}

/// Checks what a learner relies on, with or without failures.
fn check_groups(shape: &Shape, batch: &RolloutBatch) {
    let keys: Vec<_> = batch.transitions.iter().map(|t| &t.key).collect();
    assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "keys are sorted, and no two are equal");
    let tokens: HashSet<_> = batch.transitions.iter().map(|t| &t.completion).collect();
    assert_eq!(tokens.len(), batch.transitions.len(), "no completion occurs twice");
    for (group, members) in groups(&batch.transitions) {
        let one = members[0];
        let origin = |t: &Transition| {
            (t.key.step, t.key.task, t.task_id.clone(), t.key.agent, t.agent.clone(), t.policy, t.turn)
        };
        assert!(members.iter().all(|t| origin(t) == origin(one)));
        assert_eq!(
            (group.step, group.task, group.agent, group.turn),
            (3, one.key.task, one.key.agent, one.turn)
        );
        assert_eq!(one.task_id, format!("task:{}", group.task));
        assert!(members.iter().all(|t| shown_state(&t.prompt).task == one.task_id));
        assert!(members.len() <= shape.samples as usize);
        let origins: BTreeSet<_> = members.iter().map(|t| (t.key.sample, t.key.branch)).collect();
        assert_eq!(origins.len(), members.len());
        match shape.mode {
            Rollout::Tree => {
                let state = |t: &Transition| (t.key.node_visit, t.state.clone(), t.prompt.clone());
                assert!(members.iter().all(|t| state(t) == state(one)), "one starting state");
                assert!(!one.state.is_empty() && group.node_visit == Some(one.key.node_visit));
                assert_eq!(members.iter().filter(|t| t.chosen).count(), 1, "one chosen candidate");
            }
            Rollout::Flat => {
                assert!(members.iter().all(|t| t.state.is_empty() && t.chosen && t.key.branch == 0));
                assert_eq!(group.node_visit, None);
            }
        }
    }
}

/// Checks that each node visit starts from the state after the chosen joint action of the visit before.
fn check_path(batch: &RolloutBatch) {
    let mut paths = std::collections::BTreeMap::<_, Vec<&Transition>>::new();
    for transition in batch.transitions.iter().filter(|t| t.chosen) {
        paths.entry((transition.key.task, transition.key.sample)).or_default().push(transition);
    }
    for path in paths.values() {
        let mut earlier: Vec<Vec<(String, u64)>> = Vec::new();
        for visit in path.chunk_by(|a, b| a.key.node_visit == b.key.node_visit) {
            for transition in visit {
                let seen: Vec<Vec<(String, u64)>> = shown_state(&transition.prompt)
                    .actions
                    .into_iter()
                    .map(|joint| joint.into_iter().map(|(agent, action)| (agent, digit(&action))).collect())
                    .collect();
                assert_eq!(seen, earlier);
            }
            earlier.push(visit.iter().map(|t| (t.agent.clone(), digit(&t.action))).collect());
        }
    }
}

fn assert_equal(left: &RolloutBatch, right: &RolloutBatch) {
    assert_eq!(left.transitions, right.transitions);
    assert_eq!(left.episodes, right.episodes);
    assert_eq!(left.failures, right.failures);
    assert_eq!(left.lost, right.lost);
    assert_eq!(left.traces, right.traces);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn groups_are_whole_and_nothing_is_lost_if_nothing_fails(shape in shape(false)) {
        let (world, batch) = shape.play();
        let batch = batch.unwrap();
        check_groups(&shape, &batch);
        check_path(&batch);
        prop_assert!(batch.failures.is_empty() && batch.lost == 0);
        for members in groups(&batch.transitions).values() {
            let whole = shape.mode == Rollout::Tree || shape.fixed_path && shape.ends_at.is_none();
            prop_assert!(!whole || members.len() == shape.samples as usize);
        }
        let completions = world.completion_tokens();
        let kept: HashSet<_> = batch.transitions.iter().map(|t| t.completion.clone()).collect();
        prop_assert_eq!(completions, kept);
        let episodes = shape.tasks * if shape.mode == Rollout::Flat { shape.samples } else { 1 };
        prop_assert_eq!(batch.episodes.len(), episodes as usize);
        let tokens: u64 = batch.episodes.iter().map(|e| e.tokens).sum();
        prop_assert_eq!(tokens, batch.transitions.iter().map(|t| t.completion.len() as u64).sum::<u64>());
    }

    #[test]
    fn groups_stay_pure_if_episodes_and_candidates_fail(shape in shape(true)) {
        let (world, batch) = shape.play();
        let Some(batch) = batch else { return Ok(()) };
        check_groups(&shape, &batch);
        check_path(&batch);
        let completions = world.completion_tokens();
        prop_assert!(batch.transitions.iter().all(|t| completions.contains(&t.completion)));
        prop_assert!(batch.transitions.iter().all(|t| Some(digit(&t.action)) != shape.traps_at));
        let episodes = shape.tasks * if shape.mode == Rollout::Flat { shape.samples } else { 1 };
        prop_assert_eq!(batch.episodes.len() + batch.lost, episodes as usize);
        let whole = batch.failures.iter().filter(|f| f.branch.is_none()).count();
        prop_assert!(whole >= 3 * batch.lost);
    }

    #[test]
    fn a_batch_does_not_depend_on_concurrency_or_timing(shape in shape(false), traps in any::<bool>()) {
        let shape = Shape { traps_at: traps.then_some(4), ..shape };
        let (_, one) = shape.play();
        let world = shape.world(shape.jitter.max(1));
        let many = play_on_two(&world.setup(shape.agents, shape.turns.clone()), &shape.plan(8)).ok();
        prop_assert_eq!(one.is_some(), many.is_some());
        if let (Some(one), Some(many)) = (one, many) {
            assert_equal(&one, &many);
        }
    }

    #[test]
    fn every_attempt_is_replayed_as_it_was(shape in shape(false), traps in any::<bool>()) {
        let shape = Shape { traps_at: traps.then_some(4), ..shape };
        let world = shape.world(shape.jitter.max(1));
        let played = play_on_two(&world.setup(shape.agents, shape.turns.clone()), &shape.plan(8));
        let traces = match played {
            Ok(batch) => batch.traces,
            Err(Error::NoEpisode { traces, .. }) => traces,
            Err(error) => panic!("{error}"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // Another world, whose model must not be called.
        let other = shape.world(0);
        let setup = other.setup(shape.agents, shape.turns.clone());
        for trace in traces {
            let line = serde_json::to_string(&trace).unwrap();
            let trace: Trace = serde_json::from_str(&line).unwrap();
            let replayed = runtime.block_on(replay(&setup, &trace));
            prop_assert_eq!(replayed.agreement, Agreement::Full);
            prop_assert_eq!(replayed.attempt.trace, trace);
        }
        prop_assert!(other.requests.lock().unwrap().is_empty());
    }
}
