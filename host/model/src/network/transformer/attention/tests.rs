//! The merged attention beside attention over each whole sequence by libtorch, with its autograd.

use tch::{Device, Kind, Tensor};

use super::parts::Rows;
use super::*;
use crate::libtorch;
use crate::network::packed::{Packed, TokenSpan};
use crate::network::transformer::gpu_tests::gpu;

/// A forest by the parents and lengths of its spans.
fn forest(spans: &[(Option<usize>, usize)]) -> Packed {
    let mut packed = Packed::default();
    for &(parent, len) in spans {
        let start = packed.tokens.len();
        packed.tokens.extend(std::iter::repeat_n(1, len));
        packed.spans.push(TokenSpan { start, len, adapter: None, parent });
    }
    packed.check(0).unwrap();
    packed
}

/// Forests of all kinds, with spans that end within the blocks of a kernel and beyond them.
fn forests() -> Vec<(&'static str, Packed)> {
    vec![
        ("one token", forest(&[(None, 1)])),
        ("one text", forest(&[(None, 70)])),
        ("texts", forest(&[(None, 3), (None, 65), (None, 1)])),
        ("siblings", forest(&[(None, 40), (Some(0), 7), (Some(0), 33), (Some(0), 1), (Some(0), 7)])),
        ("a chain", forest(&[(None, 5), (Some(0), 33), (Some(1), 1), (Some(2), 18)])),
        (
            "trees of depth 3",
            forest(&[
                (None, 20),
                (Some(0), 18),
                (Some(1), 17),
                (Some(2), 3),
                (Some(2), 6),
                (Some(1), 1),
                (Some(0), 25),
                (Some(6), 4),
                (None, 9),
                (None, 600),
                (Some(9), 520),
                (Some(9), 2),
            ]),
        ),
        // Parents are before their children, and nothing else is said of the order.
        (
            "spans in turn",
            forest(&[(None, 6), (None, 4), (Some(0), 3), (Some(1), 5), (Some(0), 2), (Some(2), 8)]),
        ),
        ("single tokens", forest(&[(None, 1), (Some(0), 1), (Some(0), 1), (Some(1), 1), (None, 1)])),
    ]
}

/// Numbers of heads of queries and of keys, and the width of heads.
type Heads = [i64; 3];

const HEADS: [Heads; 4] = [[4, 4, 64], [6, 2, 64], [4, 1, 128], [2, 2, 8]];

/// Queries, keys, values, and the gradient of the output.
struct Inputs([Tensor; 4]);

impl Inputs {
    fn new(packed: &Packed, [heads, kv_heads, width]: Heads, kind: Kind, device: Device) -> Self {
        tch::manual_seed(packed.tokens.len() as i64);
        let count = packed.tokens.len() as i64;
        let shapes = [
            vec![count, heads, width],
            vec![count, kv_heads, width],
            vec![count, kv_heads * width],
            vec![count, heads * width],
        ];
        // Spread scores, so that a few keys of one part have most of the weight.
        Self(shapes.map(|shape| (Tensor::randn(shape, (Kind::Float, device)) * 1.5).to_kind(kind)))
    }

    fn to_kind(&self, kind: Kind) -> Self {
        Self(self.0.each_ref().map(|tensor| tensor.to_kind(kind)))
    }

    /// Returns the output and the gradients of queries, keys and values.
    fn run(&self, packed: &Packed) -> [Tensor; 4] {
        tch::no_grad(|| {
            let [q, k, v, gradient] = &self.0;
            let parts = AttentionParts::new(packed, q.device()).unwrap();
            let block = AttentionBlock::new(&parts, q, k, v).unwrap();
            let out = block.output().unwrap();
            let [dq, dk, dv] = block.backward(&parts, gradient).unwrap();
            [out, dq, dk, dv]
        })
    }

    /// Returns the same from one attention with a mask of all tokens by libtorch.
    fn reference(&self, packed: &Packed) -> [Tensor; 4] {
        let [q, k, v, gradient] = &self.0;
        let count = q.size()[0];
        let group = q.size()[1] / k.size()[1];
        let [q, k, v] = [q, k, &v.view_as(k)].map(|x| x.copy().set_requires_grad(true));
        let by_head = |x: &Tensor, times: i64| {
            x.repeat_interleave_self_int(times, 1, None).transpose(0, 1).unsqueeze(0)
        };
        let mask = visible(packed).to_device(q.device());
        let out = Tensor::scaled_dot_product_attention(
            &by_head(&q, 1),
            &by_head(&k, group),
            &by_head(&v, group),
            Some(&mask),
            0.0,
            false,
            None,
            false,
        );
        let out = out.squeeze_dim(0).transpose(0, 1).reshape([count, -1]);
        (&out * gradient).sum(out.kind()).backward();
        [out.detach(), q.grad().flatten(1, 2), k.grad().flatten(1, 2), v.grad().flatten(1, 2)]
    }
}

/// Returns a mask `[T, T]`, true where a token attends to another.
fn visible(packed: &Packed) -> Tensor {
    let count = packed.tokens.len();
    let mut visible = vec![false; count * count];
    for span in &packed.spans {
        for row in span.start..span.start + span.len {
            visible[row * count + span.start..=row * count + row].fill(true);
            let mut ancestor = span.parent;
            while let Some(index) = ancestor {
                let own = packed.spans[index];
                visible[row * count + own.start..row * count + own.start + own.len].fill(true);
                ancestor = own.parent;
            }
        }
    }
    Tensor::from_slice(&visible).view([count as i64, count as i64])
}

/// Asserts differences of at most a share of the largest number.
fn assert_close(got: &[Tensor; 4], expected: &[Tensor; 4], share: f64, what: &str) {
    for ((got, expected), name) in got.iter().zip(expected).zip(["output", "dq", "dk", "dv"]) {
        assert_eq!(got.size(), expected.size(), "{what}: {name}");
        let (got, expected) = (got.to_kind(Kind::Double), expected.to_kind(Kind::Double));
        let gap = (&got - &expected).abs().max().double_value(&[]);
        let size = expected.abs().max().double_value(&[]);
        assert!(gap <= share * size.max(1.0), "{what}: {name} differs by {gap} of {size}");
    }
}

#[test]
fn the_merged_attention_is_that_over_whole_sequences() {
    for (name, packed) in forests() {
        for heads in HEADS {
            for (kind, share) in [(Kind::Double, 1e-12), (Kind::Float, 1e-5)] {
                let inputs = Inputs::new(&packed, heads, kind, Device::Cpu);
                let (got, expected) = (inputs.run(&packed), inputs.reference(&packed));
                assert_close(&got, &expected, share, &format!("{name}, {heads:?}, {kind:?}"));
            }
        }
    }
}

/// In bf16 the merged attention is as near to the exact one as libtorch's own with a mask.
#[test]
fn merging_loses_no_digits_of_bf16() {
    for (name, packed) in forests() {
        for heads in HEADS {
            let inputs = Inputs::new(&packed, heads, Kind::BFloat16, Device::Cpu);
            let exact = inputs.to_kind(Kind::Double).reference(&packed);
            let (got, plain) = (inputs.run(&packed), inputs.reference(&packed));
            assert!(got.iter().all(|tensor| tensor.kind() == Kind::BFloat16));
            for (i, part) in ["output", "dq", "dk", "dv"].into_iter().enumerate() {
                let error = |x: &Tensor| (x.to_kind(Kind::Double) - &exact[i]).norm().double_value(&[]);
                let (got, plain) = (error(&got[i]), error(&plain[i]));
                let rounding = exact[i].norm().double_value(&[]) / 256.0;
                assert!(
                    got <= 1.5 * plain.max(rounding),
                    "{name}, {heads:?}: {part} is off by {got}, not {plain}"
                );
            }
        }
    }
}

#[test]
fn the_plain_kernel_equals_flash_attention() {
    for (name, packed) in forests() {
        let inputs = Inputs::new(&packed, [6, 2, 16], Kind::Double, Device::Cpu);
        let [q, k, v, gradient] = &inputs.0;
        let v = v.view_as(k);
        let parts = AttentionParts::new(&packed, Device::Cpu).unwrap();
        for part in parts.prefixes.iter().chain([&parts.own]) {
            let [q, gradient] = [q, &gradient.view_as(q)].map(|x| part.queries.select(x, 0).unwrap());
            let [k, v] = [k, &v].map(|x| part.keys.select(x, 0).unwrap());
            let kernels = [AttentionKernel::FlashCpu, AttentionKernel::Plain];
            let [flash, plain] = kernels.map(|kernel| {
                let (out, logsumexp) = kernel.attend(part, &q, &k, &v).unwrap();
                // As if there were other parts: a larger sum.
                let logsumexp = logsumexp + 0.7;
                let [q, k, v, gradient] = [&q, &k, &v, &gradient].map(Tensor::shallow_clone);
                let all = AttentionGradient { gradient, q, k, v, out, logsumexp };
                let [dq, dk, dv] = kernel.gradients(part, &all).unwrap();
                ([all.out, dq, dk, dv], all.logsumexp)
            });
            assert_close(&plain.0, &flash.0, 1e-12, name);
            assert_eq!(plain.1.size(), flash.1.size());
            assert!((plain.1 - flash.1).abs().max().double_value(&[]) < 1e-12, "{name}: sums");
        }
    }
}

/// Values in f32 within those in f64.
#[test]
fn the_native_kernel_equals_flash_attention() {
    for (name, packed) in forests() {
        for heads in [[4, 4, 64], [6, 2, 64], [4, 1, 128]] {
            let exact = Inputs::new(&packed, heads, Kind::Double, Device::Cpu);
            let single = exact.to_kind(Kind::Float);
            let parts = AttentionParts::new(&packed, Device::Cpu).unwrap();
            for part in parts.prefixes.iter().chain([&parts.own]) {
                let run = |kernel: AttentionKernel, inputs: &Inputs| {
                    let [q, k, v, gradient] = &inputs.0;
                    let v = v.view_as(k);
                    let [q, gradient] = [q, &gradient.view_as(q)].map(|x| part.queries.select(x, 0).unwrap());
                    let [k, v] = [k, &v].map(|x| part.keys.select(x, 0).unwrap());
                    let (out, logsumexp) = kernel.attend(part, &q, &k, &v).unwrap();
                    let sums = logsumexp.to_kind(Kind::Double);
                    let logsumexp = logsumexp + 0.7;
                    let all = AttentionGradient { gradient, q, k, v, out, logsumexp };
                    let [dq, dk, dv] = kernel.gradients(part, &all).unwrap();
                    ([all.out, dq, dk, dv].map(|x| x.to_kind(Kind::Double)), sums)
                };
                assert_eq!(AttentionKernel::forward(&single.0[0]), AttentionKernel::FlashNative);
                let found = run(AttentionKernel::FlashNative, &single);
                let expected = run(AttentionKernel::FlashCpu, &exact);
                assert_close(&found.0, &expected.0, 1e-5, name);
                assert!((found.1 - expected.1).abs().max().double_value(&[]) < 1e-5, "{name}: sums");
            }
        }
    }
}

#[test]
fn descendants_of_a_depth_are_sequences_of_one_part() {
    let packed =
        forest(&[(None, 5), (Some(0), 2), (Some(1), 3), (None, 4), (Some(3), 1), (Some(0), 2), (None, 9)]);
    let parts = AttentionParts::new(&packed, Device::Cpu).unwrap();
    assert_eq!(parts.own.lengths, [[5, 5], [2, 2], [3, 3], [4, 4], [1, 1], [2, 2], [9, 9]]);
    assert!(parts.own.causal && matches!(parts.own.queries, Rows::Range { start: 0, len: 26 }));
    let [roots, inner] = parts.prefixes.as_slice() else { panic!("two depths have descendants") };
    assert!(!roots.causal && !inner.causal);
    assert_eq!((roots.lengths.clone(), inner.lengths.clone()), (vec![[7, 5], [1, 4]], vec![[3, 2]]));
    let offsets = roots.offsets.each_ref().map(|offsets| Vec::<i32>::try_from(offsets).unwrap());
    assert_eq!(offsets, [vec![0, 7, 8], vec![0, 5, 9]]);
    assert_eq!((roots.longest(), inner.longest()), ([7, 5], [3, 2]));
    let rows = |rows: &Rows| {
        Vec::<i64>::try_from(rows.select(&Tensor::arange(26, (Kind::Int64, Device::Cpu)), 0).unwrap())
    };
    assert_eq!(rows(&roots.queries).unwrap(), [5, 6, 7, 8, 9, 15, 16, 14]);
    assert_eq!(rows(&roots.keys).unwrap(), [0, 1, 2, 3, 4, 10, 11, 12, 13]);
}

#[test]
fn flash_attention_of_gpus_is_for_16_bits_on_a_gpu() {
    let on_cpu = Tensor::zeros([1, 2, 64], (Kind::BFloat16, Device::Cpu));
    assert_eq!(AttentionKernel::forward(&on_cpu), AttentionKernel::FlashCpu);
    assert!([64, 80, 128, 256].into_iter().all(flash_varlen::supports));
    assert!([0, 4, 60, 264].into_iter().all(|width| !flash_varlen::supports(width)));
    // On the CPU it is an error, not a crash: libtorch finds the operation, and no kernel.
    let parts = AttentionParts::new(&forest(&[(None, 1)]), Device::Cpu).unwrap();
    let error = flash_varlen::attend(&parts.own, &on_cpu, &on_cpu, &on_cpu).unwrap_err();
    assert!(error.to_string().contains("_flash_attention_forward"), "{error}");
    let [gradient, q, k, v, out] = std::array::from_fn(|_| on_cpu.shallow_clone());
    let logsumexp = Tensor::zeros([2, 1], (Kind::Float, Device::Cpu));
    let all = AttentionGradient { gradient, q, k, v, out, logsumexp };
    let error = flash_varlen::gradients(&parts.own, &all).unwrap_err();
    assert!(error.to_string().contains("_flash_attention_backward"), "{error}");
}

/// On a card, flash attention of all sequences at once equals plain products, with deterministic algorithms too.
#[test]
fn attention_on_a_gpu_equals_plain_products() {
    let Some(device) = gpu() else { return };
    for (name, packed) in forests() {
        for heads in HEADS {
            let what = format!("{name}, {heads:?}");
            let inputs = Inputs::new(&packed, heads, Kind::BFloat16, device);
            assert_eq!(AttentionKernel::forward(&inputs.0[0]), AttentionKernel::FlashVarlen);
            let exact = inputs.to_kind(Kind::Float);
            assert_eq!(AttentionKernel::forward(&exact.0[0]), AttentionKernel::Plain);
            let exact = exact.run(&packed);
            assert_close(&inputs.run(&packed), &exact, 2e-2, &what);
            libtorch::use_deterministic_algorithms(true);
            let again = [(), ()].map(|()| inputs.run(&packed));
            libtorch::use_deterministic_algorithms(false);
            assert_close(&again[0], &exact, 2e-2, &format!("{what}, deterministic"));
            let same = again[0].iter().zip(&again[1]).all(|(a, b)| a.equal(b));
            assert!(same, "{what}: two runs differ");
        }
    }
}
