//! Adapters on packed weights are trained as on tensors of the same numbers.

use std::sync::Arc;

use pl_kernels::cpu::{Cpu, GroupFormat, Matrix, QuantizedRow};
use pl_model::{Layer, WeightMatrix};

use super::*;
use crate::fixtures::{adapter, close, config, policy_to_train, sampled_from, training, transition, weights};
use crate::plan::Sample;

/// Rounds a matrix to 8 bits and packs it.
fn pack(cpu: &Cpu, matrix: &WeightMatrix) -> WeightMatrix {
    let tensor = matrix.to_tensor().unwrap();
    let (outputs, inputs) = tensor.size2().unwrap();
    let values = Vec::<f32>::try_from(tensor.flatten(0, 1)).unwrap();
    let round = |i: usize, row: &mut QuantizedRow| {
        row.round(&values[i * inputs as usize..][..inputs as usize]);
    };
    let packed = Matrix::pack_groups(cpu, GroupFormat::Q8, outputs as usize, inputs as usize, round);
    WeightMatrix::Packed(Arc::new(packed))
}

fn packed(weights: &Weights) -> Weights {
    let cpu = Cpu::new(1).unwrap();
    let pack = |matrix: &WeightMatrix| pack(&cpu, matrix);
    let Weights { embed, layers, norm, head } = weights.shallow();
    let layers = layers.into_iter().map(|own| Layer {
        q: pack(&own.q),
        k: pack(&own.k),
        v: pack(&own.v),
        o: pack(&own.o),
        gate: pack(&own.gate),
        up: pack(&own.up),
        down: pack(&own.down),
        ..own
    });
    Weights { embed: pack(&embed), layers: layers.collect(), norm, head: head.as_ref().map(pack) }
}

#[test]
fn updates_equal_those_on_tensors_of_the_same_numbers() {
    for (tied, checkpointing) in [(true, Checkpointing::Off), (false, Checkpointing::On)] {
        let config = config(tied);
        let packed = packed(&weights(&config, 3));
        let tensors = packed.unpacked().unwrap();
        let adapter = adapter(&config, 4);
        let samples: Vec<_> = [(5, 7, 1.3), (2, 12, -0.8), (4, 9, 0.6)]
            .into_iter()
            .enumerate()
            .map(|(i, (prompt, completion, advantage))| {
                let transition = transition(0, i as u32, prompt, completion);
                (sampled_from(&config, &tensors, Some(&adapter), transition, 0.4), advantage)
            })
            .collect();
        let update = |weights: Weights| {
            let policies = vec![(policy_to_train(0, training()), adapter.copy())];
            let train = Train { token_budget: Some(40), ..crate::fixtures::train() };
            let settings = LearnerSettings {
                checkpointing,
                ..LearnerSettings::new(&train, &config, tch::Device::Cpu, 0, 1)
            };
            let mut learner = Learner::adapters(config.clone(), weights, policies, settings).unwrap();
            let all = samples.iter().map(|(transition, advantage)| Sample::new(transition, *advantage));
            let planned = learner.plan(0, all.collect()).unwrap();
            let metrics = learner.update(&planned, &mut || {}).unwrap();
            let trained = learner.policies()[0].adapter.as_ref().unwrap().parameters();
            (metrics[0].loss, metrics[0].grad_norm, trained)
        };
        let ((loss, norm, got), (expected_loss, expected_norm, expected)) = (update(packed), update(tensors));
        assert!(norm > 1e-3 && (norm - expected_norm).abs() < 1e-5 * norm, "{norm}, {expected_norm}");
        assert!((loss - expected_loss).abs() < 1e-6, "{loss}, {expected_loss}");
        for ((_, got), (_, expected)) in got.iter().zip(&expected) {
            close(got, expected, 1e-5);
        }
        let moved = got.iter().zip(adapter.parameters()).any(|((_, new), (_, old))| new != &old);
        assert!(moved, "the update changes the adapter");
    }
}
