//! What holds for any number of tasks, samples, turns and agents, any turn graph, flat and tree.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use pl_dsl::workflow::{Edge, Node, Rollout, Target, Turns};
use pl_record::Transition;
use pl_rollout::{Agreement, Batch, Error, Fault, Plan, Trace, replay};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::common::{self, Script, World, digit, groups, line, plan, play, play_on_two, shown, when_odd};

#[derive(Debug, Clone)]
struct Shape {
    mode: Rollout,
    tasks: u32,
    samples: u32,
    seed: u64,
    agents: usize,
    turns: Turns,
    /// Nothing that is said changes the way through the graph.
    straight: bool,
    /// The episode is over once an agent says this.
    ends_at: Option<u64>,
    /// An agent and a visit that it sits out.
    skips: Option<(usize, u32)>,
    /// The environment traps where an agent says this.
    traps_at: Option<u64>,
    jitter: u8,
}

/// Chains, loops, side by side: every agent once, in one order.
fn regular() -> impl Strategy<Value = (usize, Turns, bool)> {
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

/// Any nodes with any edges, some of which depend on what was said.
fn wild() -> impl Strategy<Value = (usize, Turns, bool)> {
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
        prop_oneof![regular(), wild()],
        rare(0..10),
        proptest::option::weighted(0.3, (0_usize..3, 0_u32..2)),
        if traps { (0_u64..10).prop_map(Some).boxed() } else { Just(None).boxed() },
        any::<u8>(),
    )
        .prop_map(|(size, (agents, turns, straight), ends_at, skips, traps_at, jitter)| {
            let (mode, tasks, samples, seed) = size;
            Shape { mode, tasks, samples, seed, agents, turns, straight, ends_at, skips, traps_at, jitter }
        })
}

impl Shape {
    fn world(&self, jitter: u8) -> Arc<World> {
        let (ends_at, traps_at, agents) = (self.ends_at, self.traps_at, self.agents);
        let skips = self.skips.map(|(agent, visit)| (common::name_of(agent), visit));
        let script = Script {
            apply: Arc::new(move |state| {
                let said =
                    |what: Option<u64>| what.is_some() && (0..agents).any(|agent| state.last(agent) == what);
                if said(traps_at) {
                    return Err(Fault::new("apply", "it trapped"));
                }
                Ok((said(ends_at), false))
            }),
            skip: Arc::new(move |turn| {
                skips.as_ref().is_some_and(|(agent, visit)| turn.agent == *agent && turn.visit == *visit)
            }),
            tells_copy: false,
            ..Script::default()
        };
        World::with_jitter(script, jitter)
    }

    fn plan(&self, in_flight: usize) -> Plan {
        Plan { seed: self.seed, in_flight, ..plan(self.mode, self.tasks, self.samples) }
    }

    /// Plays one episode after another, with a model that answers at once.
    fn play(&self) -> (Arc<World>, Option<Batch>) {
        let world = self.world(0);
        let batch = play(&world.cast(self.agents, self.turns.clone()), &self.plan(1)).ok();
        (world, batch)
    }
}

/// What a learner relies on, whatever failed.
fn check_groups(shape: &Shape, batch: &Batch) {
    let keys: Vec<_> = batch.transitions.iter().map(|t| &t.key).collect();
    assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "keys are sorted, and no two are equal");
    let tokens: HashSet<_> = batch.transitions.iter().map(|t| &t.completion).collect();
    assert_eq!(tokens.len(), batch.transitions.len(), "no completion is there twice");
    for (group, members) in groups(&batch.transitions) {
        let one = members[0];
        let place = |t: &Transition| {
            (t.key.step, t.key.task, t.task_id.clone(), t.key.agent, t.agent.clone(), t.policy, t.turn)
        };
        assert!(members.iter().all(|t| place(t) == place(one)));
        assert_eq!(
            (group.step, group.task, group.agent, group.turn),
            (3, one.key.task, one.key.agent, one.turn)
        );
        assert_eq!(one.task_id, format!("task:{}", group.task));
        assert!(members.iter().all(|t| shown(&t.prompt).task == one.task_id));
        assert!(members.len() <= shape.samples as usize);
        let told_apart: BTreeSet<_> = members.iter().map(|t| (t.key.sample, t.key.branch)).collect();
        assert_eq!(told_apart.len(), members.len());
        match shape.mode {
            Rollout::Tree => {
                let state = |t: &Transition| (t.key.node_visit, t.state.clone(), t.prompt.clone());
                assert!(members.iter().all(|t| state(t) == state(one)), "one starting state");
                assert!(!one.state.is_empty() && group.node_visit == Some(one.key.node_visit));
                assert_eq!(members.iter().filter(|t| t.chosen).count(), 1, "one way on");
            }
            Rollout::Flat => {
                assert!(members.iter().all(|t| t.state.is_empty() && t.chosen && t.key.branch == 0));
                assert_eq!(group.node_visit, None);
            }
        }
    }
}

/// Each stop starts where the chosen joint action of the stop before led to.
fn check_path(batch: &Batch) {
    let mut paths = std::collections::BTreeMap::<_, Vec<&Transition>>::new();
    for transition in batch.transitions.iter().filter(|t| t.chosen) {
        paths.entry((transition.key.task, transition.key.sample)).or_default().push(transition);
    }
    for path in paths.values() {
        let mut did: Vec<Vec<(String, u64)>> = Vec::new();
        for stop in path.chunk_by(|a, b| a.key.node_visit == b.key.node_visit) {
            for transition in stop {
                let seen: Vec<Vec<(String, u64)>> = shown(&transition.prompt)
                    .did
                    .into_iter()
                    .map(|joint| joint.into_iter().map(|(agent, said)| (agent, digit(&said))).collect())
                    .collect();
                assert_eq!(seen, did);
            }
            did.push(stop.iter().map(|t| (t.agent.clone(), digit(&t.action))).collect());
        }
    }
}

fn same(left: &Batch, right: &Batch) {
    assert_eq!(left.transitions, right.transitions);
    assert_eq!(left.episodes, right.episodes);
    assert_eq!(left.failures, right.failures);
    assert_eq!(left.lost, right.lost);
    assert_eq!(left.traces, right.traces);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn groups_are_whole_and_nothing_is_lost_where_nothing_fails(shape in shape(false)) {
        let (world, batch) = shape.play();
        let batch = batch.unwrap();
        check_groups(&shape, &batch);
        check_path(&batch);
        prop_assert!(batch.failures.is_empty() && batch.lost == 0);
        for members in groups(&batch.transitions).values() {
            let whole = shape.mode == Rollout::Tree || shape.straight && shape.ends_at.is_none();
            prop_assert!(!whole || members.len() == shape.samples as usize);
        }
        let given: HashSet<_> = world.given.lock().unwrap().values().map(|c| c.tokens.clone()).collect();
        let kept: HashSet<_> = batch.transitions.iter().map(|t| t.completion.clone()).collect();
        prop_assert_eq!(given, kept);
        let episodes = shape.tasks * if shape.mode == Rollout::Flat { shape.samples } else { 1 };
        prop_assert_eq!(batch.episodes.len(), episodes as usize);
        let tokens: u64 = batch.episodes.iter().map(|e| e.tokens).sum();
        prop_assert_eq!(tokens, batch.transitions.iter().map(|t| t.completion.len() as u64).sum::<u64>());
    }

    #[test]
    fn groups_stay_pure_where_episodes_and_candidates_fail(shape in shape(true)) {
        let (world, batch) = shape.play();
        let Some(batch) = batch else { return Ok(()) };
        check_groups(&shape, &batch);
        check_path(&batch);
        let given: HashSet<_> = world.given.lock().unwrap().values().map(|c| c.tokens.clone()).collect();
        prop_assert!(batch.transitions.iter().all(|t| given.contains(&t.completion)));
        prop_assert!(batch.transitions.iter().all(|t| Some(digit(&t.action)) != shape.traps_at));
        let episodes = shape.tasks * if shape.mode == Rollout::Flat { shape.samples } else { 1 };
        prop_assert_eq!(batch.episodes.len() + batch.lost, episodes as usize);
        let whole = batch.failures.iter().filter(|f| f.branch.is_none()).count();
        prop_assert!(whole >= 3 * batch.lost);
    }

    #[test]
    fn a_batch_does_not_depend_on_what_is_in_flight_or_on_timing(shape in shape(false), traps in any::<bool>()) {
        let shape = Shape { traps_at: traps.then_some(4), ..shape };
        let (_, one) = shape.play();
        let world = shape.world(shape.jitter.max(1));
        let many = play_on_two(&world.cast(shape.agents, shape.turns.clone()), &shape.plan(8)).ok();
        prop_assert_eq!(one.is_some(), many.is_some());
        if let (Some(one), Some(many)) = (one, many) {
            same(&one, &many);
        }
    }

    #[test]
    fn every_attempt_is_played_again_as_it_was(shape in shape(false), traps in any::<bool>()) {
        let shape = Shape { traps_at: traps.then_some(4), ..shape };
        let world = shape.world(shape.jitter.max(1));
        let played = play_on_two(&world.cast(shape.agents, shape.turns.clone()), &shape.plan(8));
        let traces = match played {
            Ok(batch) => batch.traces,
            Err(Error::NoEpisode { traces, .. }) => traces,
            Err(error) => panic!("{error}"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // A model that nobody asks: the world is another one.
        let again = shape.world(0);
        let cast = again.cast(shape.agents, shape.turns.clone());
        for trace in traces {
            let line = serde_json::to_string(&trace).unwrap();
            let trace: Trace = serde_json::from_str(&line).unwrap();
            let replayed = runtime.block_on(replay(&cast, &trace));
            prop_assert_eq!(replayed.agreement, Agreement::Whole);
            prop_assert_eq!(replayed.now.trace, trace);
        }
        prop_assert!(again.requests.lock().unwrap().is_empty());
    }
}
