//! Targets of worked examples.

use pl_dsl::workflow::objective::{
    Baseline, Correction, FlatGroups, GroupBy, KlEstimator, OldLogprobs, Overlong, TrustRegion,
};

use super::*;
use crate::fixtures::{objective, transition};

/// Two flat episodes of a task: agent 0 acts twice in each.
fn transitions() -> Vec<Transition> {
    (0..4)
        .map(|i| {
            let mut t = transition(0, i, 2, 2 + i as usize);
            (t.key.task, t.key.sample, t.key.node_visit) = (0, i / 2, i % 2);
            (t.group.task, t.group.turn, t.group.node_visit) = (0, i % 2, None);
            t.agent = "solver".to_owned();
            t.reward = [1.0, 2.0, 0.0, 5.0][i as usize];
            t.success = i == 3;
            t
        })
        .collect()
}

fn batch(transitions: &[Transition]) -> PolicyBatch<'_> {
    PolicyBatch {
        transitions: transitions.iter().collect(),
        outcomes: transitions.iter().map(TurnOutcome::from).collect(),
        recomputed: None,
        reference: None,
        values: None,
        shuffle: None,
    }
}

/// Advantages of each completion's first token.
fn first_advantages(objective: &Objective, transitions: &[Transition]) -> Vec<f32> {
    let state = ObjectiveState::new(objective);
    let prepared = batch(transitions).prepare(objective, &state).unwrap();
    for (targets, transition) in prepared.targets.iter().zip(transitions) {
        assert_eq!(targets.advantages.len(), transition.completion.len());
        assert!(targets.advantages.windows(2).all(|pair| pair[0] == pair[1]));
    }
    prepared.targets.iter().map(|targets| targets.advantages[0]).collect()
}

fn unscaled() -> Objective {
    Objective { scale: Scale::None, ..objective() }
}

/// A control experiment: whole returns change places, so that no choice of a completion, not even that of the
/// number of turns, has an effect on its advantage.
#[test]
fn shuffled_returns_are_a_permutation_within_the_groups_of_the_objective() {
    let transitions = transitions();
    let objective =
        Objective { returns: Returns::Episode, group_by: GroupBy { agent: true, turn: false }, ..unscaled() };
    let shuffled = |seed: u8| {
        let shuffle = Some([seed; 32]);
        let batch = PolicyBatch { shuffle, ..batch(&transitions) };
        let prepared = batch.prepare(&objective, &ObjectiveState::new(&objective)).unwrap();
        prepared.targets.iter().map(|targets| targets.advantages[0]).collect::<Vec<_>>()
    };
    let mut means = [0.0; 4];
    for seed in 0..=255 {
        let mut advantages = shuffled(seed);
        assert_eq!(advantages, shuffled(seed));
        for (mean, advantage) in means.iter_mut().zip(&advantages) {
            *mean += advantage / 256.0;
        }
        advantages.sort_by(f32::total_cmp);
        assert_eq!(advantages, [-1.0, -1.0, 1.0, 1.0]);
    }
    // Four standard errors.
    assert!(means.iter().all(|mean| mean.abs() < 0.25), "{means:?}");
}

#[test]
fn returns_groups_and_baselines_combine() {
    let transitions = transitions();
    // Turn by turn: 1 against 0, 2 against 5.
    assert_eq!(first_advantages(&unscaled(), &transitions), [0.5, -1.5, -0.5, 1.5]);
    let group_by = GroupBy { agent: true, turn: false };
    let by_episode = Objective { returns: Returns::Episode, group_by, ..unscaled() };
    assert_eq!(first_advantages(&by_episode, &transitions), [-1.0, -1.0, 1.0, 1.0]);
    let discounted = Objective { returns: Returns::Discounted, gamma_turn: 0.5, ..unscaled() };
    assert_eq!(first_advantages(&discounted, &transitions), [-0.25, -1.5, 0.25, 1.5]);
    let rloo = Objective { baseline: Baseline::LeaveOneOut, ..by_episode };
    // The other turn of the same episode is left out too.
    assert_eq!(first_advantages(&rloo, &transitions), [-2.0, -2.0, 2.0, 2.0]);
    let plain = Objective { advantage: Advantage::Return, baseline: Baseline::None, ..unscaled() };
    assert_eq!(first_advantages(&plain, &transitions), [1.0, 2.0, 0.0, 5.0]);
    let success = Objective { advantage: Advantage::Success, ..plain };
    assert_eq!(first_advantages(&success, &transitions), [0.0, 0.0, 1.0, 1.0]);
}

/// The transitions of [`transitions`], with a model call before that of the third.
fn with_tool_call() -> Vec<Transition> {
    let mut transitions = transitions();
    let mut first = Transition { final_call: false, ..transitions[2].clone() };
    first.completion.truncate(2);
    first.logprobs.truncate(2);
    transitions[2].key.call = 1;
    transitions.insert(2, first);
    transitions
}

#[test]
fn a_turn_with_tool_calls_counts_once_and_all_its_completions_get_its_advantage() {
    let episode = |objective| Objective { returns: Returns::Episode, ..objective };
    let discounted = Objective { returns: Returns::Discounted, gamma_turn: 0.5, ..unscaled() };
    let rloo = Objective { baseline: Baseline::LeaveOneOut, ..unscaled() };
    let success = Objective { advantage: Advantage::Success, baseline: Baseline::None, ..unscaled() };
    let ema = Objective { advantage: Advantage::Ema, baseline: Baseline::None, ..unscaled() };
    for objective in [unscaled(), objective(), episode(unscaled()), discounted, rloo, success, ema] {
        let mut expected = first_advantages(&objective, &transitions());
        expected.insert(2, expected[2]);
        assert_eq!(first_advantages(&objective, &with_tool_call()), expected, "{objective:?}");
    }
    let filtered = Objective { flat_groups: FlatGroups::Drop, drop_groups: 0.5, ..unscaled() };
    let transitions = with_tool_call();
    let prepared = batch(&transitions).prepare(&filtered, &ObjectiveState::new(&filtered)).unwrap();
    // The group of the first turns, with the smaller spread, is left out whole.
    assert_eq!(prepared.left_out.completions, [true, false, true, true, false]);
    // A penalty for each token counts all tokens of the turn: 4 of one completion, and 2 of the one before.
    let penalty = Objective { token_penalty: 0.5, ..unscaled() };
    let prepared = batch(&transitions).prepare(&penalty, &ObjectiveState::new(&penalty)).unwrap();
    let returned = |index: usize| prepared.targets[index].credit.unwrap().value;
    assert_eq!((returned(0), returned(2), returned(3)), (1.0 - 1.0, -3.0, -3.0));
}

#[test]
fn estimates_go_on_over_the_calls_of_a_turn() {
    let transitions = with_tool_call();
    let transitions: Vec<&Transition> = transitions.iter().collect();
    let trajectories = Trajectories::new(&transitions);
    let tokens = transitions.iter().map(|t| vec![0.0; t.completion.len()]).collect();
    let values = PredictedValues { tokens, next: vec![None; 5] };
    let objective =
        Objective { gamma: 0.9, gamma_turn: 0.5, lambda: 1.0, advantage: Advantage::Gae, ..objective() };
    let rewards: Vec<f64> = transitions.iter().map(|t| t.reward).collect();
    let estimates = values.estimate(&objective, &trajectories, &rewards, None);
    // The last turn of the episode has five tokens and the reward 5; the one before four, after a call of two.
    let last = 5.0 * 0.9f64.powi(4);
    let second = 0.5 * last * 0.9f64.powi(3);
    let first = 0.9 * second * 0.9;
    let close = |got: f64, expected: f64| assert!((got - expected).abs() < 1e-12, "{got} {expected}");
    close(estimates[4].advantages[0], last);
    close(estimates[3].advantages[0], second);
    close(estimates[2].advantages[0], first);
}

#[test]
fn numbers_of_groups_are_those_that_were_compared() {
    let mut transitions = transitions();
    transitions[3].reward = 2.0;
    let prepared = batch(&transitions).prepare(&objective(), &ObjectiveState::new(&objective())).unwrap();
    assert_eq!((prepared.groups, prepared.flat_groups), (2, 1));
    assert_eq!(prepared.targets[1].advantages, [0.0; 3]);
}

#[test]
fn moving_averages_carry_over_to_the_next_step() {
    let transitions = transitions();
    let objective = Objective { advantage: Advantage::Ema, baseline: Baseline::None, ..unscaled() };
    let start = ObjectiveState::new(&objective);
    let first = batch(&transitions).prepare(&objective, &start).unwrap();
    assert_eq!(first.targets[3].advantages[0], 5.0);
    let average = first.state.averages["solver"];
    assert!((average - 0.05 * 2.0).abs() < 1e-12);
    let second = batch(&transitions).prepare(&objective, &first.state).unwrap();
    assert_eq!(second.targets[3].advantages[0], (5.0 - average) as f32);
    // The state survives a checkpoint bit for bit.
    let text = serde_json::to_string(&second.state).unwrap();
    assert_eq!(serde_json::from_str::<ObjectiveState>(&text).unwrap(), second.state);
}

#[test]
fn masked_completions_have_no_part_in_whitening() {
    let mut transitions = transitions();
    let whitened = Objective {
        advantage: Advantage::Return,
        baseline: Baseline::None,
        scale: Scale::Batch,
        overlong: Overlong::Mask,
        ..objective()
    };
    transitions[3].cut_off = true;
    let state = ObjectiveState::new(&whitened);
    let prepared = batch(&transitions).prepare(&whitened, &state).unwrap();
    assert_eq!(prepared.targets[3].advantages, [0.0; 5]);
    assert_eq!(
        prepared.targets.iter().map(|own| own.masked).collect::<Vec<_>>(),
        [false, false, false, true]
    );
    // 2 tokens of 1, 3 of 2, 4 of 0: mean 8/9.
    let mean = 8.0 / 9.0;
    let variance = (2.0 * (1.0f64 - mean).powi(2) + 3.0 * (2.0f64 - mean).powi(2) + 4.0 * mean.powi(2)) / 8.0;
    let expected = (1.0 - mean) / (variance + crate::advantage::VARIANCE_EPSILON).sqrt();
    assert!((f64::from(prepared.targets[0].advantages[0]) - expected).abs() < 1e-6);
}

#[test]
fn long_completions_lose_reward() {
    let transitions = transitions();
    let mut penalised =
        Objective { overlong: Overlong::Penalize, overlong_buffer: 62, overlong_penalty: 31.0, ..unscaled() };
    penalised.advantage = Advantage::Return;
    penalised.baseline = Baseline::None;
    // The limit is 64: lengths 3, 4, 5 are 1, 2, 3 tokens into the buffer.
    assert_eq!(first_advantages(&penalised, &transitions), [1.0, 1.5, -1.0, 3.5]);
}

#[test]
fn long_calls_before_the_last_one_lower_the_reward_of_their_turn() {
    // The buffer begins at 0, so that each token costs half a point. The call has 2 tokens, the turn's last completion 4.
    let penalised = Objective {
        overlong: Overlong::Penalize,
        overlong_buffer: 64,
        overlong_penalty: 32.0,
        advantage: Advantage::Return,
        baseline: Baseline::None,
        ..unscaled()
    };
    assert_eq!(first_advantages(&penalised, &with_tool_call()), [0.0, 0.5, -3.0, -3.0, 2.5]);
}

#[test]
fn divergences_lower_the_rewards_of_tokens() {
    let transitions = transitions();
    let reinforce_pp = Objective {
        returns: Returns::Discounted,
        advantage: Advantage::Return,
        baseline: Baseline::None,
        kl: 0.5,
        kl_estimator: KlEstimator::K1,
        kl_in: KlPlace::Reward,
        kl_target: Some(0.1),
        kl_horizon: 100.0,
        ..unscaled()
    };
    let state = ObjectiveState::new(&reinforce_pp);
    let with_reference = || {
        let reference = |t: &Transition| t.logprobs.iter().map(|logp| logp - 0.25).collect();
        PolicyBatch { reference: Some(transitions.iter().map(reference).collect()), ..batch(&transitions) }
    };
    let prepared = with_reference().prepare(&reinforce_pp, &state).unwrap();
    let (kl, coefficient) = prepared.reference_kl.unwrap();
    assert!((kl - 0.25).abs() < 1e-6 && coefficient == 0.5);
    assert!((prepared.state.kl_coefficient - 0.5 * (1.0 + 0.2 * 4.0 / 100.0)).abs() < 1e-9);
    // Each token costs 0.125. The last turn has 3 tokens and 2 - 0.375; the first has 2 more.
    let close = |got: &[f32], expected: &[f32]| {
        assert!(got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?} and {expected:?}");
    };
    close(&prepared.targets[1].advantages, &[1.625, 1.75, 1.875]);
    close(&prepared.targets[0].advantages, &[1.0 - 0.25 + 1.625, 1.0 - 0.125 + 1.625]);
    // The record of the tokens has them in both cases.
    let reference = prepared.targets[2].reference_logprobs.as_ref().unwrap();
    assert!(reference.iter().zip(&transitions[2].logprobs).all(|(own, logp)| *own == logp - 0.25));
    // A group's returns have the penalties of whole completions.
    let grouped = Objective { advantage: Advantage::Group, baseline: Baseline::Mean, ..reinforce_pp };
    let grouped = Objective { returns: Returns::Step, ..grouped };
    let prepared = with_reference().prepare(&grouped, &state).unwrap();
    close(&prepared.targets[0].advantages, &[(1.0 - 0.25 - (0.0 - 0.5)) / 2.0; 2]);
    // In the loss, the divergence changes no advantage.
    let in_loss = Objective { kl_in: KlPlace::Loss, ..grouped };
    let prepared = with_reference().prepare(&in_loss, &state).unwrap();
    close(&prepared.targets[0].advantages, &[0.5; 2]);
    assert_eq!(prepared.targets[2].reference_logprobs.as_ref().unwrap().len(), 4);
}

/// The tensors are those of `tests/peers.rs`.
#[test]
fn reinforce_pp_with_divergences_in_the_reward_equals_that_of_verl() {
    let text = include_str!("../../../../tests/conformance/loss/verl.json");
    let vectors = &serde_json::from_str::<serde_json::Value>(text).unwrap()["advantages"];
    let numbers = |name: &str| -> Vec<f64> {
        vectors[name].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
    };
    let (lengths, scores) = (numbers("lengths"), numbers("scores"));
    let (penalties, expected) = (numbers("penalties"), numbers("reinforce_pp_penalised"));
    let width = penalties.len() / lengths.len();
    let transitions: Vec<Transition> = (0..lengths.len())
        .map(|i| Transition { reward: scores[i], ..transition(0, i as u32, 2, lengths[i] as usize) })
        .collect();
    let rows = transitions.iter().zip(penalties.chunks(width));
    let reference = rows.map(|(t, own)| t.logprobs.iter().zip(own).map(|(p, d)| p - *d as f32).collect());
    let objective = Objective {
        returns: Returns::Discounted,
        advantage: Advantage::Return,
        baseline: Baseline::None,
        scale: Scale::Batch,
        kl: 1.0,
        kl_estimator: KlEstimator::K1,
        kl_in: KlPlace::Reward,
        ..objective()
    };
    let batch = PolicyBatch { reference: Some(reference.collect()), ..batch(&transitions) };
    let prepared = batch.prepare(&objective, &ObjectiveState::new(&objective)).unwrap();
    for (targets, expected) in prepared.targets.iter().zip(expected.chunks(width)) {
        for (got, expected) in targets.advantages.iter().zip(expected) {
            // The log-probabilities are f32.
            assert!((f64::from(*got) - expected).abs() < 1e-5, "{got} and {expected}");
        }
    }
}

#[test]
fn corrections_are_ratios_of_recomputed_to_sampled_probabilities() {
    let transitions = transitions();
    let recomputed = |t: &Transition| -> Vec<f32> {
        let gaps = [0.5, -1.0, 0.1, 0.0, 3.0];
        t.logprobs.iter().zip(gaps).map(|(logp, gap)| logp + gap).collect()
    };
    let prepared = |correction| {
        let objective = Objective {
            old_logprobs: OldLogprobs::Recompute,
            trust_region: TrustRegion::Clip,
            correction,
            correction_low: 0.8,
            correction_high: 2.0,
            ..objective()
        };
        let recomputed = Some(transitions.iter().map(recomputed).collect());
        let batch = PolicyBatch { recomputed, ..batch(&transitions) };
        batch.prepare(&objective, &ObjectiveState::new(&objective)).unwrap().targets
    };
    let close = |got: &[f32], expected: &[f64]| {
        assert_eq!(got.len(), expected.len());
        assert!(got.iter().zip(expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5), "{got:?}");
    };
    let own = prepared(Correction::Tis);
    assert_eq!(own[1].old_logprobs.as_ref().unwrap()[0], transitions[1].logprobs[0] + 0.5);
    let e = f64::exp;
    close(own[3].correction.as_ref().unwrap(), &[e(0.5), e(-1.0), e(0.1), 1.0, 2.0]);
    let own = prepared(Correction::Icepop);
    close(own[3].correction.as_ref().unwrap(), &[e(0.5), 0.0, e(0.1), 1.0, 0.0]);
    let own = prepared(Correction::SequenceMask);
    // Means of -0.25, -0.1333, -0.1 and 0.52.
    let first: Vec<f32> = own.iter().map(|own| own.correction.as_ref().unwrap()[0]).collect();
    assert_eq!(first, [0.0, 1.0, 1.0, 1.0]);
    assert!(prepared(Correction::None).iter().all(|own| own.correction.is_none()));
}
