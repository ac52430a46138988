//! Short runs of SmolLM2.

#[cfg(target_os = "linux")]
use std::{process::Stdio, time::Duration};

use crate::support::{metrics, pl_host, repository, run, scenario, stderr, stdout, succeed};

/// Sampling and training give a token the same log-probability, also with adapters after three or more updates.
#[test]
fn sampling_and_training_agree_on_log_probs() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    succeed(&mut run(&scenario("letters/smollm.mas"), &out, &[]));
    let (mut tokens, mut close) = (0.0, 0.0);
    for line in metrics(&out).iter().filter(|line| line["step"].as_u64().unwrap() > 3) {
        for policy in line["policies"].as_object().unwrap().values() {
            assert!(policy["version"].as_u64().unwrap() > 3);
            let trained = policy["trained_tokens"].as_f64().unwrap();
            tokens += trained;
            close += trained * policy["close_logprobs"].as_f64().unwrap();
        }
    }
    assert!(tokens > 300.0, "only {tokens} tokens were trained on");
    assert!(close / tokens >= 0.999, "{close} of {tokens} tokens agree");
}

/// Two steps of the main job, as shipped except for the lengths.
#[test]
fn math_trains_and_leaves_a_whole_run_folder() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let sets = [
        "train.steps=2",
        "train.tasks_per_step=1",
        "tool.max_tokens=48",
        "reason.max_tokens=32",
        "test.limit=4",
    ];
    let more: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    succeed(&mut run(&repository().join("examples/math.mas"), &out, &more));
    for name in [
        "workflow.mas",
        "workflow.json",
        "lock.json",
        "timings.jsonl",
        "steps/000001.parquet",
        "steps/000002.parquet",
        "checkpoints/step-00000002/policies/coder/adapter_config.json",
        "curves.png",
    ] {
        assert!(out.join(name).is_file(), "no {name}");
    }
    let kinds: Vec<_> = metrics(&out).iter().map(|line| line["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["evaluation", "step", "step", "evaluation"]);
}

/// The memory that a run estimates at its start is more than it uses, and not much more.
#[cfg(target_os = "linux")]
#[test]
fn a_run_stays_within_the_memory_that_it_estimates() {
    let folder = tempfile::tempdir().unwrap();
    // A KV cache small enough to be used fully.
    let sets = ["train.steps=2", "test.every=2", "test.limit=16", "inference.kv_cache=96MiB"];
    let more: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let mut command = run(&repository().join("examples/math-l0.mas"), &folder.path().join("run"), &more);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0.0;
    while child.try_wait().unwrap().is_none() {
        let now = std::fs::read_to_string(&status).unwrap_or_default();
        let line = now.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        if let Some(kib) = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()) {
            peak = kib / f64::from(1 << 20);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let message = stderr(&output);
    assert!(output.status.success(), "{message}");
    let estimate = message.lines().find_map(|line| line.trim().strip_prefix("in all, about")).unwrap();
    let estimate: f64 = estimate.trim().split_once(" GiB").unwrap().0.parse().unwrap();
    assert!(peak > 1.0, "the peak was missed: {peak} GiB");
    assert!(peak < estimate && estimate < 1.5 * peak, "{peak} GiB at the peak, {estimate} GiB estimated");
}

/// A question in plain words, without a reference answer.
#[test]
fn play_takes_a_question_by_hand() {
    let file = repository().join("examples/math-l0.mas");
    let question = "Ann has 2 pens and buys 3 more. How many pens does Ann have?";
    let output = succeed(pl_host().arg("play").arg(file).args(["--device", "cpu", "--task", question]));
    let message = stdout(&output);
    assert!(message.contains(question) && message.contains("reason · turn 1"), "{message}");
    assert!(message.contains("not solved"), "{message}");
}
