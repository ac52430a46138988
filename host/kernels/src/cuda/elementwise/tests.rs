//! Comparison of the kernels, emulated on the CPU, with plain libtorch in f64.

use std::sync::LazyLock;

use tch::{Device, IndexOp};

use super::*;
use crate::cuda::emulated::Emulated;

fn emulated(seed: u64) -> Elementwise {
    static LIBRARY: LazyLock<Emulated> = LazyLock::new(|| {
        Emulated::compile(&["emulated.h", "bf16.cu", "elementwise.cu", "elementwise/emulated.cpp"])
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
