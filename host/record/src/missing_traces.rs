//! Trace files that a run should have and that are missing.

use std::path::Path;

use serde::Deserialize;

use crate::error::Error;
use crate::folder::METRICS;
use crate::jsonl::read_jsonl;
use crate::schedule::SCHEDULE;
use crate::traces::{TraceFile, Traces};

/// Line of `metrics.jsonl`, as far as it says what was played.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PlayedPart {
    kind: String,
    step: u64,
    /// Name of the evaluation.
    name: Option<String>,
}

/// Returns the trace files that are missing in a run folder: those of the steps and evaluations that `metrics.jsonl` has. Of a
/// run whose updates train on the tasks that have ended, these are the files of its evaluations alone: some steps may not have
/// ended.
///
/// # Errors
/// [`Error::Io`] or [`Error::Line`] if the folder of traces or `metrics.jsonl` can't be read.
pub fn missing_traces(run: &Path) -> Result<Vec<TraceFile>, Error> {
    let path = run.join(METRICS);
    let played: Vec<PlayedPart> = if path.exists() { read_jsonl(&path)? } else { Vec::new() };
    let ends_late = run.join(SCHEDULE).exists();
    let files = Traces::for_run(run).files()?;
    let mut missing: Vec<TraceFile> = Vec::new();
    for PlayedPart { kind, step, name } in played {
        let evaluation = match kind.as_str() {
            "step" if !ends_late => None,
            "evaluation" if name.is_some() => name,
            _ => continue,
        };
        let file = TraceFile { step, evaluation };
        if files.binary_search(&file).is_err() {
            missing.push(file);
        }
    }
    missing.sort();
    missing.dedup();
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_files_of_steps_and_evaluations_in_the_metrics_are_expected() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        let lines = "{\"kind\":\"evaluation\",\"step\":0,\"name\":\"test\"}\n{\"kind\":\"step\",\"step\":1}\n\
                     {\"kind\":\"policy\",\"step\":1}\n{\"kind\":\"step\",\"step\":2}\n";
        fs::write(run.join(METRICS), lines).unwrap();
        let traces = Traces::for_run(run);
        let step = |step| TraceFile { step, evaluation: None };
        fs::create_dir(traces.folder()).unwrap();
        fs::write(traces.path(&step(1)), "").unwrap();
        let evaluation = TraceFile { step: 0, evaluation: Some("test".to_owned()) };
        assert_eq!(missing_traces(run).unwrap(), [evaluation.clone(), step(2)]);
        fs::write(run.join(SCHEDULE), "").unwrap();
        assert_eq!(missing_traces(run).unwrap(), [evaluation]);
    }
}
