//! Gradients of a value head compared with finite differences, values of packed sequences, and critics within
//! updates and runs.

mod run;
mod update;

use pl_model::{Adapter, Checkpointing, Gradients, Packed, Pass, Sequence, TensorSet};
use pl_types::Transition;
use tch::{Device, Kind, no_grad};

use super::*;
use crate::data_parallel::DataParallel;
use crate::fixtures::{adapter, config, critic, plain_hidden, ppo, transition, weights};
use crate::gae::{Discounts, Estimate, Successor, Turn, estimate};
use crate::returns::Trajectories;
use crate::scoring::ScoringModel;
use crate::token_columns::ValueRows;

const WIDTH: i64 = 16;

/// A head in double precision with weights other than 0.
fn double_head(on: CriticBase) -> ValueHead {
    let norm = Tensor::zeros([WIDTH], (Kind::Double, Device::Cpu));
    let head = ValueHead::new(&critic(on), WIDTH, &norm).unwrap();
    set_head(&head);
    head
}

/// Gives a head weights other than 0.
fn set_head(head: &ValueHead) {
    let wave = |count: i64, phase: f64| {
        (Tensor::arange(count, (Kind::Double, Device::Cpu)) * 1.3 + phase).sin() * 0.4
    };
    no_grad(|| {
        head.weight.shallow_clone().copy_(&wave(WIDTH, 0.2).view([1, WIDTH]));
        head.bias.shallow_clone().copy_(&wave(1, 0.9));
    });
}

/// Columns of a value loss: targets on both sides, and old values so that some tokens are clipped.
struct Columns {
    old_values: Tensor,
    returns: Tensor,
    loss_weights: Tensor,
}

impl Columns {
    fn new(values: &Tensor) -> Self {
        let count = values.size()[0];
        let wave = |phase: f64, scale: f64| {
            (Tensor::arange(count, (Kind::Double, Device::Cpu)) * 2.1 + phase).sin() * scale
        };
        Self {
            old_values: values + wave(0.4, 0.9),
            returns: values + wave(1.7, 1.5),
            loss_weights: wave(2.5, 0.05) + 0.1,
        }
    }

    fn rows<'a>(&'a self, hidden: &'a Tensor) -> ValueRows<'a> {
        let Columns { old_values, returns, loss_weights } = self;
        ValueRows { hidden, old_values, returns, loss_weights }
    }
}

/// Central differences of `loss` with respect to the first elements of a tensor, which is restored.
fn differences(tensor: &Tensor, loss: impl Fn() -> f64) -> Vec<f64> {
    let flat = tensor.view([-1]);
    let step = 1e-6;
    (0..flat.size()[0].min(12))
        .map(|index| {
            let mut element = flat.narrow(0, index, 1);
            let original = element.copy();
            let mut at = |offset: f64| {
                element.copy_(&(&original + offset));
                loss()
            };
            let slope = (at(step) - at(-step)) / (2.0 * step);
            at(0.0);
            slope
        })
        .collect()
}

fn assert_slopes(gradient: &Tensor, expected: &[f64], what: &str) {
    let got = Vec::<f64>::try_from(gradient.view([-1])).unwrap();
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() < 1e-8, "{what}: {got} instead of {expected}");
    }
}

#[test]
fn gradients_of_the_head_equal_finite_differences() {
    let hidden = (Tensor::arange(9 * WIDTH, (Kind::Double, Device::Cpu)) * 0.37).sin().view([9, WIDTH]);
    for on in [CriticBase::Policy, CriticBase::Shared, CriticBase::Adapter] {
        let head = double_head(on);
        let columns = Columns::new(&head.values(&hidden).unwrap());
        let result = head.forward_backward(&columns.rows(&hidden), true).unwrap();
        let clipped = result.clipped.sum(Kind::Int64).int64_value(&[]);
        assert!((1..9).contains(&clipped), "{clipped} of 9 are clipped");
        let [weight, bias] = head.gradients.each_ref().map(Tensor::copy);
        let loss = || {
            let loss = head.forward_backward(&columns.rows(&hidden), true).unwrap().loss;
            loss.sum(Kind::Double).double_value(&[])
        };
        assert_slopes(&weight, &differences(&head.weight, loss), "weight");
        assert_slopes(&bias, &differences(&head.bias, loss), "bias");
        assert_eq!(result.hidden_gradient.is_some(), on != CriticBase::Policy);
        if let Some(gradient) = result.hidden_gradient {
            assert_slopes(
                &(gradient / head.hidden_factor.unwrap()),
                &differences(&hidden, loss),
                "hidden states",
            );
        }
        assert!(head.forward_backward(&columns.rows(&hidden), false).unwrap().hidden_gradient.is_none());
    }
}

/// The value loss of a tiny model in double precision, as a function of its adapter.
#[test]
fn gradients_through_the_model_equal_finite_differences() {
    let config = config(true);
    let double = |tensor: &Tensor| tensor.to_kind(Kind::Double);
    let weights = weights(&config, 21).map(double);
    let adapter = adapter(&config, 4).map(double);
    let tokens: Vec<u32> = (0..14).map(|i| (i * 17 + 5) % 61).collect();
    let (packed, _) = Packed::forest(&[Sequence { tokens: &tokens, adapter: Some(0) }]);
    let adapters = [&adapter];
    for checkpointing in [Checkpointing::Off, Checkpointing::On] {
        let forward = || Pass::forward(&config, &weights, &adapters, &packed, checkpointing).unwrap();
        let head = double_head(CriticBase::Shared);
        let pass = forward();
        let columns = Columns::new(&head.values(pass.hidden()).unwrap());
        let result = head.forward_backward(&columns.rows(pass.hidden()), true).unwrap();
        let gradients = Gradients::zeros(None, &adapters).unwrap();
        pass.backward(&result.hidden_gradient.unwrap(), &gradients).unwrap();
        let loss = || {
            let loss = head.forward_backward(&columns.rows(forward().hidden()), true).unwrap().loss;
            loss.sum(Kind::Double).double_value(&[]) * head.hidden_factor.unwrap()
        };
        let own = adapter.parameters().into_iter().zip(gradients.adapters[0].parameters());
        for ((name, parameter), (_, gradient)) in own.step_by(5) {
            assert!(gradient.abs().max().double_value(&[]) > 1e-7, "{name} has no gradient");
            assert_slopes(&gradient, &differences(&parameter, loss), &name);
        }
    }
}

#[test]
fn values_of_packed_sequences_equal_those_of_single_passes() {
    let config = config(true);
    let weights = weights(&config, 22);
    let adapters = [adapter(&config, 1), adapter(&config, 2)];
    let references: Vec<&Adapter> = adapters.iter().collect();
    let head = ValueHead::new(&critic(CriticBase::Policy), WIDTH, &weights.norm).unwrap();
    set_head(&head);
    let transitions: Vec<Transition> = (0..6)
        .map(|i| {
            let mut t = transition(0, i / 2, 20, 3 + i as usize);
            let next = transition(0, 30 + i, [1, 18, 128, 127, 5, 2][i as usize], 1).prompt;
            t.next_prompt = (i != 4).then_some(next);
            t
        })
        .collect();
    let all: Vec<&Transition> = transitions.iter().collect();
    for token_budget in [1, 50, 1000] {
        let model = ScoringModel {
            config: &config,
            weights: &weights,
            adapters: &references,
            token_budget,
            data_parallel: &DataParallel::alone(1),
        };
        let got = head.predict(&model, &ValueSequences::new(&config, &all, Some(1), false)).unwrap();
        for (i, t) in transitions.iter().enumerate() {
            let expected = head.values(&plain_hidden(&config, &weights, Some(&adapters[1]), t)).unwrap();
            crate::fixtures::close(&Tensor::from_slice(&got.tokens[i]), &expected, 1e-5);
            // The longest prompt leaves no room for a completion.
            assert_eq!(got.next[i].is_some(), ![2, 4].contains(&i), "{i}");
            let Some(value) = got.next[i] else { continue };
            let mut next = t.clone();
            (next.prompt, next.completion) = (t.next_prompt.clone().unwrap(), vec![0]);
            let expected = head.values(&plain_hidden(&config, &weights, Some(&adapters[1]), &next)).unwrap();
            assert!((f64::from(value) - expected.double_value(&[0])).abs() < 1e-5, "{i}");
        }
    }
}

/// Three node visits of one agent with two candidates each; the tree continues from 1 and 2.
#[test]
fn siblings_end_with_the_value_of_their_next_prompt() {
    let transitions: Vec<Transition> = (0..6)
        .map(|i| {
            let mut t = transition(0, 0, 2, 2);
            (t.key.node_visit, t.key.branch, t.chosen) = (i / 2, i % 2, [1, 2, 5].contains(&i));
            t
        })
        .collect();
    let transitions: Vec<&Transition> = transitions.iter().collect();
    let tokens: Vec<Vec<f32>> = (0..6).map(|i| vec![0.1 * i as f32, 0.3 - 0.05 * i as f32]).collect();
    let next = vec![Some(0.7), None, None, Some(-0.4), None, None];
    let rewards = [0.0, 0.5, 0.0, 1.0, 0.0, 2.0];
    let penalties: Vec<Vec<f64>> = (0..6).map(|i| vec![0.01 * f64::from(i), 0.02]).collect();
    let objective = pl_dsl::workflow::objective::Objective {
        gamma: 0.9,
        gamma_turn: 0.8,
        lambda: 0.7,
        ..ppo(critic(CriticBase::Policy)).objective
    };
    let values = PredictedValues { tokens: tokens.clone(), next };
    let got =
        values.estimate(&objective, &Trajectories::new(&transitions), &rewards, Some(penalties.as_slice()));
    let token_rewards: Vec<[f64; 2]> =
        (0..6).map(|i| [-penalties[i][0], rewards[i] - penalties[i][1]]).collect();
    let successors = [
        Successor::Value(f64::from(0.7f32)),
        Successor::Turn(2),
        Successor::Turn(5),
        Successor::Value(f64::from(-0.4f32)),
        Successor::End,
        Successor::End,
    ];
    let turns: Vec<Turn<'_>> = (0..6)
        .map(|i| Turn { values: &tokens[i], rewards: &token_rewards[i], successor: successors[i] })
        .collect();
    let expected: Vec<Estimate> = estimate(&turns, &Discounts { token: 0.9, turn: 0.8, lambda: 0.7 });
    assert_eq!(got, expected);
}

#[test]
fn critics_that_can_not_be_set_up_are_refused() {
    let config = config(true);
    let weights = weights(&config, 27);
    let base = LearnerBase { config: &config, weights: &weights, is_trained: false, seed: 1 };
    let set_up = |training: &PolicyTraining| {
        Critic::for_policy("coder", training, None, base).map(|critic| critic.is_some())
    };
    assert!(!set_up(&crate::fixtures::training()).unwrap());
    let mut training = ppo(critic(CriticBase::Adapter));
    assert!(set_up(&training).unwrap());
    training.critic.as_mut().unwrap().lora.as_mut().unwrap().targets = vec!["queries".into()];
    let refused = |training: &PolicyTraining, part: &str| {
        let message = set_up(training).unwrap_err().to_string();
        assert!(message.starts_with("policy `coder`: ") && message.contains(part), "{message}");
    };
    refused(&training, "`queries` is not a projection");
    training.critic = Some(critic(CriticBase::Model));
    refused(&training, "was not loaded");
    training.critic = None;
    refused(&training, "needs a critic");
}
