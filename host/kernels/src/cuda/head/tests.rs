//! Comparison of the kernels, emulated on the CPU, with the reference, and of the reference with autograd.

use std::sync::LazyLock;

use super::*;
use crate::cuda::emulated::Emulated;

struct Case {
    hidden: Tensor,
    unembed: Tensor,
    tokens: Tensor,
    temperatures: Tensor,
    slopes: Tensor,
}

impl Case {
    /// Creates random tensors. `spread` is about the largest logit.
    fn new(rows: i64, width: i64, vocabulary: i64, kind: Kind, spread: f64) -> Self {
        tch::manual_seed(rows * 31 + width * 7 + vocabulary);
        let options = (Kind::Float, Device::Cpu);
        let scale = spread / 3.0 / (width as f64).sqrt();
        Case {
            hidden: (Tensor::randn([rows, width], options) * scale).to_kind(kind),
            unembed: Tensor::randn([vocabulary, width], options).to_kind(kind),
            tokens: Tensor::randint(vocabulary, [rows], (Kind::Int64, Device::Cpu)),
            temperatures: Tensor::rand([rows], options) + 0.5,
            slopes: Tensor::randn([rows], options),
        }
    }

    fn rows(&self, temperatures: bool) -> HeadRows<'_> {
        let temperatures = temperatures.then_some(&self.temperatures);
        HeadRows { hidden: &self.hidden, tokens: &self.tokens, temperatures }
    }

    /// Returns the scores, the gradient of the hidden states, and the gradient of the output matrix.
    fn run(&self, head: &dyn TokenHead, temperatures: bool) -> (HeadOutput, Tensor, Tensor) {
        let rows = self.rows(temperatures);
        let scores = head.forward(&rows, &self.unembed).unwrap();
        // Not zero, because gradients are added.
        let total = self.unembed.to_kind(Kind::Float).copy();
        let gradient = head.backward(&rows, &self.unembed, &scores, &self.slopes, Some(&total)).unwrap();
        assert_eq!(gradient.kind(), self.hidden.kind());
        (scores, gradient, total - &self.unembed)
    }
}

fn emulated(seed: u64) -> FusedHead {
    static LIBRARY: LazyLock<Emulated> =
        LazyLock::new(|| Emulated::compile(&["emulated.h", "numbers.cu", "head.cu", "head/emulated.cpp"]));
    FusedHead { launcher: Arc::new(LIBRARY.with_seed(seed)) }
}

/// Asserts a largest difference relative to the largest expected value, or to 1 if that is larger.
fn assert_close(got: &Tensor, expected: &Tensor, tolerance: f64, what: &str) {
    assert_eq!(got.size(), expected.size(), "{what}");
    let (got, expected) = (got.to_kind(Kind::Double), expected.to_kind(Kind::Double));
    let scale = expected.abs().max().double_value(&[]).max(1.0);
    let difference = (got - expected).abs().max().double_value(&[]);
    assert!(difference <= tolerance * scale, "{what}: {difference} of {scale}");
}

fn assert_same_bits(left: &Tensor, right: &Tensor, what: &str) {
    assert!(left.equal(right), "{what}: {}", (left - right).abs().max().double_value(&[]));
}

/// The shapes end within a tile, a slice, a copy, a span and a part.
#[test]
fn kernels_equal_the_reference() {
    let fused = emulated(1);
    let shapes = [(1, 8, 1), (3, 33, 130), (130, 40, 257), (128, 64, 128), (5, 24, 2050), (2, 8, PART + 70)];
    for kind in [Kind::Float, Kind::BFloat16] {
        for (rows, width, vocabulary) in shapes {
            for temperatures in [false, true] {
                let case = Case::new(rows, width, vocabulary, kind, 10.0);
                let (scores, gradient, total) = case.run(&fused, temperatures);
                let (expected, expected_gradient, expected_total) = case.run(&ReferenceHead, temperatures);
                let what = |name: &str| format!("{name} of {rows} x {width} x {vocabulary} in {kind:?}");
                assert_close(&scores.logp, &expected.logp, 1e-5, &what("logp"));
                assert_close(&scores.entropy, &expected.entropy, 1e-5, &what("entropy"));
                assert_close(&scores.normalizer, &expected.normalizer, 1e-5, &what("normalizer"));
                // In bf16 the gradient of the logits has 8 bits.
                let tolerance = if kind == Kind::Float { 1e-5 } else { 1e-2 };
                assert_close(&gradient, &expected_gradient, tolerance, &what("gradient"));
                assert_close(&total, &expected_total, tolerance, &what("gradient of the matrix"));
            }
        }
    }
}

#[test]
fn logits_of_any_size_give_numbers() {
    let fused = emulated(2);
    for kind in [Kind::Float, Kind::BFloat16] {
        for spread in [1e-30, 1e3, 1e6] {
            let case = Case::new(7, 16, 300, kind, spread);
            let (scores, gradient, _) = case.run(&fused, true);
            let (expected, _, _) = case.run(&ReferenceHead, true);
            for (got, expected) in [(&scores.logp, &expected.logp), (&scores.entropy, &expected.entropy)] {
                assert_close(got, expected, 1e-5, &format!("{kind:?}, logits of {spread}"));
            }
            assert!(gradient.isfinite().all().int64_value(&[]) == 1, "{kind:?}, logits of {spread}");
        }
    }
    // The only id of the last span has by far the largest logit: all earlier sums become zero.
    let case = Case::new(4, 8, SPAN + 1, Kind::Float, 1.0);
    case.unembed.get(SPAN).copy_(&(case.hidden.get(0) * 1e6));
    let (scores, ..) = case.run(&fused, false);
    let (expected, ..) = case.run(&ReferenceHead, false);
    assert_close(&scores.logp, &expected.logp, 1e-5, "logp");
    assert_close(&scores.entropy, &expected.entropy, 1e-5, "entropy");
}

#[test]
fn a_row_depends_neither_on_its_neighbours_nor_on_the_order_of_threads() {
    for kind in [Kind::Float, Kind::BFloat16] {
        let case = Case::new(131, 40, 2100, kind, 10.0);
        let (all, gradient, total) = case.run(&emulated(1), true);
        let (again, gradient_again, total_again) = case.run(&emulated(77), true);
        assert_same_bits(&again.logp, &all.logp, "another order");
        assert_same_bits(&again.entropy, &all.entropy, "another order");
        assert_same_bits(&gradient_again, &gradient, "another order");
        assert_same_bits(&total_again, &total, "another order");

        let part = |tensor: &Tensor| tensor.narrow(0, 129, 2);
        let few = Case {
            hidden: part(&case.hidden),
            unembed: case.unembed.shallow_clone(),
            tokens: part(&case.tokens),
            temperatures: part(&case.temperatures),
            slopes: part(&case.slopes),
        };
        let (scores, ..) = few.run(&emulated(1), true);
        assert_same_bits(&scores.logp, &part(&all.logp), "fewer rows");
        assert_same_bits(&scores.entropy, &part(&all.entropy), "fewer rows");
    }
}

#[test]
fn bf16_logits_are_not_rounded_to_bf16() {
    let case = Case::new(64, 64, 512, Kind::BFloat16, 30.0);
    let (scores, ..) = case.run(&emulated(1), false);
    let logits = case.hidden.mm(&case.unembed.tr()).to_kind(Kind::Float);
    let rounded =
        logits.log_softmax(-1, Kind::Float).gather(1, &case.tokens.unsqueeze(1), false).squeeze_dim(1);
    let exact = ReferenceHead.forward(&case.rows(false), &case.unembed).unwrap().logp;
    let error = |logp: &Tensor| (logp - &exact).abs().max().double_value(&[]);
    assert!(error(&scores.logp) * 100.0 < error(&rounded), "{} {}", error(&scores.logp), error(&rounded));
}

#[test]
fn a_token_outside_of_the_vocabulary_affects_only_its_row() {
    let case = Case::new(3, 8, 50, Kind::Float, 5.0);
    let expected = ReferenceHead.forward(&case.rows(false), &case.unembed).unwrap();
    let _ = case.tokens.get(1).fill_(50);
    let scores = emulated(1).forward(&case.rows(false), &case.unembed).unwrap();
    assert!(scores.logp.double_value(&[1]).is_nan());
    for row in [0, 2] {
        assert_close(&scores.logp.get(row), &expected.logp.get(row), 1e-5, "logp");
    }
    assert_close(&scores.entropy, &expected.entropy, 1e-5, "entropy");
}

#[test]
fn a_batch_without_rows_has_no_results() {
    let case = Case::new(0, 8, 50, Kind::Float, 5.0);
    let (scores, gradient, total) = case.run(&emulated(1), true);
    assert_eq!(scores.logp.size(), [0]);
    assert_eq!(gradient.size(), [0, 8]);
    assert_eq!(total.abs().max().double_value(&[]), 0.0);
}

#[test]
fn tensors_of_wrong_kinds_or_shapes_are_rejected() {
    let fused = emulated(1);
    let case = Case::new(4, 8, 50, Kind::Float, 5.0);
    let assert_rejected = |rows: HeadRows<'_>, unembed: &Tensor, expected: &str| {
        let message = fused.forward(&rows, unembed).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    let rows = case.rows(true);
    assert_rejected(
        HeadRows { hidden: &case.hidden.to_kind(Kind::Half), ..rows },
        &case.unembed,
        "f32 or bf16",
    );
    assert_rejected(HeadRows { hidden: &case.hidden.get(0), ..rows }, &case.unembed, "a matrix");
    assert_rejected(
        rows,
        &case.unembed.to_kind(Kind::BFloat16),
        "the output matrix must be Float [50, 8] on Cpu",
    );
    assert_rejected(rows, &case.unembed.narrow(1, 0, 7), "the output matrix must be Float [50, 8]");
    assert_rejected(
        rows,
        &case.unembed.tr().contiguous().tr(),
        "but is Float [50, 8] on Cpu, not contiguous",
    );
    assert_rejected(
        HeadRows { tokens: &case.tokens.to_kind(Kind::Int), ..rows },
        &case.unembed,
        "the tokens",
    );
    assert_rejected(HeadRows { tokens: &case.tokens.narrow(0, 0, 3), ..rows }, &case.unembed, "the tokens");
    assert_rejected(HeadRows { temperatures: Some(&case.hidden), ..rows }, &case.unembed, "the temperatures");

    let scores = fused.forward(&rows, &case.unembed).unwrap();
    let slopes = case.slopes.to_kind(Kind::Double);
    let message = fused.backward(&rows, &case.unembed, &scores, &slopes, None).unwrap_err().to_string();
    assert!(message.contains("the slopes must be Float [4] on Cpu"), "{message}");
}

#[test]
fn the_reference_equals_autograd() {
    let case = Case::new(9, 12, 40, Kind::Float, 5.0);
    let (scores, gradient, total) = case.run(&ReferenceHead, true);
    let hidden = case.hidden.copy().set_requires_grad(true);
    let unembed = case.unembed.copy().set_requires_grad(true);
    let logits = hidden.mm(&unembed.tr()) / case.temperatures.unsqueeze(1);
    let all = logits.log_softmax(-1, Kind::Float);
    let logp = all.gather(1, &case.tokens.unsqueeze(1), false).squeeze_dim(1);
    (&logp * &case.slopes).sum(Kind::Float).backward();
    assert_close(&scores.logp, &logp, 1e-6, "logp");
    assert_close(
        &scores.entropy,
        &-(all.exp() * &all).sum_dim_intlist(-1, false, Kind::Float),
        1e-6,
        "entropy",
    );
    assert_close(&gradient, &hidden.grad(), 1e-6, "gradient");
    assert_close(&total, &unembed.grad(), 1e-6, "gradient of the matrix");
}
