//! Number formats: matrices are rounded, norms and biases are not, and files are saved in the requested format.

use std::os::unix::fs::PermissionsExt;

use pl_model::{Model, TensorSet, TorchDtype, WeightMatrix, Weights};
use pl_types::{Dtype, ModelDtype};
use tch::{Device, Kind, Tensor};

use crate::conformance::logits;
use crate::{data, gap};

fn load(dtype: Dtype) -> Model {
    Model::load(data("conformance/families/qwen2-tied.gguf"), Device::Cpu, dtype).unwrap()
}

/// Returns the expected content of a tensor in a format.
fn rounded(name: &str, tensor: &Tensor, dtype: Dtype) -> Tensor {
    if tensor.dim() < 2 {
        assert!(name.contains("norm") || name.ends_with("bias"), "{name}");
        return tensor.shallow_clone();
    }
    tensor.to_kind(dtype.kind()).to_kind(Kind::Float)
}

fn is_rounded(weights: &Weights, exact: &Weights, dtype: Dtype) {
    for ((name, got), (_, exact)) in weights.parameters().iter().zip(exact.parameters()) {
        assert_eq!(got.kind(), Kind::Float, "{name}");
        assert_eq!(got, &rounded(name, &exact, dtype), "{name}, {dtype}");
    }
}

#[test]
fn matrices_are_rounded() {
    let exact = load(Dtype::F32);
    for dtype in [Dtype::F16, Dtype::Bf16] {
        is_rounded(&load(dtype).weights, &exact.weights, dtype);
        let down = |model: &Model| model.weights.layers[0].down.to_tensor().unwrap();
        let changed = gap(&down(&load(dtype)), &down(&exact));
        assert!(changed > 0.0, "{dtype}: the quantised matrix must not fit into 16 bits");
    }
    // The biases of this file don't fit into 16 bits either, and were not rounded.
    let bias = exact.weights.layers[0].q_bias.as_ref().unwrap();
    assert!(gap(&bias.to_kind(Kind::BFloat16).to_kind(Kind::Float), bias) > 0.0);
}

/// Working weights have the values of their masters, and share no memory with them.
#[test]
fn working_weights_from_masters() {
    let masters = load(Dtype::F32).weights;
    masters.set_trainable(true);
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let working = masters.round_to(dtype).unwrap();
        is_rounded(&working, &masters, dtype);
        for ((name, working), (_, master)) in working.parameters().iter().zip(masters.parameters()) {
            assert_ne!(working.data_ptr(), master.data_ptr(), "{name}");
            assert!(!working.requires_grad() && master.requires_grad(), "{name}");
        }
    }
}

#[test]
fn models_are_saved_in_the_requested_format() {
    let model = load(Dtype::F32);
    let folder = tempfile::tempdir().unwrap();
    let path = |dtype: Dtype| folder.path().join(dtype.name());
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        let (tokenizer, template) = (&model.tokenizer, &model.template);
        model.weights.save_folder(&path(dtype), &model.config, tokenizer, template, dtype).unwrap();
        let stored = Tensor::read_safetensors(path(dtype).join("model.safetensors")).unwrap();
        assert!(stored.iter().all(|(_, tensor)| tensor.kind() == dtype.kind()), "{dtype}");
        let again = Model::load(path(dtype), Device::Cpu, Dtype::F32).unwrap();
        assert_eq!(again.config, model.config);
        // Both as the mask leaves them.
        let mode = |file: &str| path(dtype).join(file).metadata().unwrap().permissions().mode();
        assert_eq!(mode("model.safetensors"), mode("config.json"), "{dtype}");
    }
    let again = Model::load(path(Dtype::F32), Device::Cpu, Dtype::F32).unwrap();
    assert_eq!(again.weights.parameters(), model.weights.parameters());
    // A model saved in a format is loaded in that format without a further change.
    let again = Model::load(path(Dtype::Bf16), Device::Cpu, Dtype::Bf16).unwrap();
    let exact = Model::load(path(Dtype::Bf16), Device::Cpu, Dtype::F32).unwrap();
    assert_eq!(again.weights.parameters(), exact.weights.parameters());
}

#[test]
fn names_of_formats_are_parsed() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        assert_eq!(dtype.to_string().parse::<Dtype>().unwrap(), dtype);
        assert_eq!(dtype.to_string().parse::<ModelDtype>().unwrap().tensors(), Some(dtype));
    }
    for dtype in [ModelDtype::Q8, ModelDtype::File] {
        assert_eq!(dtype.to_string().parse::<ModelDtype>().unwrap(), dtype);
        assert_eq!(dtype.tensors(), None);
    }
    let unknown = "int8".parse::<Dtype>().unwrap_err().to_string();
    assert!(unknown.contains("int8") && unknown.contains("f32, f16 and bf16"), "{unknown}");
}

/// Logits in 16 bits differ from those in f32, by no more than the rounding explains.
#[test]
fn close_to_full_precision() {
    let tokens: Vec<u32> = (0..40).collect();
    let exact = logits(&load(Dtype::F32), &[], &tokens);
    let (half, short) = (logits(&load(Dtype::F16), &[], &tokens), logits(&load(Dtype::Bf16), &[], &tokens));
    let spread = exact.std(false).double_value(&[]);
    let (half, short) = (gap(&half, &exact) / spread, gap(&short, &exact) / spread);
    assert!(half > 0.0 && half < 0.01, "{half}");
    assert!(short > half && short < 0.1, "{short}");
}

/// The forward pass accepts matrices that are stored in 16 bits, as on a GPU, with norms and biases in f32.
#[test]
fn matrices_stored_in_sixteen_bits() {
    for name in ["qwen2-tied", "qwen3-wide"] {
        let mut model =
            Model::load(data("conformance/families").join(name), Device::Cpu, Dtype::Bf16).unwrap();
        let tokens: Vec<u32> = (0..40).collect();
        let exact = logits(&model, &[], &tokens);
        let narrow = |matrix: &mut WeightMatrix| {
            *matrix = matrix.to_tensor().unwrap().to_kind(Kind::BFloat16).into();
        };
        narrow(&mut model.weights.embed);
        for layer in &mut model.weights.layers {
            for matrix in [
                &mut layer.q,
                &mut layer.k,
                &mut layer.v,
                &mut layer.o,
                &mut layer.gate,
                &mut layer.up,
                &mut layer.down,
            ] {
                narrow(matrix);
            }
        }
        let stored = logits(&model, &[], &tokens);
        assert_eq!(stored.kind(), Kind::BFloat16);
        let off = gap(&stored.to_kind(Kind::Float), &exact) / exact.std(false).double_value(&[]);
        assert!(off > 0.0 && off < 0.15, "{name}: {off}");
    }
}
