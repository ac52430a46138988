//! Adapters from a seed, and to disk and back.

use pl_model::{Adapter, Error, Model, Projection, TensorSet, Weights};
use pl_types::Dtype;
use tch::Device;

use crate::{data, gap, tiny};

#[test]
fn fresh_adapters_are_a_function_of_the_seed() {
    let config = tiny().config;
    let make =
        |seed: u8| Adapter::new(&config, 8, 16.0, &[Projection::Q, Projection::Up], [seed; 32]).unwrap();
    let (one, again, other) = (make(1), make(1), make(2));
    for ((name, a), (_, b)) in one.parameters().iter().zip(again.parameters()) {
        assert_eq!(a, &b);
        let largest = a.abs().max().double_value(&[]);
        if name.contains("lora_A") {
            // Uniform in ±1/sqrt(in): hidden is 32, and 256 draws come near the bound.
            let bound = 1.0 / 32f64.sqrt();
            assert!(largest <= bound && largest > 0.9 * bound, "{name}: {largest}");
            assert!(a.mean(tch::Kind::Float).double_value(&[]).abs() < 0.2 * bound, "{name}");
        } else {
            assert_eq!(largest, 0.0, "{name}");
        }
    }
    assert!(gap(&one.parameters()[0].1, &other.parameters()[0].1) > 0.01);
    let names: Vec<String> = one.parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 2 * 2 * 2);
    assert_eq!(names[0], "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
    assert_eq!(names[7], "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight");
}

#[test]
fn saved_and_loaded() {
    let config = tiny().config;
    let adapter = Adapter::new(&config, 4, 8.0, &Projection::ALL, [3; 32]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    adapter.save(folder.path()).unwrap();
    let loaded = Adapter::load(folder.path(), &config).unwrap();
    assert_eq!((loaded.rank, loaded.alpha, loaded.targets()), (4, 8.0, adapter.targets()));
    assert_eq!(loaded.parameters(), adapter.parameters());
}

#[test]
fn refused_with_the_reason() {
    let config = tiny().config;
    for (rank, alpha, targets) in [
        (0, 1.0, &Projection::ALL[..]),
        (1, 0.0, &Projection::ALL[..]),
        (1, f64::NAN, &Projection::ALL[..]),
        (1, 1.0, &[]),
    ] {
        let refused = Adapter::new(&config, rank, alpha, targets, [0; 32]);
        assert!(matches!(refused, Err(Error::Adapter(_))), "{rank} {alpha}");
    }
    assert!("x".parse::<Projection>().unwrap_err().to_string().contains("q, k, v, o, gate, up or down"));

    // An adapter of another model.
    let other =
        Model::load(data("conformance/logits/grouped-untied"), Device::Cpu, Dtype::F32).unwrap().config;
    let error = Adapter::load(data("conformance/adapter"), &other).unwrap_err();
    assert!(error.to_string().contains("lora_"), "{error}");
}

#[test]
fn a_model_folder_written_is_read_back() {
    let model = tiny();
    let folder = tempfile::tempdir().unwrap();
    model
        .weights
        .save_folder(folder.path(), &model.config, &model.tokenizer, &model.template, Dtype::F32)
        .unwrap();
    let again = Model::load(folder.path(), Device::Cpu, Dtype::F32).unwrap();
    assert_eq!(again.config, model.config);
    let same = |a: &Weights, b: &Weights| a.parameters() == b.parameters();
    assert!(same(&again.weights, &model.weights));
    assert_eq!(again.template.source(), model.template.source());
    let text = "<|im_start|>user\nHow the cat sat 12 times.<|im_end|>";
    assert_eq!(again.tokenizer.encode(text).unwrap(), model.tokenizer.encode(text).unwrap());
    assert_eq!(again.tokenizer.end_of_turn(), model.tokenizer.end_of_turn());
    assert_eq!(Model::load(folder.path(), Device::Cpu, Dtype::F32).unwrap().hash, again.hash);
    assert_ne!(again.hash, model.hash);
}
