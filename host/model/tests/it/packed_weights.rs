//! Packed matrices have the numbers of their files, and compute as tensors of the same numbers.

use std::sync::Arc;

use pl_kernels::cpu::{Cpu, Matrix, WeightFormat};
use pl_model::{
    Adapter, Checkpointing, Gradients, Model, Packed, Pass, Projection, TensorSet, WeightMatrix,
    hidden_states,
};
use pl_types::{Dtype, ModelDtype};
use tch::{Device, Kind, Tensor};

use crate::{data, gap};

const MODELS: [&str; 4] = [
    "data/tiny",
    "conformance/logits/grouped-untied",
    "conformance/logits/multi-tied-sharded",
    "conformance/logits/single-kv-wide-head-bf16",
];

fn load(name: &str, dtype: impl Into<ModelDtype>) -> Model {
    Model::load(data(name), Device::Cpu, dtype).unwrap()
}

#[test]
fn a_folder_is_packed_with_the_numbers_of_its_files() {
    for name in MODELS {
        let (packed, exact) = (load(name, ModelDtype::File), load(name, Dtype::F32));
        assert!(packed.weights.is_packed() && !exact.weights.is_packed(), "{name}");
        assert_eq!(packed.weights.sizes(), exact.weights.sizes(), "{name}");
        assert_eq!(packed.hash, exact.hash, "{name}");
        let unpacked = packed.weights.unpacked().unwrap();
        assert_eq!(unpacked.parameters(), exact.weights.parameters(), "{name}");
        assert_eq!(packed.weights.checksum().unwrap(), exact.weights.checksum().unwrap(), "{name}");
        // Norms and biases are tensors in any case.
        let vectors = exact.weights.parameters().iter().filter(|(_, tensor)| tensor.dim() == 1).count();
        assert_eq!(packed.weights.parameters().len(), vectors, "{name}");
    }
}

/// All formats of quantized files are compared in the crate's own tests; this is a whole file of the Llama family, whose Q
/// and K have another order of rows.
#[test]
fn a_quantized_file_is_packed_with_its_codes() {
    let Some(path) = pl_testing::smollm() else { return };
    let exact = Model::load(&path, Device::Cpu, Dtype::F32).unwrap();
    let packed = Model::load(&path, Device::Cpu, ModelDtype::File).unwrap();
    let unpacked = packed.weights.unpacked().unwrap();
    for ((name, got), (_, exact)) in unpacked.parameters().iter().zip(exact.weights.parameters()) {
        assert_eq!(got, &exact, "{name}");
    }
    let (bytes, file) = (Model::packed_bytes(&path).unwrap(), path.metadata().unwrap().len());
    assert!(bytes * 10 > file * 8 && bytes < file * 2, "{bytes} packed bytes for a file of {file}");
}

#[test]
fn eight_bits_are_near_the_numbers_of_the_file() {
    for name in MODELS {
        let (packed, exact) = (load(name, ModelDtype::Q8), load(name, Dtype::F32));
        let unpacked = packed.weights.unpacked().unwrap();
        for ((name, got), (_, exact)) in unpacked.parameters().iter().zip(exact.weights.parameters()) {
            let largest = exact.abs().max().double_value(&[]);
            let off = gap(got, &exact);
            // Half a step of 127, and the rounding of the scale.
            assert!(off <= largest / 100.0, "{name}: {off} of {largest}");
            assert_eq!(off > 0.0, exact.dim() == 2, "{name}");
        }
    }
}

/// Forward and backward pass, and the head.
#[test]
fn passes_compute_as_on_tensors_of_the_same_numbers() {
    for (name, dtype) in
        MODELS.into_iter().flat_map(|name| [(name, ModelDtype::File), (name, ModelDtype::Q8)])
    {
        let Model { config, weights, .. } = load(name, dtype);
        let tensors = weights.unpacked().unwrap();
        let adapter = Adapter::new(&config, 3, 6.0, &Projection::ALL, [1; 32]).unwrap();
        for (name, mut tensor) in adapter.parameters() {
            if name.contains("lora_B") {
                let _ = tensor.fill_(0.02);
            }
        }
        let mut packed = Packed::default();
        packed.push(&(1..30).collect::<Vec<u32>>(), Some(0));
        let run = |weights| {
            let adapters = [&adapter];
            let gradients = Gradients::zeros(None, &adapters).unwrap();
            let pass = Pass::forward(&config, weights, &adapters, &packed, Checkpointing::Off).unwrap();
            let hidden = pass.hidden().shallow_clone();
            pass.backward(&hidden.tanh(), &gradients).unwrap();
            (hidden, gradients.adapters[0].parameters())
        };
        let ((got, gradients), (expected, expected_gradients)) = (run(&weights), run(&tensors));
        assert!(gap(&got, &expected) < 1e-5, "{name}, {dtype}");
        for ((part, got), (_, expected)) in gradients.iter().zip(&expected_gradients) {
            assert!(gap(got, expected) < 1e-4, "{name}, {dtype}: {part}");
        }
        let alone = hidden_states(&config, &weights, &[&adapter], &packed).unwrap();
        assert!(gap(&alone, &expected) < 1e-5, "{name}, {dtype}");
        let head = (weights.unembed(), tensors.unembed());
        assert!(gap(&head.0.logits(&got).unwrap(), &head.1.logits(&got).unwrap()) < 1e-4, "{name}, {dtype}");
    }
}

/// A matrix with more numbers than are unpacked at a time.
#[test]
fn large_matrices_are_unpacked_in_parts() {
    let (outputs, inputs) = (20_011, 1024);
    let tensor = Tensor::randn([outputs, inputs], (Kind::Float, Device::Cpu)).to_kind(Kind::Half);
    let values = Vec::<f32>::try_from(tensor.to_kind(Kind::Float).flatten(0, 1)).unwrap();
    let cpu = Cpu::new(2).unwrap();
    let matrix = Matrix::pack(&cpu, &values, outputs as usize, inputs as usize, WeightFormat::F16);
    let packed = WeightMatrix::Packed(Arc::new(matrix));
    let plain = WeightMatrix::Tensor(tensor.to_kind(Kind::Float));
    assert_eq!(packed.to_tensor().unwrap(), plain.to_tensor().unwrap());
    // Sums of many numbers differ by the order of their terms.
    let close = |got: Tensor, expected: Tensor| {
        let largest = expected.abs().max().double_value(&[]);
        assert!(gap(&got, &expected) < 1e-5 * largest, "{} of {largest}", gap(&got, &expected));
    };
    let x = Tensor::randn([7, inputs], (Kind::Float, Device::Cpu));
    close(packed.linear(&x).unwrap(), plain.linear(&x).unwrap());
    close(packed.logits(&x).unwrap(), plain.logits(&x).unwrap());
    let dy = Tensor::randn([7, outputs], (Kind::Float, Device::Cpu));
    close(packed.linear_backward(&dy).unwrap(), plain.linear_backward(&dy).unwrap());
    let ids = Tensor::from_slice(&[3i64, 20_010, 0, 3]);
    assert_eq!(packed.rows(&ids).unwrap(), plain.rows(&ids).unwrap());
    assert!(packed.rows(&Tensor::from_slice(&[20_011i64])).is_err());
    assert!(packed.rows(&Tensor::from_slice(&[-1i64])).is_err());
    assert!(packed.linear(&dy).is_err(), "shapes that do not fit");
}

#[test]
fn a_packed_model_is_saved_as_its_numbers() {
    let packed = load("data/tiny", ModelDtype::Q8);
    let folder = tempfile::tempdir().unwrap();
    let (tokenizer, template) = (&packed.tokenizer, &packed.template);
    packed.weights.save_folder(folder.path(), &packed.config, tokenizer, template, Dtype::F32).unwrap();
    let again = Model::load(folder.path(), Device::Cpu, Dtype::F32).unwrap();
    assert_eq!(again.weights.parameters(), packed.weights.unpacked().unwrap().parameters());
}

#[test]
fn packed_matrices_are_for_cpus() {
    for dtype in [ModelDtype::Q8, ModelDtype::File] {
        let error = Model::load(data("data/tiny"), Device::Cuda(0), dtype).unwrap_err().to_string();
        assert!(error.contains("tiny") && error.contains("bf16"), "{error}");
    }
}
