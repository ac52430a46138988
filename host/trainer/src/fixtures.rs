//! Fixtures of this crate's tests: a tiny random model, a workflow's `train` block, artificial transitions.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pl_dsl::settings::AT_GRPO;
use pl_dsl::workflow::objective::{
    Advantage, Algorithm, Baseline, Critic, CriticBase, Objective, Optimizer, PolicyTraining, Scale,
};
use pl_dsl::workflow::{
    BatchOrder, Environment, Faults, InFlight, Inference, Layout, Lora, LrSchedule, Policy, Reward, Rollout,
    Sandbox, SandboxBackend, Scenario, Schedule, Tasks, Train, Turns, Workflow,
};
use pl_model::{
    Adapter, ChatTemplate, Config, Family, Layer, Model, Projection, RopeScaling, TensorSet, Tokenizer,
    Weights,
};
use pl_types::{Dtype, Group, Key, SourcePath, Transition};
use serde_json::Map;
use tch::{Device, Kind, Tensor};

use crate::learner::NewPolicy;

#[path = "../../model/tests/it/reference.rs"]
mod reference;

/// Vocabulary size of the tiny models.
pub const VOCABULARY: i64 = 61;

/// Paths of `from` below a folder.
pub fn starts_below(folder: &Path) -> impl Fn(&str) -> SourcePath {
    |from| folder.join(from).into()
}

/// Settings of most tests that all policies share.
pub fn train() -> Train {
    Train {
        rollout: Rollout::Tree,
        samples: 4,
        tasks_per_step: 2,
        max_refills: 0,
        faults: Faults::Redraw,
        fault_penalty: 1.0,
        steps: 10,
        schedule: Schedule::Sync,
        staleness: 0,
        order: BatchOrder::Keys,
        in_flight: InFlight::Off,
        epochs: 1,
        mini_batches: 1,
        shuffle_rewards: false,
        token_budget: Some(32),
        data_parallel: 1,
        gradient_checkpointing: false,
        deterministic: false,
        record_tokens: true,
        checkpoint_every: 1,
        keep_checkpoints: 2,
        episodes: 4,
    }
}

/// The objective `at_grpo`.
pub fn objective() -> Objective {
    Objective { lambda: 1.0, correction_low: 0.5, ..AT_GRPO }
}

/// A new policy named after its index.
pub fn policy_to_train(policy: usize, training: PolicyTraining) -> NewPolicy {
    NewPolicy {
        policy,
        name: format!("p{policy}"),
        training,
        max_tokens: 64,
        has_start: false,
        critic_model: None,
    }
}

/// The optimiser of most tests.
pub fn optimizer() -> Optimizer {
    Optimizer {
        learning_rate: 1e-2,
        lr_schedule: LrSchedule::Constant,
        warmup: 0,
        weight_decay: 0.0,
        beta1: 0.9,
        beta2: 0.999,
        max_grad_norm: 1.0,
    }
}

/// Training with `at_grpo` in every step.
pub fn training() -> PolicyTraining {
    PolicyTraining {
        objective: objective(),
        optimizer: optimizer(),
        freeze: 0,
        update_every: 1,
        steps_per_update: 1,
        staleness: None,
        critic: None,
    }
}

/// Training with `ppo` and a critic in every step.
pub fn ppo(critic: Critic) -> PolicyTraining {
    let objective = Objective {
        algorithm: Algorithm::Ppo,
        advantage: Advantage::Gae,
        baseline: Baseline::None,
        scale: Scale::Batch,
        clip_high: 0.2,
        ..objective()
    };
    PolicyTraining { objective, critic: Some(critic), ..training() }
}

/// A critic of some kind on the policy's model. Its adapter, if it has one, differs in rank from those of policies.
pub fn critic(on: CriticBase) -> Critic {
    let targets = ["q", "v", "o", "up", "down"].map(str::to_owned).to_vec();
    let lora = (on == CriticBase::Adapter).then_some(Lora { rank: 2, alpha: 3.0, targets });
    Critic { on, model: None, lora, learning_rate: 1e-2, warmup: 0, clip: 0.5, weight: 0.3 }
}

/// Config of a model small enough for thousands of passes a second, with grouped heads.
pub fn config(tied: bool) -> Config {
    Config {
        family: Family::Llama,
        vocab: VOCABULARY,
        hidden: 16,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        ffn: 24,
        rms_eps: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        max_positions: 128,
        tied,
        bos: None,
        eos: vec![0],
    }
}

/// Random weights of a config; equal seeds give equal weights.
pub fn weights(config: &Config, seed: i64) -> Weights {
    // All threads of a test run share libtorch's generator.
    static GENERATOR: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _guard = GENERATOR.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    tch::manual_seed(seed);
    let matrix = |out: i64, fan_in: i64| {
        Tensor::randn([out, fan_in], (Kind::Float, Device::Cpu)) * (1.5 / (fan_in as f64).sqrt())
    };
    let gain = || Tensor::rand([config.hidden], (Kind::Float, Device::Cpu)) * 0.4 + 0.8;
    let (h, q, kv) = (config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim);
    let layer = |_| Layer {
        attention_norm: gain(),
        q: matrix(q, h).into(),
        k: matrix(kv, h).into(),
        v: matrix(kv, h).into(),
        q_bias: None,
        k_bias: None,
        v_bias: None,
        q_norm: None,
        k_norm: None,
        o: matrix(h, q).into(),
        ffn_norm: gain(),
        gate: matrix(config.ffn, h).into(),
        up: matrix(config.ffn, h).into(),
        down: matrix(h, config.ffn).into(),
    };
    Weights {
        embed: matrix(config.vocab, h).into(),
        layers: (0..config.layers).map(layer).collect(),
        norm: gain(),
        head: (!config.tied).then(|| matrix(config.vocab, h).into()),
    }
}

/// An adapter on all projections whose B factors are not zero, so that A has a gradient.
pub fn adapter(config: &Config, seed: u8) -> Adapter {
    let adapter = Adapter::new(config, 3, 6.0, &Projection::ALL, [seed; 32]).unwrap();
    for (index, (name, mut tensor)) in adapter.parameters().into_iter().enumerate() {
        if name.contains("lora_B") {
            let count = tensor.numel();
            let values: Vec<f32> =
                (0..count).map(|i| ((i * 7 + index * 13 + usize::from(seed)) as f32).sin() * 0.2).collect();
            tch::no_grad(|| tensor.copy_(&Tensor::from_slice(&values).view_as(&tensor)));
        }
    }
    adapter
}

/// A complete tiny model in which every token is a word.
pub fn model(tied: bool, seed: i64) -> Model {
    let config = config(tied);
    let vocabulary: Map<String, serde_json::Value> =
        (0..VOCABULARY).map(|id| (format!("w{id}"), id.into())).collect();
    let tokenizer = serde_json::json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": null,
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "w0" },
    });
    let tokenizer = Tokenizer::from_json("tiny", tokenizer.to_string().as_bytes(), &[0]).unwrap();
    let template = ChatTemplate::new("tiny", None, None, None).unwrap();
    Model {
        weights: weights(&config, seed),
        config,
        tokenizer: Arc::new(tokenizer),
        template: Arc::new(template),
        dtype: Dtype::F32.into(),
        hash: format!("tiny-{seed}"),
    }
}

/// A policy of a workflow's only model.
pub fn policy(name: &str, lora: bool) -> Policy {
    let targets = ["q", "k", "v", "o", "gate", "up", "down"].map(str::to_owned).to_vec();
    let lora = lora.then_some(Lora { rank: 3, alpha: 6.0, targets });
    Policy {
        name: name.to_owned(),
        model: 0,
        lora,
        train: true,
        from: None,
        server: None,
        served: None,
        devices: Default::default(),
        training: Some(training()),
    }
}

/// A workflow with the parts that a trainer uses.
pub fn workflow(mut policies: Vec<Policy>, train: Option<Train>) -> Workflow {
    for policy in policies.iter_mut().filter(|policy| !policy.train || train.is_none()) {
        policy.training = None;
    }
    let (plugin, item, settings) = (0, String::new(), Map::new());
    let models = policies.iter().map(|policy| policy.model).max().unwrap_or(0) + 1;
    Workflow {
        cluster: None,
        designers: Vec::new(),
        name: "test".into(),
        params: Default::default(),
        plugins: Vec::new(),
        models: (0..models)
            .map(|i| pl_dsl::workflow::Model { name: format!("m{i}"), source: String::new(), dtype: None })
            .collect(),
        servers: Vec::new(),
        corpora: Vec::new(),
        policies,
        agents: Vec::new(),
        scenarios: vec![Scenario {
            designer: None,
            name: None,
            weight: 1.0,
            environment: Environment {
                name: String::new(),
                plugin,
                item: item.clone(),
                tasks: Tasks::Generated { split: "train".into(), level: 1 },
                curriculum: None,
                corpora: Vec::new(),
                drawings: false,
                settings: settings.clone(),
            },
            turns: Turns { max: 1, start: Vec::new(), nodes: Vec::new() },
            reward: Reward {
                name: String::new(),
                plugin,
                item,
                team: 1.0,
                local: 1.0,
                scores_end: false,
                settings,
            },
        }],
        sandbox: Sandbox {
            backend: SandboxBackend::Wasm,
            timeout: Duration::from_secs(1),
            memory: 1,
            output: 1,
            workers: 1,
            processes: None,
            docker: None,
        },
        inference: Inference { kv_cache: Some(1), slots: 1, threads: None, enforce_eager: false },
        train,
        evaluations: Vec::new(),
        layout: Layout::L0,
    }
}

/// An artificial transition: tokens are derived from `index`, log-probabilities belong to no model.
pub fn transition(policy: u32, index: u32, prompt: usize, completion: usize) -> Transition {
    let token =
        |i: usize| ((i * 17 + index as usize * 29 + policy as usize * 11 + 5) % VOCABULARY as usize) as u32;
    Transition {
        key: Key { step: 0, task: index, sample: 0, node_visit: 0, agent: policy, branch: 0, call: 0 },
        group: Group { step: 0, task: index, agent: policy, turn: 0, node_visit: Some(0) },
        task_id: format!("t{index}"),
        agent: format!("agent{policy}"),
        policy,
        turn: 0,
        prompt: (0..prompt).map(token).collect(),
        completion: (prompt..prompt + completion).map(token).collect(),
        logprobs: (0..completion).map(|i| -4.0 - (i as f32 + index as f32).sin() * 0.15).collect(),
        support: None,
        temperature: 1.0,
        max_tokens: 64,
        cut_off: false,
        final_call: true,
        versions: vec![0],
        version: 0,
        version_changes: Vec::new(),
        team_reward: 0.0,
        local_reward: 0.0,
        reward: 0.0,
        success: false,
        chosen: true,
        action: "null".into(),
        state: String::new(),
        next_prompt: None,
        values: None,
    }
}

/// Asserts that two tensors have one shape and differ nowhere by more than `tolerance`, relative to the
/// largest element expected if that is above 1.
pub fn close(got: &Tensor, expected: &Tensor, tolerance: f64) {
    assert_eq!(got.size(), expected.size());
    let largest = |tensor: Tensor| tensor.abs().max().double_value(&[]);
    let gap = largest(got.detach() - expected.detach()) / largest(expected.detach()).max(1.0);
    assert!(gap <= tolerance, "they differ by {gap}");
}

/// Hidden states `[tokens, H]` from which a transition's completion tokens are predicted, by a reference
/// implementation: one sequence at a time, with autograd.
pub fn plain_hidden(config: &Config, weights: &Weights, adapter: Option<&Adapter>, t: &Transition) -> Tensor {
    let tokens: Vec<u32> = t.prompt.iter().chain(&t.completion).copied().collect();
    let hidden = reference::hidden_states(config, weights, adapter, &tokens);
    hidden.narrow(0, t.prompt.len() as i64 - 1, t.completion.len() as i64)
}

/// Log-probabilities `[tokens, V]` of the distributions that a transition's completion was sampled from. A
/// reference implementation: one sequence at a time, all logits at once, with autograd.
pub fn plain_distributions(
    config: &Config,
    weights: &Weights,
    adapter: Option<&Adapter>,
    t: &Transition,
) -> Tensor {
    let hidden = plain_hidden(config, weights, adapter, t);
    let logits = hidden.matmul(&weights.unembed().to_tensor().unwrap().tr()) / t.temperature;
    let Some(support) = &t.support else { return logits.log_softmax(-1, logits.kind()) };
    let truncated: Vec<bool> = support
        .iter()
        .flat_map(|ids| (0..config.vocab as u32).map(|id| !ids.is_empty() && !ids.contains(&id)))
        .collect();
    let truncated = Tensor::from_slice(&truncated).view_as(&logits);
    // Low enough for a probability of 0, but finite, so that 0 times it is not NaN.
    logits.masked_fill(&truncated, -1e30).log_softmax(-1, logits.kind())
}

/// Log-probabilities of a transition's completion tokens by the same reference implementation.
pub fn plain_logprobs(
    config: &Config,
    weights: &Weights,
    adapter: Option<&Adapter>,
    t: &Transition,
) -> Tensor {
    let ids: Vec<i64> = t.completion.iter().map(|&id| i64::from(id)).collect();
    let ids = Tensor::from_slice(&ids).unsqueeze(1);
    plain_distributions(config, weights, adapter, t).gather(1, &ids, false).squeeze_dim(1)
}

/// Sets a transition's log-probabilities to those under a policy, each changed by up to `spread`.
pub fn sampled_from(
    config: &Config,
    weights: &Weights,
    adapter: Option<&Adapter>,
    mut t: Transition,
    spread: f32,
) -> Transition {
    let logprobs = tch::no_grad(|| plain_logprobs(config, weights, adapter, &t));
    t.logprobs = Vec::try_from(&logprobs).unwrap();
    for (i, logprob) in t.logprobs.iter_mut().enumerate() {
        *logprob = (*logprob + spread * ((i as f32 + 1.0) * 2.4 + t.key.task as f32).sin()).min(0.0);
    }
    t
}

/// Returns true if two lists of named tensors are bit-identical.
pub fn same_bits(a: &[(String, Tensor)], b: &[(String, Tensor)]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|((n1, t1), (n2, t2))| {
            n1 == n2 && t1.size() == t2.size() && t1.view_dtype(Kind::Int).equal(&t2.view_dtype(Kind::Int))
        })
}
