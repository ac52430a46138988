//! The memory estimate of a workflow whose model is on this machine.

use pl_run::{CheckedWorkflow, Error, MemoryEstimate};
use pl_sandbox::{DockerSettings, EMBEDDED_OVERHEAD, PROCESS_OVERHEAD};
use tch::Device;

use crate::support::{Workflow, host, parse};

fn estimate(overrides: &[&str], device: Device) -> MemoryEstimate {
    estimate_of("tree-l2.mas", overrides, device)
}

fn estimate_of(scenario: &str, overrides: &[&str], device: Device) -> MemoryEstimate {
    let workflow = Workflow::new(scenario, "");
    let checked = CheckedWorkflow::open(&host(), &workflow.file, &parse(overrides)).unwrap();
    checked.estimate_memory(device).unwrap()
}

fn part(estimate: &MemoryEstimate, name: &str) -> u64 {
    estimate.parts().iter().find(|(part, _)| *part == name).map_or(0, |(_, bytes)| *bytes)
}

#[test]
fn settings_change_the_parts_that_they_are_about() {
    let base = estimate(&[], Device::Cpu);
    assert_eq!(base.total(), base.parts().iter().map(|(_, bytes)| bytes).sum::<u64>());
    let cache = estimate(&["inference.kv_cache=32MiB"], Device::Cpu);
    assert_eq!(part(&cache, "KV cache"), 32 << 20);
    let budget = estimate(&["train.token_budget=64"], Device::Cpu);
    assert!(part(&budget, "activations") < part(&base, "activations"));
    assert_eq!(part(&budget, "adapters"), part(&base, "adapters"));
    // Only the CPU has the program itself, and is compared with the machine's memory.
    let gpu = estimate(&[], Device::Cuda(0));
    assert_eq!(part(&gpu, "program and plugins"), 0);
    assert!(gpu.machine().is_none() && gpu.warnings().is_empty());
    // What CUDA takes, and an eighth of what comes and goes.
    assert_eq!(part(&gpu, "CUDA and its workspaces"), 640 << 20);
    // Recorded steps and the adapters in their slots.
    let graphs = part(&gpu, "CUDA graphs");
    assert!(graphs >= 256 << 20, "{graphs}");
    let more = part(&estimate(&["inference.slots=256"], Device::Cuda(0)), "CUDA graphs");
    assert!(more > graphs, "{more}");
    let eager = estimate(&["inference.enforce_eager=true"], Device::Cuda(0));
    assert_eq!(part(&eager, "CUDA graphs"), 0);
    assert_eq!(part(&base, "CUDA graphs"), 0);
    let moving = |of: &MemoryEstimate| part(of, "activations") + part(of, "weight transfer");
    assert_eq!(part(&gpu, "allocator's reserve"), moving(&gpu) / 8);
    assert_eq!(part(&base, "allocator's reserve"), moving(&base) / 4);
}

/// Weights that are not trained are packed by default, and training and generation share them.
#[test]
fn packed_weights_are_there_once() {
    let weights = |scenario: &str, overrides: &[&str]| {
        let estimate = estimate_of(scenario, overrides, Device::Cpu);
        ["weights, training", "weights, generation"].map(|name| part(&estimate, name))
    };
    let [plain, copy] = weights("tree-l2.mas", &["base.dtype=f32"]);
    assert_eq!(copy, plain);
    let [packed, copy] = weights("tree-l2.mas", &["base.dtype=q8"]);
    assert_eq!(copy, 0);
    // 34 bytes for 32 weights.
    assert_eq!(packed, plain / 4 * 34 / 32);
    assert_eq!(weights("tree-l2.mas", &[]), weights("tree-l2.mas", &["base.dtype=file"]));
    assert_eq!(weights("tree-l2.mas", &[])[1], 0);
    // Policies that are whole models.
    assert_eq!(weights("flat-l3.mas", &[]), weights("flat-l3.mas", &["one.dtype=f32", "two.dtype=f32"]));
}

#[test]
fn a_reference_policy_takes_memory_if_it_is_a_copy() {
    let weights = |scenario: &str, overrides: &[&str]| {
        let estimate = estimate_of(scenario, overrides, Device::Cpu);
        (part(&estimate, "weights, training"), part(&estimate, "adapters"))
    };
    // Each policy trains a whole model, and keeps it as it was.
    let ((plain, _), (with_copies, _)) =
        (weights("flat-l3.mas", &[]), weights("flat-l3.mas", &["train.kl=0.1"]));
    assert_eq!(with_copies, 2 * plain);
    // The base without its adapter is there anyway.
    assert_eq!(weights("tree-l2.mas", &["train.kl=0.1"]), weights("tree-l2.mas", &[]));
}

#[test]
fn critics_of_their_own_take_memory() {
    let parts = |scenario: &str, overrides: &[&str]| {
        let ppo = [&["train.algorithm=ppo", "base.dtype=f32"][..], overrides].concat();
        let estimate = estimate_of(scenario, &ppo, Device::Cpu);
        ["weights, training", "adapters", "gradients and optimiser"].map(|name| part(&estimate, name))
    };
    let [weights, adapters, optimiser] = parts("tree-l2.mas", &[]);
    let [adapted_weights, with_adapter, adapted_optimiser] =
        parts("tree-l2.mas", &["first.critic.on=adapter", "first.critic.rank=4"]);
    assert_eq!(adapted_weights, weights);
    assert!(with_adapter > adapters && adapted_optimiser > optimiser);
    // A whole model, and the state of its optimiser.
    let [with_model, same_adapters, model_optimiser] = parts("tree-l2.mas", &["first.critic.on=model"]);
    assert_eq!(same_adapters, adapters);
    assert!(with_model > weights && with_model <= 2 * weights);
    assert!(model_optimiser >= optimiser + 3 * (with_model - weights));
}

#[test]
fn stale_rollouts_keep_versions_of_the_trained_weights() {
    let stale = |scenario, overrides: &[&str]| {
        part(&estimate_of(scenario, overrides, Device::Cpu), "weights of stale rollouts")
    };
    assert_eq!(stale("tree-l2.mas", &[]), 0);
    let one = stale("tree-l2.mas", &["train.schedule=one_step_off"]);
    assert!(one > 0);
    assert_eq!(stale("tree-l2.mas", &["train.schedule=async", "train.staleness=3"]), 3 * one);
    // Whole models are larger than adapters.
    assert!(stale("flat-l3.mas", &["train.schedule=one_step_off"]) > one);
}

/// Few programs take what they may: it is shown, and neither counted nor warned of.
#[test]
fn what_sandboxed_programs_may_take_is_shown_beside_the_estimate() {
    let base = estimate(&[], Device::Cpu);
    let jobs = ["sandbox.workers=4", "sandbox.memory=1GiB"];
    let with = |more: &[&str]| estimate(&[&jobs[..], more].concat(), Device::Cpu);
    assert_eq!(with(&[]).sandbox(), 4 * ((1 << 30) + EMBEDDED_OVERHEAD));
    assert_eq!(with(&["sandbox.isolation=process"]).sandbox(), 4 * ((1 << 30) + PROCESS_OVERHEAD));
    let docker = |endpoint: &str| {
        let endpoints = format!("sandbox.endpoints=[\"{endpoint}\"]");
        with(&["sandbox.backend=docker", &endpoints]).sandbox()
    };
    let default = DockerSettings::default();
    let container = (1 << 30) + default.container_memory() - default.limits.memory;
    for here in [
        "unix:///run/docker.sock",
        "tcp://localhost:2375",
        "tcp://engine.localhost:2375",
        "tcp://127.0.0.1:2375",
        "tcp://[::1]:2375",
        "tcp://[::ffff:127.0.0.1]:2375",
    ] {
        assert_eq!(docker(here), 4 * container, "{here}");
    }
    for other in ["tcp://other:2375", "tcp://localhost.other:2375", "tcp://10.0.0.1:2375"] {
        assert_eq!(docker(other), 0, "{other}");
    }

    let huge = estimate(&["sandbox.workers=1024", "sandbox.memory=4GiB"], Device::Cpu);
    assert_eq!((huge.total(), huge.warnings().len()), (base.total(), base.warnings().len()));
    assert!(huge.to_string().trim_end().ends_with(" more"), "{huge}");
    assert!(base.to_string().contains("sandbox, at most           640 MiB more"), "{base}");
    let gpu = estimate(&[], Device::Cuda(0));
    assert!(gpu.sandbox() == 0 && !gpu.to_string().contains("sandbox"), "{gpu}");
}

#[test]
fn a_workflow_that_does_not_fit_gets_a_warning() {
    let huge = estimate(&["inference.kv_cache=1000GiB"], Device::Cpu);
    if huge.machine().is_some() {
        let warnings = huge.warnings();
        assert!(warnings[0].message.contains("will take about 100"), "{}", warnings[0].message);
    }
    assert!(huge.to_string().contains("1000.0 GiB"), "{huge}");
}

#[test]
fn a_missing_model_is_an_error_that_names_it() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let checked = CheckedWorkflow::open(&host(), &workflow.file, &parse(&["base.source=./gone"])).unwrap();
    let error = checked.estimate_memory(Device::Cpu).unwrap_err();
    assert!(matches!(&error, Error::LocateModel { model, .. } if model == "base"), "{error}");
}
