//! Recorded steps beside the plain way, with a recorder for the CPU that runs the recorded work again.

mod whole_engine;

use std::path::Path;

use pl_kernels::cuda::KernelSettings;
use pl_model::{Model, Projection};
use pl_types::Dtype;
use tch::Kind;

use super::decode_graphs::DecodeShape;
use super::decode_work::{DecodeInputs, DecodeWork};
use super::graph_recorder::{RecordedWork, RepeatedWork};
use super::*;
use crate::executor::BatchSegment;

/// A recorder that runs the recorded work again: it reads the tensors that were there at the recording, like a graph.
#[derive(Default)]
struct Repeater {
    recorded: Cell<usize>,
    fails: Cell<bool>,
}

struct Repeated {
    work: RepeatedWork,
    output: Tensor,
}

impl GraphRecorder for Repeater {
    fn supports(&self, _: Device, _: Kind, _: i64) -> bool {
        true
    }

    fn record(&self, work: RepeatedWork) -> Result<Box<dyn RecordedWork>, TchError> {
        if self.fails.get() {
            return Err(TchError::Torch("operation not permitted when stream is capturing".to_owned()));
        }
        self.recorded.set(self.recorded.get() + 1);
        let output = work()?.full_like(f64::NAN);
        Ok(Box::new(Repeated { work, output }))
    }
}

impl RecordedWork for Repeated {
    unsafe fn replay(&self) -> Result<&Tensor, TchError> {
        self.output.shallow_clone().f_copy_(&(self.work)()?)?;
        Ok(&self.output)
    }
}

const BLOCKS: usize = 40;

/// An executor with its cache and its model.
struct Side {
    executor: Libtorch,
    model: LoadedModel,
    cache: KvCacheTensors,
}

impl Side {
    fn new(base: &BaseModel, recorder: Option<Rc<dyn GraphRecorder>>) -> Self {
        let executor =
            Libtorch { recorder, ahead: false, ..Libtorch::new(Device::Cpu, true, Arc::default()) };
        let model = executor.load_weights(base, BLOCKS * BLOCK, true).unwrap();
        let cache = executor.new_cache(base, BLOCKS).unwrap();
        Self { executor, model, cache }
    }

    fn step(&mut self, batch: &TokenBatch<'_, LoadedAdapter>) -> StepTensors {
        tch::no_grad(|| self.executor.step(&self.model, &mut self.cache, batch)).unwrap()
    }

    fn replays(&self) -> u64 {
        self.executor.counters.snapshot().replayed_steps
    }
}

/// A sequence with blocks of its own.
struct Growing {
    tokens: Vec<u32>,
    blocks: Vec<u32>,
}

/// Both ways, beside each other.
struct Both {
    recorder: Rc<Repeater>,
    recorded: Side,
    plain: Side,
    base: BaseModel,
    sequences: Vec<Growing>,
}

impl Both {
    fn new() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny");
        let Model { config, weights, tokenizer, .. } = Model::load(folder, Device::Cpu, Dtype::F32).unwrap();
        let base = BaseModel { config, weights, tokenizer, dtype: Dtype::F32 };
        let recorder = Rc::new(Repeater::default());
        let mut both = Self {
            recorded: Side::new(&base, Some(Rc::clone(&recorder) as Rc<dyn GraphRecorder>)),
            plain: Side::new(&base, None),
            recorder,
            base,
            sequences: Vec::new(),
        };
        // Three blocks each, in no order, of which the prompt takes some.
        for (index, length) in [5u32, 16, 17, 30, 9].into_iter().enumerate() {
            let tokens = (0..length).map(|i| (i * 37 + index as u32 * 11) % 290 + 3).collect();
            let blocks = (0..3).map(|i| (index as u32 * 7 + i * 17) % BLOCKS as u32).collect();
            both.sequences.push(Growing { tokens, blocks });
        }
        both.prefill();
        both
    }

    /// Computes the prompts. No logits are needed.
    fn prefill(&mut self) {
        let Self { recorded, plain, sequences, .. } = self;
        for sequence in sequences {
            let count = sequence.tokens.len() - 1;
            let segment = BatchSegment {
                tokens: &sequence.tokens[..count],
                position: 0,
                blocks: &sequence.blocks,
                adapter: None,
                logit_count: 1,
            };
            let batch = TokenBatch { segments: vec![segment], next_tokens: None };
            let [own, expected] = [&mut *recorded, &mut *plain].map(|side| side.step(&batch));
            // The same way.
            assert!(own.logits.equal(&expected.logits));
        }
    }

    /// Appends a token to some sequences, each with an adapter or without. Compares the logits of both ways. Returns the number of
    /// replays.
    fn decode(&mut self, rows: &[(usize, Option<&LoadedAdapter>)]) -> u64 {
        let Self { recorded, plain, sequences, .. } = self;
        let before = recorded.replays();
        let segments = rows.iter().map(|(index, adapter)| {
            let Growing { tokens, blocks } = &sequences[*index];
            let position = tokens.len() - 1;
            BatchSegment { tokens: &tokens[position..], position, blocks, adapter: *adapter, logit_count: 1 }
        });
        let batch = TokenBatch { segments: segments.collect(), next_tokens: None };
        let [got, expected] = [&mut *recorded, &mut *plain].map(|side| side.step(&batch).logits);
        assert_eq!(got.size(), expected.size());
        let gap = (&got - &expected).abs().max().double_value(&[]);
        assert!(gap <= 1e-4, "logits differ by {gap}");
        let replays = recorded.replays() - before;
        let next: Vec<i64> = expected.argmax(-1, false).try_into().unwrap();
        for ((index, _), token) in rows.iter().zip(next) {
            sequences[*index].tokens.push(token as u32);
        }
        replays
    }

    /// As [`decode`](Self::decode), without adapters.
    fn decode_base(&mut self, indices: &[usize]) -> u64 {
        self.decode(&indices.iter().map(|index| (*index, None)).collect::<Vec<_>>())
    }

    fn adapter(&self, rank: usize, targets: &[Projection], seed: u8) -> LoadedAdapter {
        let adapter = Adapter::new(&self.base.config, rank, 2.0 * rank as f64, targets, [seed; 32]).unwrap();
        tch::manual_seed(i64::from(seed));
        for (name, mut tensor) in adapter.parameters() {
            if name.contains("lora_B") {
                let _ = tensor.normal_(0.0, 0.3);
            }
        }
        self.recorded.executor.load_adapter(&self.base.config, &adapter).unwrap()
    }

    fn recordings(&self) -> usize {
        self.recorder.recorded.get()
    }
}

#[test]
fn shapes_that_repeat_are_recorded_once_and_replayed() {
    let mut both = Both::new();
    // Four rows and three are the same shape, of which one row is unused.
    assert_eq!(both.decode_base(&[0, 1, 2, 3]), 0);
    assert_eq!(both.decode_base(&[2, 1, 4]), 1);
    assert_eq!(both.decode_base(&[0, 1, 2, 3]), 1);
    assert_eq!(both.recordings(), 1);
    assert_eq!(both.decode_base(&[0]), 0);
    for _ in 0..20 {
        assert_eq!(both.decode_base(&[0]), 1);
    }
    assert_eq!(both.decode_base(&[1, 0, 3, 4]), 1);
    assert_eq!(both.recordings(), 2);
}

/// A replay gives the bits of the same work over new tensors: it depends on nothing of the batch that it was recorded with.
#[test]
fn a_replay_has_the_bits_of_work_that_was_never_recorded() {
    let mut both = Both::new();
    for rows in [&[0usize, 1, 2, 3][..], &[0, 1, 2, 3], &[4, 2, 1], &[3, 0, 1, 2]] {
        let Both { recorded, sequences, .. } = &mut both;
        let segments = rows.iter().map(|index| {
            let Growing { tokens, blocks } = &sequences[*index];
            let position = tokens.len() - 1;
            BatchSegment { tokens: &tokens[position..], position, blocks, adapter: None, logit_count: 1 }
        });
        let batch = TokenBatch { segments: segments.collect(), next_tokens: None };
        let before = recorded.replays();
        let got = recorded.step(&batch).hidden;
        if recorded.replays() > before {
            let model = &recorded.model.0;
            let shape = DecodeShape::new(&batch, &model.config, model.positions()).unwrap();
            assert_eq!((shape.rows, shape.blocks), (4, 512 / BLOCK));
            let mut inputs =
                DecodeInputs::new([shape.rows, shape.blocks], None, BLOCKS as u32, Device::Cpu).unwrap();
            inputs.write(&batch, |_| 0).unwrap();
            let fresh = DecodeWork::new(model, &recorded.cache.layers, None, &inputs).run().unwrap();
            assert!(got.equal(&fresh.narrow(0, 0, rows.len() as i64)), "{rows:?}");
        }
        for (place, index) in rows.iter().enumerate() {
            sequences[*index].tokens.push(3 + place as u32);
        }
    }
    assert_eq!(both.recorded.replays(), 3);
}

#[test]
fn adapters_take_over_slots_and_new_slots_need_new_recordings() {
    let mut both = Both::new();
    let (first, second) =
        (both.adapter(4, &Projection::ALL, 1), both.adapter(3, &[Projection::Q, Projection::Down], 2));
    fn rows<'a>(
        first: &'a LoadedAdapter,
        second: &'a LoadedAdapter,
    ) -> [(usize, Option<&'a LoadedAdapter>); 4] {
        [(0, Some(first)), (1, Some(first)), (2, Some(second)), (3, None)]
    }
    assert_eq!(both.decode(&rows(&first, &second)), 0);
    assert_eq!(both.decode(&rows(&first, &second)), 1);
    // Rows in another order, and without one of the adapters.
    assert_eq!(both.decode(&[(3, None), (2, Some(&second)), (4, Some(&second))]), 1);
    assert_eq!(both.recordings(), 1);
    // The next version, while a sequence goes on with the earlier one: a slot more.
    let newer = both.adapter(4, &Projection::ALL, 3);
    assert_eq!(both.decode(&[(0, Some(&first)), (1, Some(&newer)), (2, Some(&second))]), 1);
    assert_eq!(both.recordings(), 2);
    // From then on, versions alternate between two slots.
    drop(first);
    let newest = both.adapter(4, &Projection::ALL, 5);
    assert_eq!(both.decode(&rows(&newer, &second)), 1);
    assert_eq!(both.decode(&[(0, Some(&newer)), (1, Some(&newest)), (2, Some(&second))]), 1);
    drop(newer);
    let other = both.adapter(4, &[Projection::V], 6);
    assert_eq!(both.decode(&[(0, Some(&newest)), (1, Some(&other)), (2, Some(&second))]), 1);
    assert_eq!(both.recordings(), 2);
    // The base alone is another shape, whose steps multiply by no factors.
    assert_eq!((both.decode_base(&[0, 1, 2]), both.decode_base(&[0, 1, 2])), (0, 1));
}

#[test]
fn adapters_that_do_not_fit_take_the_plain_way() {
    let mut both = Both::new();
    let large: Vec<LoadedAdapter> = (0..3).map(|seed| both.adapter(100, &[Projection::Q], seed)).collect();
    for _ in 0..3 {
        assert_eq!(both.decode(&[(0, Some(&large[0])), (1, Some(&large[1])), (2, Some(&large[2]))]), 0);
    }
    // Two of them at a time fit: the one that was used longest ago gives its slot.
    assert_eq!(both.decode(&[(0, Some(&large[0])), (1, Some(&large[1])), (2, None)]), 0);
    assert_eq!(both.decode(&[(0, Some(&large[0])), (1, Some(&large[1])), (2, None)]), 1);
    assert_eq!(both.decode(&[(0, Some(&large[2])), (1, Some(&large[1])), (2, None)]), 1);
    assert_eq!(both.decode(&[(0, Some(&large[0])), (1, Some(&large[2])), (2, None)]), 1);
    assert_eq!(both.recordings(), 1);

    let broken = both.adapter(2, &[Projection::Q], 9);
    for (_, mut tensor) in broken.factors.parameters() {
        let _ = tensor.fill_(f64::NAN);
    }
    let broken = both.recorded.executor.load_adapter(&both.base.config, &broken.factors).unwrap();
    let Both { recorded, sequences, .. } = &mut both;
    let segment = |index: usize, adapter| {
        let Growing { tokens, blocks }: &Growing = &sequences[index];
        let position = tokens.len() - 1;
        BatchSegment { tokens: &tokens[position..], position, blocks, adapter, logit_count: 1 }
    };
    let batch = TokenBatch {
        segments: vec![segment(0, Some(&broken)), segment(1, Some(&large[0]))],
        next_tokens: None,
    };
    let before = recorded.replays();
    let logits = recorded.step(&batch).logits;
    assert_eq!(recorded.replays(), before);
    let finite: Vec<bool> =
        (0..2).map(|row| logits.get(row).isfinite().all().int64_value(&[]) == 1).collect();
    assert_eq!(finite, [false, true]);
}

#[test]
fn new_weights_drop_recorded_steps_and_earlier_ones_take_the_plain_way() {
    let mut both = Both::new();
    both.decode_base(&[0, 1]);
    assert_eq!(both.decode_base(&[0, 1]), 1);
    // Weights that change in their memory are read by the next replay.
    let doubled = both.base.weights.norm.shallow_clone() * 2;
    both.base.weights.norm.copy_(&doubled);
    assert_eq!(both.decode_base(&[0, 1]), 1);
    let weights = both.base.weights.map(|tensor| tensor * 1.01);
    let base = BaseModel {
        config: both.base.config.clone(),
        weights,
        tokenizer: Arc::clone(&both.base.tokenizer),
        dtype: Dtype::F32,
    };
    let mut earlier = Vec::new();
    for side in [&mut both.recorded, &mut both.plain] {
        let newer = side.executor.load_weights(&base, BLOCKS * BLOCK, false).unwrap();
        earlier.push(std::mem::replace(&mut side.model, newer));
    }
    // Another recording, after the first batch of the shape.
    assert_eq!((both.decode_base(&[0, 1]), both.decode_base(&[0, 1])), (0, 1));
    assert_eq!(both.recordings(), 2);
    // A sequence that goes on with the earlier weights doesn't drop it.
    let mut swap = |both: &mut Both| {
        for (side, other) in [&mut both.recorded, &mut both.plain].into_iter().zip(&mut earlier) {
            std::mem::swap(&mut side.model, other);
        }
    };
    swap(&mut both);
    assert_eq!((both.decode_base(&[0, 1]), both.decode_base(&[0, 1])), (0, 0));
    swap(&mut both);
    assert_eq!(both.decode_base(&[0, 1]), 1);
    assert_eq!(both.recordings(), 2);
}

#[test]
fn a_cache_that_gave_its_memory_back_is_recorded_anew() {
    let mut both = Both::new();
    both.decode_base(&[0, 1]);
    assert_eq!(both.decode_base(&[0, 1]), 1);
    for side in [&mut both.recorded, &mut both.plain] {
        side.executor.release_cache(&mut side.cache);
        assert_eq!(side.cache.layers[0].numel(), 0);
        side.executor.restore_cache(&mut side.cache).unwrap();
    }
    // One block more for unused rows.
    let rows = |side: &Side| side.cache.layers[0].size()[0] as usize;
    assert_eq!((rows(&both.recorded), rows(&both.plain)), ((BLOCKS + 1) * BLOCK, BLOCKS * BLOCK));
    both.prefill();
    assert_eq!((both.decode_base(&[0, 1]), both.decode_base(&[0, 1])), (0, 1));
    assert_eq!(both.recordings(), 2);
}

#[test]
fn a_recording_that_fails_leaves_the_plain_way() {
    let mut both = Both::new();
    both.recorder.fails.set(true);
    for _ in 0..4 {
        assert_eq!(both.decode_base(&[0, 1]), 0);
    }
    // No second attempt.
    both.recorder.fails.set(false);
    assert_eq!((both.decode_base(&[2]), both.decode_base(&[2])), (0, 0));
}

#[test]
fn prompts_and_batches_that_are_too_large_take_the_plain_way() {
    let both = Both::new();
    let model = &both.recorded.model.0;
    let shape = |lengths: &[usize], positions: usize| {
        let segments = lengths.iter().map(|length| BatchSegment {
            tokens: &[3],
            position: length - 1,
            blocks: &[],
            adapter: None,
            logit_count: 1,
        });
        let batch = TokenBatch::<LoadedAdapter> { segments: segments.collect(), next_tokens: None };
        DecodeShape::new(&batch, &model.config, positions).map(|shape| (shape.rows, shape.blocks))
    };
    assert_eq!(shape(&[1; 5], 100_000), Some((8, 32)));
    assert_eq!(shape(&[512; 70], 100_000), Some((96, 32)));
    assert_eq!(shape(&[1, 513], 100_000), Some((2, 128)));
    // No sequence is longer than the model takes.
    assert_eq!(shape(&[1, 513], 2000), Some((2, 125)));
    assert_eq!((shape(&[1; 256], 100_000), shape(&[1; 257], 100_000)), (Some((256, 32)), None));
    assert_eq!(shape(&[1; 0], 100_000), None);
    // The sums of attention's parts would take gigabytes.
    assert_eq!(shape(&[1 << 22; 256], 1 << 22), None);
    let prompt = BatchSegment { tokens: &[3, 4], position: 0, blocks: &[0], adapter: None, logit_count: 1 };
    let batch = TokenBatch::<LoadedAdapter> { segments: vec![prompt], next_tokens: None };
    assert_eq!(DecodeShape::new(&batch, &model.config, 100), None);
}

/// Returns the first GPU with its kernels open, or `None` without one.
fn gpu() -> Option<Device> {
    let settings = KernelSettings { cache: None, ..KernelSettings::new(Path::new("")) };
    let device = pl_kernels::cuda::first_gpu(&settings).unwrap();
    if device.is_none() {
        pl_testing::skip_or_fail(pl_testing::Requirement::Cuda, "no CUDA device");
    }
    device
}

/// Prompts, one of which follows a prefix in the cache, beside a sequence that continues by one token.
#[test]
fn batches_on_a_gpu_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    // The kit for machines with a GPU has other folders than the machine that built it.
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let folder = Path::new(&root).join("../../tests/data/tiny");
    let tokens: Vec<Vec<u32>> =
        [40, 33, 25].map(|length| (0..length).map(|i| (i * 37 + length * 11) % 290 + 3).collect()).into();
    let blocks: Vec<Vec<u32>> = (0..3).map(|index| vec![index * 3 + 2, index * 3, index * 3 + 1]).collect();
    // The prefix and the first tokens, then the batch.
    let batches: [&[(usize, usize, usize)]; 3] =
        [&[(0, 0, 17), (2, 0, 24)], &[(0, 17, 40), (1, 0, 33), (2, 24, 25)], &[(1, 0, 33), (0, 5, 40)]];
    let run = |device: Device, dtype: Dtype| -> Vec<Tensor> {
        let Model { config, weights, tokenizer, .. } = Model::load(&folder, device, dtype).unwrap();
        let base = BaseModel { config, weights, tokenizer, dtype };
        let executor = Libtorch::new(device, true, Arc::default());
        let model = executor.load_weights(&base, BLOCKS * BLOCK, true).unwrap();
        let mut cache = executor.new_cache(&base, BLOCKS).unwrap();
        let step = |batch: &&[(usize, usize, usize)]| {
            let segments = batch.iter().map(|(index, start, end)| BatchSegment {
                tokens: &tokens[*index][*start..*end],
                position: *start,
                blocks: &blocks[*index],
                adapter: None,
                logit_count: end - start,
            });
            let batch = TokenBatch { segments: segments.collect(), next_tokens: None };
            let step = tch::no_grad(|| executor.step(&model, &mut cache, &batch)).unwrap();
            step.hidden.to_device(Device::Cpu).to_kind(Kind::Float)
        };
        batches.iter().map(step).collect()
    };
    let (expected, got) = (run(Device::Cpu, Dtype::F32), run(gpu, Dtype::Bf16));
    for (got, expected) in got.iter().zip(&expected) {
        let scale = expected.abs().max().double_value(&[]);
        let gap = (got - expected).abs().max().double_value(&[]);
        assert!(gap < 0.05 * scale, "states up to {scale} differ by {gap}");
    }
}
