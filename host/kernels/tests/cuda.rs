//! Tests of the kernels on a CUDA device; skipped on machines without one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test crate: a panic is how a test fails")]

use pl_kernels::cpu::BLOCK;
use pl_kernels::cuda::elementwise::{Elementwise, HeadInputs};
use pl_kernels::cuda::head::{FusedHead, HeadRows, ReferenceHead, TokenHead};
use pl_kernels::cuda::lora::{LoraFactors, LoraProducts};
use pl_kernels::cuda::paged::{GatheredSequences, PagedAttention, PagedSequences};
use pl_kernels::cuda::sampling::{LIKELIEST, TokenSampler, given};
use pl_kernels::cuda::{Graphs, KernelSettings, first_gpu, open, opened};
use tch::{Cuda, Device, Kind, Tensor};

/// Returns the first GPU with its kernels open, or `None` without one.
fn device() -> Option<Device> {
    let (reason, device) = match first_gpu(&settings()) {
        Ok(device) => ("no CUDA device".to_owned(), device),
        Err(error) => (error.to_string(), None),
    };
    if device.is_none() {
        pl_testing::skip_or_fail(pl_testing::Requirement::Cuda, &reason);
    }
    device
}

fn settings() -> KernelSettings {
    KernelSettings::new(&pl_testing::cache())
}

fn assert_close(got: &Tensor, expected: &Tensor, tolerance: f64, what: &str) {
    let (got, expected) = (got.to_kind(Kind::Double), expected.to_kind(Kind::Double));
    let scale = expected.abs().max().double_value(&[]).max(1.0);
    let difference = (got - expected).abs().max().double_value(&[]);
    assert!(difference <= tolerance * scale, "{what}: {difference} of {scale}");
}

#[test]
fn kernels_equal_the_reference_on_the_device() {
    let Some(device) = device() else { return };
    let kernels = open(0, &settings()).unwrap();
    assert!(opened(device).is_some());
    let fused = FusedHead::new(kernels);
    let shapes = [(1, 8, 1), (3, 33, 130), (130, 40, 257), (257, 576, 49_152), (1000, 2048, 20_001)];
    for kind in [Kind::Float, Kind::BFloat16] {
        for (rows, width, vocabulary) in shapes {
            let options = (Kind::Float, device);
            let hidden = (Tensor::randn([rows, width], options) * (9.0 / width as f64).sqrt()).to_kind(kind);
            let unembed = Tensor::randn([vocabulary, width], options).to_kind(kind);
            let tokens = Tensor::randint(vocabulary, [rows], (Kind::Int64, device));
            let temperatures = Tensor::rand([rows], options) + 0.5;
            let slopes = Tensor::randn([rows], options);
            let rows_in = HeadRows { hidden: &hidden, tokens: &tokens, temperatures: Some(&temperatures) };
            let run = |head: &dyn TokenHead| {
                let total = unembed.zeros_like().to_kind(Kind::Float);
                let scores = head.forward(&rows_in, &unembed).unwrap();
                let gradient = head.backward(&rows_in, &unembed, &scores, &slopes, Some(&total)).unwrap();
                (scores, gradient, total)
            };
            let (scores, gradient, total) = run(&fused);
            let (expected, expected_gradient, expected_total) = run(&ReferenceHead);
            let what = |name: &str| format!("{name} of {rows} x {width} x {vocabulary} in {kind:?}");
            assert_close(&scores.logp, &expected.logp, 1e-4, &what("logp"));
            assert_close(&scores.entropy, &expected.entropy, 1e-4, &what("entropy"));
            let tolerance = if kind == Kind::Float { 1e-4 } else { 2e-2 };
            assert_close(&gradient, &expected_gradient, tolerance, &what("gradient"));
            assert_close(&total, &expected_total, tolerance, &what("gradient of the matrix"));
        }
    }
}

/// Nothing waits between libtorch's work and the kernels', and both run in the order of the calls: a long
/// product before the kernel, and a change of its input after it.
#[test]
fn kernels_run_in_order_with_libtorchs_work() {
    let Some(device) = device() else { return };
    let fused = FusedHead::new(open(0, &settings()).unwrap());
    let options = (Kind::Float, device);
    let unembed = Tensor::randn([30_000, 256], options);
    let tokens = Tensor::randint(30_000, [512], (Kind::Int64, device));
    let large = Tensor::randn([8192, 8192], options);
    let round = |wait: bool| {
        let pause = || {
            if wait {
                Cuda::synchronize(0)
            }
        };
        let product = large.mm(&large).mm(&large);
        let mut hidden = product.narrow(0, 0, 512).narrow(1, 0, 256).contiguous() / 1e4;
        pause();
        let rows = HeadRows { hidden: &hidden.shallow_clone(), tokens: &tokens, temperatures: None };
        let logp = fused.forward(&rows, &unembed).unwrap().logp;
        pause();
        let _ = hidden.zero_();
        logp
    };
    assert!(round(false).equal(&round(true)));
}

#[test]
fn paged_attention_equals_that_over_gathered_keys() {
    let Some(device) = device() else { return };
    let kernels = PagedAttention::new(open(0, &settings()).unwrap());
    let lengths: [i32; 6] = [1, 16, 257, 600, 3000, 4096];
    let longest = 4096;
    let columns = (longest / BLOCK) as i64;
    let rows = lengths.len() as i64;
    // Each sequence has every sixth block.
    let tables = Tensor::arange(rows * columns, (Kind::Int, device)).view([columns, rows]).tr().contiguous();
    let row_lengths = Tensor::from_slice(&lengths).to_device(device);
    let sequences = PagedSequences { tables: &tables, lengths: &row_lengths, longest };
    for (kind, tolerance) in [(Kind::Float, 1e-4), (Kind::BFloat16, 2e-2)] {
        for [heads, kv_heads, width] in [[16i64, 8, 128], [9, 3, 64], [10, 1, 64]] {
            let random = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, device)).to_kind(kind);
            let queries = random(&[rows, heads, width]);
            let cache = random(&[rows * columns * BLOCK as i64, 2, kv_heads, width]);
            let got = kernels.attend(&queries, &cache, &sequences).unwrap();
            let wide = |tensor: &Tensor| tensor.to_kind(Kind::Float);
            let expected = GatheredSequences::new(&sequences, Kind::Float)
                .unwrap()
                .attend(&wide(&queries), &wide(&cache))
                .unwrap();
            assert_close(&got, &expected, tolerance, &format!("{heads} and {kv_heads} heads in {kind:?}"));
            // A sequence alone has the same bits.
            let (tables, row_lengths) = (tables.narrow(0, 2, 1), row_lengths.narrow(0, 2, 1));
            let alone = PagedSequences { tables: &tables, lengths: &row_lengths, longest: 257 };
            let alone = kernels.attend(&queries.narrow(0, 2, 1), &cache, &alone).unwrap();
            assert!(alone.equal(&got.narrow(0, 2, 1)), "{kind:?}: a sequence alone");
        }
    }
}

#[test]
fn operations_between_products_equal_those_in_f32() {
    let Some(device) = device() else { return };
    let kernels = Elementwise::new(open(0, &settings()).unwrap());
    let wide = |x: &Tensor| x.to_kind(Kind::Float);
    for (kind, tolerance) in [(Kind::Float, 1e-5), (Kind::BFloat16, 1e-2)] {
        for (rows, heads, width) in [(1i64, 1i64, 576i64), (300, 16, 128), (257, 1, 2048), (16, 3, 64)] {
            let random = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, device)).to_kind(kind);
            let what = |name: &str| format!("{name} of {rows} x {heads} x {width} in {kind:?}");
            let [x, dy, up] = [0, 1, 2].map(|_| random(&[rows, heads, width]));
            let gain = wide(&random(&[width]));
            let (normed, rstd) = kernels.rms_norm(&x, &gain, 1e-6).unwrap();
            let mean = |x: Tensor| x.mean_dim([-1i64].as_slice(), true, None);
            let expected_rstd = (mean(wide(&x).square()) + 1e-6).rsqrt();
            assert_close(&rstd, &expected_rstd, 1e-5, &what("reciprocals"));
            assert_close(&normed, &(wide(&x) * &rstd * &gain), tolerance, &what("norm"));
            assert!(kernels.normalize(&x, &rstd, &gain).unwrap().equal(&normed), "{}", what("norm again"));
            let (n, dn) = (wide(&x) * &rstd, wide(&dy) * &gain);
            let expected = (&dn - &n * mean(&dn * &n)) * &rstd;
            let dx = kernels.normalize_backward(&dy, &x, &rstd, &gain).unwrap();
            assert_close(&dx, &expected, tolerance, &what("gradient of a norm"));
            let d_gain = kernels.gain_gradient(&dy, &x, &rstd).unwrap();
            let expected = (wide(&dy) * &n).sum_dim_intlist([0i64, 1].as_slice(), false, Kind::Double);
            assert_close(&d_gain, &expected, 1e-5, &what("gradient of a gain"));

            let [cosines, sines] = [0, 1].map(|_| wide(&random(&[rows, width])));
            let rotated = kernels.rotate(&x, [&cosines, &sines], true).unwrap();
            let swapped = wide(&x).roll([width / 2].as_slice(), [-1i64].as_slice());
            let expected = wide(&x) * cosines.unsqueeze(1) - swapped * sines.unsqueeze(1);
            assert_close(&rotated, &expected, tolerance, &what("rotation"));

            let gated = kernels.gate(&x, &up).unwrap();
            assert_close(&gated, &(wide(&x).silu() * wide(&up)), tolerance, &what("gate"));
            let (d_gate, d_up) = kernels.gate_backward(&dy, &x, &up).unwrap();
            assert_close(&d_up, &(wide(&x).silu() * wide(&dy)), tolerance, &what("gradient of up"));
            let share = wide(&x).sigmoid();
            let slope = &share * (wide(&x) * (1.0 - &share) + 1.0);
            assert_close(&d_gate, &(wide(&dy) * wide(&up) * slope), tolerance, &what("gradient of the gate"));
        }
    }
}

#[test]
fn operations_of_generation_have_the_bits_of_those_that_they_replace() {
    let Some(device) = device() else { return };
    let kernels = Elementwise::new(open(0, &settings()).unwrap());
    for kind in [Kind::Float, Kind::BFloat16] {
        let random = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, device)).to_kind(kind);
        let wide = |shape: &[i64]| random(shape).to_kind(Kind::Float);
        for (rows, width) in [(1i64, 576i64), (64, 1024), (257, 4096)] {
            let [x, y, gain] = [random(&[rows, width]), random(&[rows, width]), wide(&[width])];
            let (sum, normed) = kernels.add_rms_norm(&x, &y, &gain, 1e-6).unwrap();
            assert!(sum.equal(&(&x + &y)), "sum of {rows} x {width} in {kind:?}");
            let (expected, _) = kernels.rms_norm(&sum, &gain, 1e-6).unwrap();
            assert!(normed.equal(&expected), "norm of {rows} x {width} in {kind:?}");
            let halves = random(&[rows, 2 * width]);
            let [gate, up] = [0, width].map(|start| halves.narrow(1, start, width).contiguous());
            let expected = kernels.gate(&gate, &up).unwrap();
            assert!(kernels.gate_halves(&halves).unwrap().equal(&expected), "gate of {rows} x {width}");
        }
        for [tokens, heads, kv_heads, width] in [[1i64, 16, 8, 128], [65, 9, 3, 64], [300, 14, 2, 256]] {
            let qkv = random(&[tokens, (heads + 2 * kv_heads) * width]);
            let [q_gain, k_gain] = [0, 1].map(|_| wide(&[width]));
            let [cosines, sines] = [0, 1].map(|_| wide(&[tokens, width]));
            let slots = Tensor::randperm(400, (Kind::Int64, device)).narrow(0, 0, tokens);
            let before = random(&[400, 2, kv_heads, width]);
            for normed in [true, false] {
                let (cache, expected_cache) = (before.copy(), before.copy());
                let [q_gain, k_gain] = [&q_gain, &k_gain].map(|gain| normed.then_some(gain));
                let tables = [&cosines, &sines];
                let inputs = HeadInputs { qkv: &qkv, q_gain, k_gain, tables, slots: &slots, cache: &cache };
                let q = kernels.rotate_and_store(&inputs, 1e-6).unwrap();
                let part = |start: i64, count: i64| {
                    qkv.narrow(1, start * width, count * width).contiguous().view([-1, count, width])
                };
                let rotate = |x: Tensor, gain: Option<&Tensor>| {
                    let x =
                        gain.map_or(x.shallow_clone(), |gain| kernels.rms_norm(&x, gain, 1e-6).unwrap().0);
                    kernels.rotate(&x, tables, false).unwrap()
                };
                let k = rotate(part(heads, kv_heads), k_gain);
                let new = Tensor::stack(&[k, part(heads + kv_heads, kv_heads)], 1);
                let _ = expected_cache.shallow_clone().index_copy_(0, &slots, &new);
                let what = format!("{tokens} x {heads} and {kv_heads} x {width} in {kind:?}");
                assert!(q.equal(&rotate(part(0, heads), q_gain)), "queries of {what}");
                assert!(cache.equal(&expected_cache), "cache of {what}");
            }
        }
    }
}

#[test]
fn products_of_adapters_equal_those_of_libtorch() {
    let Some(device) = device() else { return };
    let products = LoraProducts::new(open(0, &settings()).unwrap());
    for (rows, width, outputs, ranks) in [
        (1i64, 2048i64, vec![2048i64, 1024, 1024], 32i64),
        (64, 2048, vec![2048, 1024, 1024], 32),
        (64, 2048, vec![6144, 6144], 32),
        (64, 6144, vec![2048], 32),
        (50, 576, vec![1536, 1536], 64),
        (256, 6144, vec![2048], 256),
    ] {
        let random = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, device)).to_kind(Kind::BFloat16);
        let projections = outputs.len() as i64;
        let columns: i64 = outputs.iter().sum();
        let (x, y) = (random(&[rows, width]), random(&[rows, columns]));
        let a = random(&[projections * ranks, width]) / (width as f64).sqrt();
        let b = random(&[columns, ranks]);
        // A row has 8 or 16 ranks, or none.
        let scales = Tensor::zeros([rows, ranks], (Kind::Float, device));
        for row in (0..rows).filter(|row| row % 5 != 4) {
            let rank = 8 << (row % 2);
            let first = row * 8 % (ranks - rank + 1);
            let _ = scales.get(row).narrow(0, first, rank).fill_(2.0);
        }
        let got = y.copy();
        let factors = LoraFactors { a: &a, b: &b, outputs: &outputs };
        products.add(&factors, &scales, &x, &got).unwrap();
        let wide = |x: &Tensor| x.to_kind(Kind::Double);
        let parts: Vec<Tensor> = a
            .chunk(projections, 0)
            .iter()
            .zip(b.split_with_sizes(outputs.as_slice(), 0))
            .map(|(a, b)| (wide(&x).mm(&wide(a).tr()) * wide(&scales)).mm(&wide(&b).tr()))
            .collect();
        let expected = wide(&y) + Tensor::cat(&parts, 1);
        assert_close(&got, &expected, 1e-2, &format!("{rows} x {width}, {ranks} ranks"));
        // A row alone has the same bits.
        let last = |tensor: &Tensor| tensor.narrow(0, rows - 1, 1).contiguous();
        let alone = last(&y);
        products.add(&factors, &last(&scales), &last(&x), &alone).unwrap();
        assert!(alone.equal(&last(&got)), "a row alone of {rows} x {width}");
    }
}

#[test]
fn sampled_tokens_follow_the_softmax() {
    let Some(device) = device() else { return };
    let sampler = TokenSampler::new(open(0, &settings()).unwrap());
    for (rows, vocab) in [(3i64, 7i64), (5, 1001), (64, 49_152), (1, 151_936)] {
        let logits = Tensor::randn([rows, vocab], (Kind::Float, device)) * 3.0;
        let quantiles = [0.0, 0.3, 0.999_999, LIKELIEST, given(vocab as u32 - 1)];
        let count = rows * quantiles.len() as i64;
        let row = |i: i64| i % rows;
        let columns: Vec<f64> = (0..count)
            .map(|i| row(i) as f64)
            .chain((0..count).map(|i| 0.5 + (i % 3) as f64 / 2.0))
            .chain((0..count).map(|i| quantiles[(i / rows) as usize]))
            .collect();
        let choices = Tensor::from_slice(&columns).view([3, count]);
        let on_device = choices.to_device(device);
        let got = sampler.sample(&logits, &on_device).unwrap();
        let tokens = got.get(0).to_kind(Kind::Int64).unsqueeze(1);
        let logp = got.get(1).view_dtype(Kind::Float);
        let scaled = logits.index_select(0, &on_device.get(0).to_kind(Kind::Int64))
            / on_device.get(1).to_kind(Kind::Float).unsqueeze(1);
        let logps = scaled.to_kind(Kind::Double).log_softmax(-1, Kind::Double);
        assert_close(&logp, &logps.gather(1, &tokens, false).squeeze_dim(1), 1e-5, "log-probabilities");
        let after = logps.exp().cumsum(-1, Kind::Double).gather(1, &tokens, false).squeeze_dim(1);
        let before = &after - logp.to_kind(Kind::Double).exp();
        let likeliest = logits.argmax(-1, false);
        for i in 0..count {
            let (choice, token) = (columns[(2 * count + i) as usize], tokens.int64_value(&[i, 0]));
            match choice {
                LIKELIEST => assert_eq!(token, likeliest.int64_value(&[row(i)])),
                quantile if quantile >= 0.0 => {
                    let (before, after) = (before.double_value(&[i]), after.double_value(&[i]));
                    assert!(before - 1e-5 <= quantile && quantile < after + 1e-5, "{before} {after}");
                }
                given_token => assert_eq!(given(token as u32), given_token),
            }
        }
        // A choice alone has the same bits.
        let alone = sampler.sample(&logits, &on_device.narrow(1, count / 2, 1).contiguous()).unwrap();
        assert!(alone.equal(&got.narrow(1, count / 2, 1)), "a choice alone");
    }
}

/// Products of libtorch and a kernel here, with memory that comes and goes in between.
#[test]
fn a_graph_repeats_its_work_with_what_is_in_its_inputs() {
    let Some(device) = device() else { return };
    let kernels = PagedAttention::new(open(0, &settings()).unwrap());
    let options = (Kind::Float, device);
    let (rows, heads, width, blocks) = (3i64, 4i64, 64i64, 40i64);
    let random = |shape: &[i64]| Tensor::randn(shape, options);
    let matrix = random(&[heads * width, heads * width]) / 16.0;
    let cache = random(&[rows * blocks * BLOCK as i64, 2, heads, width]);
    let tables = Tensor::arange(rows * blocks, (Kind::Int, device)).view([rows, blocks]);
    let (mut input, mut lengths) =
        (random(&[rows, heads * width]), Tensor::ones([rows], (Kind::Int, device)));
    let (own_input, own_lengths) = (input.shallow_clone(), lengths.shallow_clone());
    let sequences =
        PagedSequences { tables: &tables, lengths: &own_lengths, longest: blocks as usize * BLOCK };
    let work = || {
        let queries = own_input.f_mm(&matrix)?.f_view([rows, heads, width])?;
        kernels.attend(&queries, &cache, &sequences)?.f_add_scalar(1.0)
    };
    let graphs = Graphs::new(0).unwrap();
    let (graph, output) = graphs.record(work).unwrap();
    let (other_graph, other_output) = graphs.record(work).unwrap();
    for round in 0..3i64 {
        input.copy_(&random(&[rows, heads * width]));
        lengths.copy_(&Tensor::from_slice(&[1 + round as i32, 40, 600 - 100 * round as i32]));
        // SAFETY: all tensors of the work are above.
        unsafe { graph.replay() }.unwrap();
        let got = output.copy();
        assert_close(&got, &work().unwrap(), 1e-5, "a replay");
        // SAFETY: as above.
        unsafe { other_graph.replay() }.unwrap();
        assert!(other_output.equal(&got), "two graphs of the same work");
    }
    drop((graph, other_graph));
    // The pool of memory went with the last graph.
    let (graph, output) = graphs.record(work).unwrap();
    // SAFETY: as above.
    unsafe { graph.replay() }.unwrap();
    assert_close(&output, &work().unwrap(), 1e-5, "a graph of a second pool");
}
