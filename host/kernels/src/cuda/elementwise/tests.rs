//! Comparison of the kernels, emulated on the CPU, with plain libtorch in f64.

use std::sync::LazyLock;

use tch::{Device, IndexOp};

use super::*;
use crate::cuda::emulated::Emulated;

fn emulated(seed: u64) -> Elementwise {
    static LIBRARY: LazyLock<Emulated> = LazyLock::new(|| {
        Emulated::compile(&["emulated.h", "numbers.cu", "elementwise.cu", "elementwise/emulated.cpp"])
    });
    Elementwise { launcher: Arc::new(LIBRARY.with_seed(seed)) }
}

fn random(shape: &[i64], kind: Kind) -> Tensor {
    Tensor::randn(shape, (Kind::Float, Device::Cpu)).to_kind(kind)
}

fn exact(x: &Tensor) -> Tensor {
    x.to_kind(Kind::Double)
}

/// Checks numbers that were rounded once to their format.
fn assert_close(got: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(got.size(), expected.size(), "{what}");
    let tolerance = if got.kind() == Kind::BFloat16 { 1.0 / 128.0 } else { 2e-6 };
    let scale = expected.abs().clamp_min(1.0);
    let gap = ((exact(got) - expected) / scale).abs().max().double_value(&[]);
    assert!(gap <= tolerance, "{what} in {:?}: {gap}", got.kind());
}

#[test]
fn norms_equal_those_in_f64_and_do_not_depend_on_other_rows() {
    tch::manual_seed(1);
    for kind in [Kind::Float, Kind::BFloat16] {
        for (rows, width) in [(1, 8), (9, 128), (17, 264), (3, 2056)] {
            let (x, gain) = (random(&[rows, width], kind), random(&[width], Kind::Float));
            let (normed, reciprocals) = emulated(1).rms_norm(&x, &gain, 1e-5).unwrap();
            let mean = exact(&x).square().mean_dim([-1i64].as_slice(), true, None);
            let rstd = (mean + 1e-5).rsqrt();
            assert_close(&reciprocals, &rstd, "reciprocals");
            assert_close(&normed, &(exact(&x) * &rstd * exact(&gain)), "norm");
            let again = emulated(2).normalize(&x, &reciprocals, &gain).unwrap();
            assert!(again.equal(&normed), "another order of threads");
            let alone = emulated(3).rms_norm(&x.narrow(0, rows - 1, 1), &gain, 1e-5).unwrap();
            assert!(alone.0.equal(&normed.narrow(0, rows - 1, 1)), "a row alone");

            let dy = random(&[rows, width], kind);
            let dx = emulated(4).normalize_backward(&dy, &x, &reciprocals, &gain).unwrap();
            let (n, dn) = (exact(&x) * &rstd, exact(&dy) * exact(&gain));
            let mean = (&dn * &n).mean_dim([-1i64].as_slice(), true, None);
            assert_close(&dx, &((dn - n * mean) * rstd), "gradient of a norm");
        }
    }
}

#[test]
fn gradients_of_gains_equal_those_in_f64() {
    tch::manual_seed(7);
    for kind in [Kind::Float, Kind::BFloat16] {
        // Several rows for each block and thread, and rows that are wider than a block.
        for (rows, width) in [(1, 8), (70, 24), (2500, 128), (130, 2064)] {
            let [x, dy] = [0, 1].map(|_| random(&[rows, width], kind));
            let reciprocals = random(&[rows, 1], Kind::Float).abs() + 0.5;
            let got = emulated(1).gain_gradient(&dy, &x, &reciprocals).unwrap();
            assert_eq!((got.kind(), got.size()), (Kind::Float, vec![width]));
            let terms = exact(&x) * exact(&reciprocals) * exact(&dy);
            let sum = |terms: &Tensor| terms.sum_dim_intlist([0i64].as_slice(), false, Kind::Double);
            let gap = (exact(&got) - sum(&terms)).abs() / sum(&terms.abs());
            assert!(gap.max().double_value(&[]) < 1e-6, "{rows} x {width} in {kind:?}");
            assert!(emulated(9).gain_gradient(&dy, &x, &reciprocals).unwrap().equal(&got), "another order");
        }
    }
}

#[test]
fn rotations_equal_those_in_f64() {
    tch::manual_seed(2);
    for kind in [Kind::Float, Kind::BFloat16] {
        for (tokens, heads, width) in [(1, 1, 16), (5, 3, 64), (70, 2, 128)] {
            let x = random(&[tokens, heads, width], kind);
            let [cosines, sines] = [0, 1].map(|_| random(&[tokens, width], Kind::Float));
            for transposed in [false, true] {
                let got = emulated(1).rotate(&x, [&cosines, &sines], transposed).unwrap();
                let swapped = exact(&x).roll([width / 2].as_slice(), [-1i64].as_slice());
                let sign = if transposed { -1.0 } else { 1.0 };
                let expected =
                    exact(&x) * exact(&cosines).unsqueeze(1) + swapped * exact(&sines).unsqueeze(1) * sign;
                assert_close(&got, &expected, "rotation");
            }
        }
    }
}

#[test]
fn gates_equal_those_in_f64() {
    tch::manual_seed(3);
    for kind in [Kind::Float, Kind::BFloat16] {
        let [gate, up, dy] = [0, 1, 2].map(|_| random(&[7, 1000], kind) * 3);
        let share = exact(&gate).sigmoid();
        let got = emulated(1).gate(&gate, &up).unwrap();
        assert_close(&got, &(exact(&gate) * &share * exact(&up)), "gate");
        let (d_gate, d_up) = emulated(1).gate_backward(&dy, &gate, &up).unwrap();
        assert_close(&d_up, &(exact(&dy) * exact(&gate) * &share), "gradient of up");
        let slope = &share * (exact(&gate) * (1.0 - &share) + 1.0);
        assert_close(&d_gate, &(exact(&dy) * exact(&up) * slope), "gradient of the gate");
    }
}

#[test]
fn a_sum_with_its_norm_has_the_bits_of_both_operations() {
    tch::manual_seed(4);
    for kind in [Kind::Float, Kind::BFloat16] {
        for (rows, width) in [(1, 8), (9, 128), (17, 264), (3, 2056)] {
            let [x, y] = [0, 1].map(|_| random(&[rows, width], kind));
            let gain = random(&[width], Kind::Float);
            let (sum, normed) = emulated(1).add_rms_norm(&x, &y, &gain, 1e-5).unwrap();
            assert!(sum.equal(&(&x + &y)), "{kind:?}");
            let (expected, _) = emulated(2).rms_norm(&sum, &gain, 1e-5).unwrap();
            assert!(normed.equal(&expected), "{kind:?}");
        }
    }
}

#[test]
fn a_gate_of_halves_has_the_bits_of_a_gate() {
    tch::manual_seed(5);
    for kind in [Kind::Float, Kind::BFloat16] {
        for (rows, width) in [(1, 8), (7, 1000), (3, 96)] {
            let halves = random(&[rows, 2 * width], kind) * 3;
            let got = emulated(1).gate_halves(&halves).unwrap();
            let [gate, up] = [0, width].map(|start| halves.narrow(1, start, width).contiguous());
            assert!(got.equal(&emulated(2).gate(&gate, &up).unwrap()), "{kind:?}");
        }
    }
    assert!(emulated(1).gate_halves(&random(&[4, 24], Kind::Float)).is_err());
}

/// Norms of single heads, rotation and the copy to the cache as separate operations. Returns the queries and the cache.
fn separate(heads: i64, inputs: &HeadInputs<'_>) -> (Tensor, Tensor) {
    let kernels = emulated(2);
    let (cache, width) = (inputs.cache.copy(), inputs.cache.size()[3]);
    let kv_heads = cache.size()[2];
    let part = |start: i64, count: i64, gain: Option<&Tensor>| {
        let x = inputs.qkv.narrow(1, start * width, count * width).contiguous().view([-1, count, width]);
        match gain {
            Some(gain) => kernels.rms_norm(&x, gain, 1e-6).unwrap().0,
            None => x,
        }
    };
    let rotate = |x: Tensor| kernels.rotate(&x, inputs.tables, false).unwrap();
    let q = rotate(part(0, heads, inputs.q_gain));
    let k = rotate(part(heads, kv_heads, inputs.k_gain));
    let new = Tensor::stack(&[k, part(heads + kv_heads, kv_heads, None)], 1);
    let _ = cache.shallow_clone().index_copy_(0, inputs.slots, &new);
    (q, cache)
}

#[test]
fn heads_that_are_rotated_and_stored_have_the_bits_of_separate_operations() {
    tch::manual_seed(6);
    let shapes = [(1, 1, 1, 16), (5, 3, 1, 64), (20, 16, 8, 128), (3, 4, 2, 80), (2, 2, 1, 256)];
    for kind in [Kind::Float, Kind::BFloat16] {
        for (tokens, heads, kv_heads, width) in shapes {
            let qkv = random(&[tokens, (heads + 2 * kv_heads) * width], kind);
            let [cosines, sines] = [0, 1].map(|_| random(&[tokens, width], Kind::Float));
            let [q_gain, k_gain] = [0, 1].map(|_| random(&[width], Kind::Float));
            let slots = Tensor::randperm(40, (Kind::Int64, Device::Cpu)).i(..tokens);
            let before = random(&[40, 2, kv_heads, width], kind);
            for gains in [[Some(&q_gain), Some(&k_gain)], [None, None], [None, Some(&k_gain)]] {
                let cache = before.copy();
                let [q_gain, k_gain] = gains;
                let tables = [&cosines, &sines];
                let inputs = HeadInputs { qkv: &qkv, q_gain, k_gain, tables, slots: &slots, cache: &cache };
                let (expected, expected_cache) = separate(heads, &inputs);
                let q = emulated(1).rotate_and_store(&inputs, 1e-6).unwrap();
                let what = format!("{tokens} x {heads} and {kv_heads} x {width} in {kind:?}");
                assert!(q.equal(&expected), "queries of {what}");
                assert!(cache.equal(&expected_cache), "cache of {what}");
            }
        }
    }
}

#[test]
fn heads_that_do_not_fit_are_errors() {
    let float = |shape: &[i64]| random(shape, Kind::Float);
    let slots = Tensor::zeros([2], (Kind::Int64, Device::Cpu));
    let run = |qkv: &Tensor, cache: &Tensor, slots: &Tensor| {
        let table = float(&[2, *cache.size().last().unwrap()]);
        let tables = [&table, &table];
        let inputs = HeadInputs { qkv, q_gain: None, k_gain: None, tables, slots, cache };
        emulated(1).rotate_and_store(&inputs, 1e-6)
    };
    let (qkv, cache) = (float(&[2, 64]), float(&[4, 2, 1, 16]));
    assert_eq!(run(&qkv, &cache, &slots).unwrap().size(), [2, 2, 16]);
    assert!(run(&float(&[2, 72]), &cache, &slots).is_err(), "half a head");
    assert!(run(&float(&[2, 16]), &cache, &slots).is_err(), "no room for the values");
    assert!(run(&float(&[2, 96]), &float(&[4, 2, 1, 24]), &slots).is_err(), "halves of 12 numbers");
    assert!(run(&qkv, &cache.to_kind(Kind::BFloat16), &slots).is_err(), "another format");
    assert!(run(&qkv, &cache, &slots.to_kind(Kind::Int)).is_err(), "slots of 32 bits");
}

#[test]
fn tensors_that_the_kernels_do_not_take_are_errors() {
    let x = random(&[4, 24], Kind::Float);
    assert!(Elementwise::supports(&x));
    for other in [
        random(&[4, 20], Kind::Float),
        random(&[4, 24], Kind::Half),
        random(&[24, 4], Kind::Float).tr(),
        // Not at a multiple of 16 bytes.
        random(&[100], Kind::Float).i(1..25),
    ] {
        assert!(!Elementwise::supports(&other), "{other:?}");
        let width = *other.size().last().unwrap();
        let gain = random(&[width], Kind::Float);
        assert!(emulated(1).rms_norm(&other, &gain, 1e-5).is_err(), "{other:?}");
    }
    let wrong = emulated(1).gate(&x, &random(&[4, 16], Kind::Float)).unwrap_err().to_string();
    assert!(wrong.contains("the factor of a gate"), "{wrong}");
}
