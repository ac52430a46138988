//! The kit is packed, unpacked and run on a CPU.

use pl_testing::{Requirement, skip_or_fail};

use super::*;
use crate::workspace_root;

#[test]
fn parts_have_a_limited_size_and_are_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..PART + 1000).map(|index| (index % 251) as u8).collect();
    let mut parts = Parts::new(folder.path());
    bytes.chunks(1 << 20).for_each(|chunk| parts.write_all(chunk).unwrap());
    parts.flush().unwrap();
    let sizes: Vec<usize> = parts.paths.iter().map(|path| path.metadata().unwrap().len() as usize).collect();
    assert_eq!(sizes, [PART, 1000]);
    let whole: Vec<u8> = parts.paths.iter().flat_map(|path| fs::read(path).unwrap()).collect();
    assert!(whole == bytes);
}

/// Everything but the benchmarks, which tests don't build, and stages that need torch's Python half.
#[test]
fn the_kit_runs_on_a_cpu_and_reports_what_it_did() {
    let root = workspace_root().unwrap();
    let program = root.join("target/release/pl-host");
    if nextest(&root).is_err() {
        return skip_or_fail(Requirement::Toolchains, "there is no cargo-nextest");
    }
    if model().is_err() {
        return skip_or_fail(Requirement::Model, "SmolLM2 is missing");
    }
    let folder = tempfile::tempdir().unwrap();
    let parts = write(&members(&root, &program, Vec::new()).unwrap(), &folder.path().join("parts")).unwrap();
    let out = folder.path().join("report");
    let stages =
        ["--stages", "machine,doctor,parity,models,sanitizer,profile", "--seconds", "300"].map(str::to_owned);
    dry_run(&root, &parts, folder.path(), &out, &stages).unwrap();
    let report: Value = serde_json::from_slice(&fs::read(out.join("report.json")).unwrap()).unwrap();
    let verdict = |name: &str| {
        let stages = report["stages"].as_array().unwrap();
        stages.iter().find(|stage| stage["stage"] == name).unwrap()["verdict"].clone()
    };
    assert_eq!(["doctor", "parity", "models"].map(verdict), ["passed"; 3], "{report:#}");
    assert_eq!(verdict("sanitizer"), "skipped");
    let figures = &report["stages"][3]["figures"]["qwen3-small"];
    assert_eq!(figures["steps"], 2);
    assert!(figures["trained_tokens_per_second"].as_f64().unwrap() > 0.0);
    assert!(report["not_reached"].as_array().unwrap().is_empty());
    let text = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(text.contains("| parity | passed |") && text.contains("## models"), "{text}");

    // A stage that has no time left, and one that does not exist.
    let late = ["--stages", "doctor", "--seconds", "1"].map(str::to_owned);
    let error = dry_run(&root, &parts, folder.path(), &out, &late).unwrap_err();
    assert!(error.to_string().contains("report.md"), "{error}");
    let text = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(text.contains("| doctor | not reached |"), "{text}");
    let unknown = ["--stages", "dance"].map(str::to_owned);
    assert!(dry_run(&root, &parts, folder.path(), &out, &unknown).is_err());
}
