//! Training with policies on a real vLLM: the main job's workflow, with SmolLM2.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pl_inference::{BaseModel, LlmEngine, LlmEngineConfig, PolicyWeights};
use pl_model::{Adapter, Model, Projection, TensorSet};
use pl_run::{
    CheckedWorkflow, DevicePreference, Embedded, Host, NoProgress, Permissions, RunEnding, RunOptions,
    StopRequest, TrainingRun, select_device,
};
use pl_servers::{
    Backoff, Fleet, FleetConfig, Probe, RemoteAdapter, RemoteModel, RemoteWeights, ServerError, ServerKind,
    SleepLevel, TokenRequest,
};
use pl_trainer::Trainer;
use pl_types::{Dtype, Sampling, Transition};
use tch::{Device, Tensor};

use crate::support::{metrics, parse, repository};
use crate::vllm_process::Vllm;

const STEPS: usize = 3;

/// Number of token ids of SmolLM2.
const VOCAB: u32 = 49152;

/// Difference of two log-probabilities of a token in f32 that is rounding.
const TOLERANCE: f32 = 1e-3;

#[test]
fn math_on_vllm_is_math_on_the_embedded_engine() {
    let folder = tempfile::tempdir().unwrap();
    let Some(base) = save_base(folder.path()) else { return };
    let Some(mut server) = Vllm::start(&base) else { return };
    let file = write_workflow(folder.path(), &base, &server.url());
    let out = folder.path().join("run");
    train(&file, &out, &mut server, &base);

    let steps = metrics(&out, "step");
    assert_eq!(steps.len(), STEPS);
    for line in &steps {
        assert_eq!((line["failures"].as_u64(), line["lost"].as_u64()), (Some(0), Some(0)), "{line}");
        for (name, policy) in line["policies"].as_object().unwrap() {
            let (gap, close) = (&policy["max_logprob_gap"], &policy["close_logprobs"]);
            eprintln!(
                "step {}, {name}: largest gap to the trainer {gap}, within 1e-4: {close}",
                line["step"]
            );
        }
    }
    let transitions = pl_record::read_transitions(&out.join("steps/000001.parquet")).unwrap();
    compare_updates(&file, &base, transitions);
    hold_three_versions(&server.url(), &base, folder.path());
}

#[test]
fn whole_models_on_vllm_are_those_of_the_folders() {
    let folder = tempfile::tempdir().unwrap();
    let Some(base) = save_base(folder.path()) else { return };
    let Some(mut server) = Vllm::start(&base) else { return };
    let load = || Model::load(&base, Device::Cpu, Dtype::F32).unwrap();
    let versions: Vec<(Model, RemoteModel)> = (1..=2)
        .map(|version| {
            let model = load();
            tch::no_grad(|| {
                for (name, mut tensor) in model.weights.parameters() {
                    if name.contains("_proj") {
                        let _ = tensor.g_mul_scalar_(1.0 + 0.1 * f64::from(version));
                    }
                }
            });
            let path = folder.path().join(format!("base@v{version}"));
            let Model { config, tokenizer, template, .. } = &model;
            model.weights.save_folder(&path, config, tokenizer, template, Dtype::F32).unwrap();
            let weights = RemoteWeights {
                name: "base".into(),
                folder: path,
                checksum: model.weights.checksum().unwrap(),
                delta: None,
                version: version as u64,
            };
            (model, RemoteModel::Weights(Arc::new(weights)))
        })
        .collect();
    let prompt: Arc<[u32]> =
        load().tokenizer.encode("Once there was a small town by the sea").unwrap().into();
    let host = host();
    let fleet = host.block_on(connect(&server.url(), RemoteModel::Named("base".into()), &prompt)).unwrap();
    for (version, (model, remote)) in versions.iter().enumerate() {
        host.block_on(fleet.load(remote)).unwrap();
        if version == 1 {
            // The next request loads the weights into the new process.
            server.restart(&base);
        }
        let engine = engine(model, &[None]);
        let pairs = host.block_on(async {
            let ask = |number: u8| rescored(&fleet, &engine, remote, &prompt, number, 0);
            futures::future::join_all((0..6).map(ask)).await
        });
        let pairs: Vec<(f32, f32)> = pairs.into_iter().flatten().collect();
        let (close, largest) = closeness(&pairs);
        eprintln!("whole model, {} tokens: {close} within 1e-3, largest difference {largest}", pairs.len());
        assert!(close >= 0.999, "{close} of {} tokens agree", pairs.len());
    }
}

/// Writes SmolLM2 as a Hugging Face folder. Returns `None` and reports the test as skipped if it is missing.
fn save_base(folder: &Path) -> Option<PathBuf> {
    let file = pl_toolchain::cache::root().unwrap().join("models/smollm2-135m/model.gguf");
    if !file.is_file() {
        let reason = "SmolLM2 is not in the cache (cargo xtask setup fetches it)";
        pl_testing::skip_or_fail(pl_testing::Requirement::Model, reason);
        return None;
    }
    let model = Model::load(&file, Device::Cpu, Dtype::F32).unwrap();
    let base = folder.join("base");
    model.weights.save_folder(&base, &model.config, &model.tokenizer, &model.template, Dtype::F32).unwrap();
    Some(base)
}

/// Writes the main job with both policies on a server.
fn write_workflow(folder: &Path, base: &Path, url: &str) -> PathBuf {
    let plugin = repository().join("target/release/plugins/math.wasm");
    let text = std::fs::read_to_string(repository().join("examples/math.mas")).unwrap();
    let text = text
        .replace("\"math.wasm\"", &format!("\"{}\"", plugin.display()))
        .replace(
            "\"smollm2-135m\"",
            &format!("\"{}\" {{ dtype = f32 }}\nserver fleet = \"{url}\"", base.display()),
        )
        .replace("lora { rank = 16; alpha = 32 }", "lora { rank = 16; alpha = 32 }; server = fleet");
    assert_eq!(text.matches("server = fleet").count(), 2);
    let file = folder.join("math.mas");
    std::fs::write(&file, text).unwrap();
    file
}

fn host() -> Host {
    let read = |name: &str| -> &'static [u8] {
        std::fs::read(repository().join("target/release/plugins").join(name)).unwrap().leak()
    };
    let (std_chat, python_worker) = (read("std_chat.wasm"), read("python.wasm.zst"));
    let embedded = Embedded { std_chat, python_worker, worker_arguments: None };
    Host::new(embedded, Arc::new(NoProgress)).unwrap().with_permissions(Permissions::all())
}

fn open(host: &Host, file: &Path) -> CheckedWorkflow {
    let steps = format!("train.steps={STEPS}");
    let overrides =
        [&steps, "train.tasks_per_step=1", "tool.max_tokens=48", "reason.max_tokens=32", "test.every=0"];
    CheckedWorkflow::open(host, file, &parse(&overrides)).unwrap()
}

/// Trains the workflow. After the first step the server is killed and started again.
fn train(file: &Path, out: &Path, server: &mut Vllm, base: &Path) {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let host = host();
            let checked = open(&host, file);
            let device = select_device(&host, DevicePreference::Cpu).unwrap();
            let options = RunOptions { folder: Some(out.to_path_buf()), seed: 1, ..RunOptions::default() };
            let mut run = TrainingRun::start(&host, &checked, device, &options).unwrap();
            run.train(&StopRequest::default()).unwrap()
        });
        let deadline = Instant::now() + Duration::from_secs(900);
        while !out.join("steps/000001.parquet").exists() {
            assert!(!running.is_finished() && Instant::now() < deadline, "no step was played");
            std::thread::sleep(Duration::from_millis(50));
        }
        server.restart(base);
        assert_eq!(running.join().unwrap(), RunEnding::Done);
    });
}

/// An engine with a policy per adapter, or the base model, of a model.
fn engine(model: &Model, adapters: &[Option<Adapter>]) -> LlmEngine {
    let base = BaseModel {
        config: model.config.clone(),
        weights: model.weights.shallow(),
        tokenizer: Arc::clone(&model.tokenizer),
        dtype: model.dtype.tensors().unwrap(),
    };
    let policy = |adapter: &Option<Adapter>| PolicyWeights {
        base: 0,
        adapter: adapter.as_ref().map(Adapter::copy),
        version: 0,
    };
    let policies = adapters.iter().map(policy).collect();
    LlmEngine::start(vec![base], policies, LlmEngineConfig::default()).unwrap()
}

/// Share of numbers that are close to others, and the largest difference.
fn closeness(pairs: &[(f32, f32)]) -> (f64, f32) {
    let close = pairs.iter().filter(|(a, b)| (a - b).abs() < TOLERANCE).count();
    let largest = pairs.iter().map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    (close as f64 / pairs.len() as f64, largest)
}

/// Checks that the first update is that of the embedded engine on the same tokens.
fn compare_updates(file: &Path, base: &Path, transitions: Vec<Transition>) {
    let host = host();
    let checked = open(&host, file);
    let load = || Model::load(base, Device::Cpu, Dtype::F32).unwrap();
    let starts = |from: &str| checked.folder.join(from).into();
    let trainer = || Trainer::new(&checked.workflow, starts, vec![load()], 1, Device::Cpu).unwrap();
    let adapters = |trainer: &Trainer| -> Vec<Adapter> {
        trainer.policies().into_iter().map(|served| served.adapter.unwrap().copy()).collect()
    };
    let (mut ours, mut theirs) = (trainer(), trainer());
    let start = adapters(&ours);
    let engine = engine(&load(), &adapters(&ours).into_iter().map(Some).collect::<Vec<_>>());
    let mut rescored = transitions.clone();
    for transition in &mut rescored {
        let scores = engine.score(
            transition.policy as usize,
            transition.prompt.clone().into(),
            transition.completion.clone().into(),
            transition.temperature,
        );
        transition.logprobs = host.block_on(scores).unwrap();
    }
    let pairs: Vec<(f32, f32)> = rescored
        .iter()
        .zip(&transitions)
        .flat_map(|(a, b)| a.logprobs.iter().copied().zip(b.logprobs.iter().copied()))
        .collect();
    let (close, largest) = closeness(&pairs);
    eprintln!("{} tokens: {close} within 1e-3, largest difference {largest}", pairs.len());
    assert!(pairs.len() > 100 && close >= 0.999, "{close} of {} tokens agree", pairs.len());

    ours.update(1, &rescored, None, &mut |_| {}).unwrap();
    theirs.update(1, &transitions, None, &mut |_| {}).unwrap();
    let norm = |a: &[Adapter], b: &[Adapter]| -> f64 {
        let sets = a.iter().zip(b).flat_map(|(a, b)| a.parameters().into_iter().zip(b.parameters()));
        let squares = sets.map(|((_, a), (_, b))| {
            let squares: Tensor = (a.detach() - b.detach()).square().sum(tch::Kind::Double);
            f64::try_from(squares).unwrap()
        });
        squares.sum::<f64>().sqrt()
    };
    let update = norm(&adapters(&ours), &start);
    let difference = norm(&adapters(&ours), &adapters(&theirs));
    eprintln!("the update has norm {update}; the difference of both {difference}");
    assert!(update > 0.0 && difference < 0.01 * update, "{difference} of {update}");
}

/// Checks completions of three versions of an adapter that are on the server at the same time.
fn hold_three_versions(url: &str, base: &Path, folder: &Path) {
    let model = Model::load(base, Device::Cpu, Dtype::F32).unwrap();
    let version = |version: u64| {
        let adapter =
            Adapter::new(&model.config, 16, 32.0, &[Projection::Q, Projection::V], [7; 32]).unwrap();
        tch::manual_seed(version as i64);
        for (name, mut tensor) in adapter.parameters() {
            if name.contains("lora_B") {
                let _ = tensor.normal_(0.0, 0.02 * version as f64);
            }
        }
        adapter
    };
    let adapters: Vec<Adapter> = (1..=3).map(version).collect();
    let remote: Vec<Arc<RemoteAdapter>> = adapters
        .iter()
        .enumerate()
        .map(|(at, adapter)| {
            let name = format!("coder@v{}", at + 1);
            let path = folder.join(&name);
            adapter.save(&path).unwrap();
            Arc::new(RemoteAdapter {
                name,
                folder: path,
                version: at as u64 + 1,
                base: "".into(),
                checksum: String::new(),
            })
        })
        .collect();
    let prompt: Arc<[u32]> = model.tokenizer.encode("Once there was a small town by the sea").unwrap().into();
    let engine = engine(&model, &adapters.into_iter().map(Some).collect::<Vec<_>>());
    let host = host();
    let pairs = host.block_on(async {
        let fleet = connect(url, RemoteModel::Base("".into()), &prompt).await.unwrap();
        for adapter in &remote {
            fleet.load(&RemoteModel::Adapter(Arc::clone(adapter))).await.unwrap();
        }
        let models: Vec<RemoteModel> =
            remote.iter().map(|adapter| RemoteModel::Adapter(Arc::clone(adapter))).collect();
        let ask =
            |number: usize| rescored(&fleet, &engine, &models[number % 3], &prompt, number as u8, number % 3);
        let pairs = futures::future::join_all((0..12).map(ask)).await;
        for adapter in &remote {
            fleet.unload_adapter(&adapter.name).await;
        }
        pairs
    });
    let pairs: Vec<(f32, f32)> = pairs.into_iter().flatten().collect();
    let (close, largest) = closeness(&pairs);
    eprintln!("three versions, {} tokens: {close} within 1e-3, largest difference {largest}", pairs.len());
    assert!(close >= 0.999, "{close} of {} tokens agree", pairs.len());
}

async fn connect(url: &str, model: RemoteModel, prompt: &Arc<[u32]>) -> Result<Fleet, ServerError> {
    let probe = Probe { model, prompt: Arc::clone(prompt), vocab: VOCAB };
    let config = FleetConfig {
        name: "fleet".into(),
        addresses: vec![url.to_owned()],
        kind: ServerKind::Vllm,
        key: None,
        timeout: Duration::from_secs(300),
        connections: 100,
        retries: 3,
        hedge_after: None,
        sleep: SleepLevel::Never,
        backoff: Backoff::default(),
    };
    Fleet::connect(config, vec![probe], Arc::new(|_| {})).await
}

/// Log-probabilities of a completion by a fleet, with those of the engine's policy for the same tokens.
async fn rescored(
    fleet: &Fleet,
    engine: &LlmEngine,
    model: &RemoteModel,
    prompt: &Arc<[u32]>,
    seed: u8,
    policy: usize,
) -> Vec<(f32, f32)> {
    let request = TokenRequest {
        model: model.clone(),
        prompt: Arc::clone(prompt),
        seeds: vec![[seed; 32]],
        max_tokens: 16,
        sampling: Sampling::default(),
        stop: Arc::new([]),
        stop_ids: Arc::new([]),
        top_logprobs: 0,
        vocab: VOCAB,
        needs_support: false,
    };
    let completion = fleet.generate(&request).await.unwrap().remove(0);
    let tokens: Arc<[u32]> = completion.tokens.into();
    let scores = engine.score(policy, Arc::clone(prompt), tokens, 1.0).await.unwrap();
    completion.logprobs.into_iter().zip(scores).collect()
}
