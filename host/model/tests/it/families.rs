//! Every family and kind of rotary scaling gives transformers' logits (data from
//! tests/conformance/families.py), from Hugging Face folders and from GGUF files.

use std::path::Path;

use pl_model::{Checkpointing, Family, Gradients, Model, Packed, Pass, RopeScaling, TensorSet, add_outer};
use pl_types::Dtype;
use tch::{Device, Kind, Tensor};

use crate::conformance::{expected, logits};
use crate::{data, gap};

fn matches(path: &Path, expected_at: &Path) -> Model {
    let model = Model::load(path, Device::Cpu, Dtype::F32).unwrap();
    let (tokens, expected) = expected(expected_at);
    let rows = Tensor::arange_start_step(0, tokens.len() as i64, 6, (Kind::Int64, Device::Cpu));
    let got = tch::no_grad(|| logits(&model, &[], &tokens)).index_select(0, &rows);
    assert!(gap(&got, &expected) < 1e-4, "{}: {}", path.display(), gap(&got, &expected));
    // The logits are of a size at which 1e-4 says something.
    assert!(expected.std(false).double_value(&[]) > 0.1, "{}", path.display());
    model
}

fn folder(name: &str) -> Model {
    let path = data("conformance/families").join(name);
    matches(&path, &path.join("expected.safetensors"))
}

fn file(name: &str) -> Model {
    let path = |ending: &str| data("conformance/families").join(format!("{name}.{ending}"));
    matches(&path("gguf"), &path("gguf.expected.safetensors"))
}

#[test]
fn llama() {
    assert_eq!(folder("llama2").config.rope_scaling, RopeScaling::None);
    for name in ["llama3", "llama3-older"] {
        assert!(matches!(folder(name).config.rope_scaling, RopeScaling::Llama3 { .. }), "{name}");
    }
    assert_eq!(folder("llama-linear").config.rope_scaling, RopeScaling::Linear { factor: 4.0 });
    assert!(matches!(folder("llama-yarn").config.rope_scaling, RopeScaling::Yarn { truncate: false, .. }));
    assert!(matches!(folder("llama-factors").config.rope_scaling, RopeScaling::Factors { .. }));
}

#[test]
fn qwen2() {
    let model = folder("qwen2-tied");
    assert_eq!((model.config.family, model.config.tied), (Family::Qwen2, true));
    assert!(model.weights.layers[0].q_bias.is_some());
    let model = folder("qwen2-yarn");
    assert!(matches!(model.config.rope_scaling, RopeScaling::Yarn { truncate: true, .. }));
}

#[test]
fn qwen3() {
    let model = folder("qwen3-wide");
    assert_eq!((model.config.family, model.config.head_dim, model.config.q_width()), (Family::Qwen3, 12, 48));
    assert!(model.weights.layers[0].q_norm.is_some() && model.weights.layers[0].q_bias.is_none());
    assert!(!folder("qwen3-untied").config.tied);
}

#[test]
fn gguf_files() {
    let model = file("llama3");
    assert!(matches!(&model.config.rope_scaling, RopeScaling::Factors { factors } if factors.len() == 4));
    assert_eq!(file("llama-linear").config.rope_scaling, RopeScaling::Linear { factor: 4.0 });
    assert_eq!(file("qwen2-tied").config.family, Family::Qwen2);
    assert_eq!(file("qwen2-yarn").config.rope_scaling, folder("qwen2-yarn").config.rope_scaling);
    assert_eq!(file("qwen3-wide").config.head_dim, 12);
}

/// A file and a folder of the same 16-bit values hold the same weights.
#[test]
fn files_and_folders_agree() {
    for name in ["llama3", "qwen3-wide"] {
        let load = |path: &Path| Model::load(path, Device::Cpu, Dtype::F32).unwrap().weights.parameters();
        let families = data("conformance/families");
        assert_eq!(load(&families.join(name)), load(&families.join(format!("{name}.gguf"))), "{name}");
    }
}

/// Every weight of every family takes part: the loss has a slope along it, and the slope is right.
#[test]
fn gradients_reach_all_weights() {
    for name in ["llama-yarn", "qwen2-yarn", "qwen3-untied"] {
        let path = data("conformance/families").join(name);
        let model = Model::load(&path, Device::Cpu, Dtype::F32).unwrap();
        let tokens: Vec<u32> = (0..24).map(|i| i * 5 % 40).collect();
        let weighing = Tensor::arange(24 * 40, (Kind::Float, Device::Cpu)).sin().view([24, 40]);
        let loss = |model: &Model| (logits(model, &[], &tokens) * &weighing).mean(Kind::Float);
        let mut packed = Packed::default();
        packed.push(&tokens, None);
        let pass = Pass::forward(&model.config, &model.weights, &[], &packed, Checkpointing::Off).unwrap();
        let gradients = Gradients::zeros(Some(&model.weights), &[]).unwrap();
        let slopes = &weighing / weighing.numel() as f64;
        let own = gradients.weights.as_ref().unwrap();
        add_outer(own.unembed().tensor().unwrap(), &slopes, pass.hidden()).unwrap();
        pass.backward(&slopes.mm(&model.weights.unembed().to_tensor().unwrap()), &gradients).unwrap();
        for ((parameter, mut tensor), (_, slope)) in
            model.weights.parameters().into_iter().zip(own.parameters())
        {
            let length = slope.square().sum(Kind::Float).sqrt().double_value(&[]);
            assert!(length > 1e-6, "{name} {parameter}: {length}");
            // One step along the gradient raises the loss by its length, a half step each way.
            let step = &slope * (0.01 / length);
            let at = |sign: f64, tensor: &mut Tensor| {
                tch::no_grad(|| {
                    let _ = tensor.g_add_(&(&step * sign));
                    loss(&model).double_value(&[])
                })
            };
            let (above, below) = (at(0.5, &mut tensor), at(-1.0, &mut tensor));
            let _ = at(0.5, &mut tensor);
            let rise = (above - below) / 0.01;
            assert!((rise / length - 1.0).abs() < 0.02, "{name} {parameter}: {rise} for {length}");
        }
    }
}
