//! Explanations of the published algorithms.

use std::fmt::Write as _;

use crate::settings::PublishedAlgorithm;
use crate::workflow::objective::{Advantage, KlPlace, Objective, TrustRegion};

/// Formula of an algorithm, the choices that it stands for, and its differences from other versions.
pub fn page(algorithm: &PublishedAlgorithm) -> String {
    let PublishedAlgorithm { word, source, summary, formula, differences, objective } = algorithm;
    let mut out = format!(
        "**algorithm = {word}**: {summary}  \n{source}.\n\n```text\n{formula}\n```\n\nIt stands for:\n"
    );
    for (title, keys) in choices(objective) {
        let settings: Vec<String> =
            keys.iter().filter_map(|key| Some(format!("`{key} = {}`", objective.value_of(key)?))).collect();
        // Writing to a string never fails.
        let _ = write!(out, "\n- {title}: {}", settings.join(", "));
    }
    let _ = write!(out, "\n\n{differences}");
    out
}

/// Settings that make up an objective, by choice; without those that have no effect.
fn choices(objective: &Objective) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut advantage = vec!["advantage"];
    if !matches!(objective.advantage, Advantage::Gae | Advantage::Success) {
        advantage.push("returns");
    }
    if objective.advantage == Advantage::Group {
        advantage.extend(["group_by", "baseline"]);
    }
    advantage.push("scale");
    let mut region = vec!["trust_region"];
    if objective.trust_region != TrustRegion::None {
        region.extend(["clip_low", "clip_high"]);
    }
    if objective.trust_region == TrustRegion::Clip {
        region.push("dual_clip");
    }
    let mut others = vec!["kl"];
    if objective.kl > 0.0 || objective.kl_in == KlPlace::Reward {
        others.push("kl_in");
    }
    others.push("overlong");
    vec![
        ("advantage", advantage),
        ("ratio", vec!["ratio", "old_logprobs"]),
        ("trust region", region),
        ("correction", vec!["correction"]),
        ("aggregation", vec!["aggregation"]),
        ("besides", others),
    ]
}
