//! Sampling and training give a token the same log-probability, for every weight format and for truncating samplers.

use std::path::Path;

use crate::support::{lock, metrics, run, scenario, succeed};

/// Returns the largest difference of any policy after its first update.
fn largest_gap(name: &str, out: &Path, sets: &[&str]) -> f64 {
    let more: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    succeed(&mut run(&scenario(name), out, &more));
    let (mut largest, mut seen) = (0.0f64, 0);
    for line in metrics(out).iter().filter(|line| line["kind"] == "step") {
        for policy in line["policies"].as_object().unwrap().values() {
            let moved = policy["version"].as_u64().unwrap() > 1;
            if let (true, Some(gap)) = (moved, policy["max_logprob_gap"].as_f64()) {
                largest = largest.max(gap);
                seen += 1;
            }
        }
    }
    assert!(seen >= 4, "{name} trains almost nothing");
    largest
}

#[test]
fn sixteen_bit_weights() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let gap = largest_gap("letters/half.mas", &out, &[]);
    assert!(gap < 1e-4, "{gap}");
    let lock = lock(&out);
    assert_eq!(lock["dtypes"], serde_json::json!({ "one": "f16", "two": "bf16" }));
    // The formats exchanged: a whole model in f16, an adapter on one in bf16.
    let gap =
        largest_gap("letters/half.mas", &folder.path().join("f16"), &["one.dtype=bf16", "two.dtype=f16"]);
    assert!(gap < 1e-4, "{gap}");
}

#[test]
fn truncating_samplers() {
    let folder = tempfile::tempdir().unwrap();
    let sets = ["alto.top_k=12", "alto.temperature=0.7", "bass.top_p=0.8", "bass.min_p=0.02"];
    for name in ["letters/tree-l2.mas", "letters/flat-l3.mas"] {
        let gap = largest_gap(name, &folder.path().join(name.replace('/', "-")), &sets);
        assert!(gap < 1e-4, "{name}: {gap}");
    }
}
