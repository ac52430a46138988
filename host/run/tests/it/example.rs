use std::path::Path;
use std::sync::Arc;

use pl_run::{
    CheckedWorkflow, DevicePreference, Embedded, Error, Host, NoProgress, Permissions, RunEnding, RunOptions,
    StopRequest, TrainingRun, select_device,
};

/// Trains two steps of the workflow in `file`, which may use all of the machine, on the CPU and writes the run to `folder`.
pub fn train_two_steps(embedded: Embedded, file: &Path, folder: &Path) -> Result<RunEnding, Error> {
    let host = Host::new(embedded, Arc::new(NoProgress))?.with_permissions(Permissions::all());
    let device = select_device(&host, DevicePreference::Cpu)?;
    let mut checked = CheckedWorkflow::open(&host, file, &[])?;
    if let Some(train) = &mut checked.workflow.train {
        train.steps = 2;
    }
    let options = RunOptions { folder: Some(folder.to_path_buf()), seed: 1, ..RunOptions::default() };
    let mut run = TrainingRun::start(&host, &checked, device, &options)?;
    run.train(&StopRequest::default())
}
