//! Packed weights generate what tensors of the same numbers do, bit for bit.

use std::sync::Arc;

use pl_inference::{LlmEngine, LlmEngineConfig};
use pl_model::Model;
use pl_types::{Completion, Generate, ModelDtype, Request, Sampling};
use tch::Device;

use crate::{base, data, policies};

async fn completions(model: &Model) -> Vec<Completion> {
    let policies = policies(&model.config);
    let count = policies.len();
    let engine = LlmEngine::start(vec![base(model)], policies, LlmEngineConfig::default()).unwrap();
    let mut all = Vec::new();
    for policy in 0..count {
        let request = Request {
            policy,
            prompt: (0..20).collect(),
            seeds: (0..12).map(|seed| [seed; 32]).collect(),
            max_tokens: 24,
            sampling: Sampling::with_temperature(1.0),
            stop: Arc::new([]),
            stop_ids: Arc::new([]),
            top_logprobs: 0,
            listener: None,
        };
        all.extend(engine.generate(request).await.unwrap());
    }
    all
}

#[tokio::test]
async fn completions_have_the_bits_of_those_on_tensors() {
    let mut all = Vec::new();
    for dtype in [ModelDtype::File, ModelDtype::Q8] {
        let packed = Model::load(data("data/tiny"), Device::Cpu, dtype).unwrap();
        let found = completions(&packed).await;
        let unpacked = Model { weights: packed.weights.unpacked().unwrap(), ..packed };
        let expected = completions(&unpacked).await;
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.tokens, expected.tokens, "{dtype}");
            let bits = |own: &Completion| own.logprobs.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(found), bits(expected), "{dtype}");
        }
        all.push(found);
    }
    let same = all[0].iter().zip(&all[1]).filter(|(a, b)| a.logprobs == b.logprobs).count();
    assert_eq!(same, 0, "8 bits are other numbers than those of the file");
}
