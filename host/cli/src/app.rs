//! Resources of a command: the host, the terminal, and the workflows that it opens.

use std::path::Path;
use std::sync::Arc;

use pl_run::{CheckedWorkflow, Embedded, Host, Session, SessionOptions, select_device};

use crate::arguments::common::{MachineArgs, WorkflowArgs};
use crate::diagnostics::{self, DiagnosticFormat};
use crate::exit::{CommandError, CommandResult};
use crate::progress::Terminal;

/// Resources of a command.
pub struct App {
    pub host: Host,
    pub terminal: Arc<Terminal>,
}

impl App {
    /// Starts the host.
    pub fn new(embedded: Embedded, terminal: Arc<Terminal>) -> Result<App, CommandError> {
        let host = Host::new(embedded, terminal.clone())?;
        Ok(App { host, terminal })
    }

    /// Opens a workflow and shows its warnings.
    pub fn open(&self, source: &WorkflowArgs) -> Result<CheckedWorkflow, CommandError> {
        let checked = CheckedWorkflow::open(&self.host, &source.file, &source.given.all()?)?;
        self.show_warnings(&checked)?;
        Ok(checked)
    }

    /// Shows the warnings of a workflow.
    pub fn show_warnings(&self, checked: &CheckedWorkflow) -> CommandResult {
        Ok(diagnostics::show(&checked.warnings, DiagnosticFormat::Human)?)
    }

    /// Opens a workflow with its own weights or those of a checkpoint.
    pub fn open_session(
        &self,
        source: &WorkflowArgs,
        machine: &MachineArgs,
        checkpoint: Option<&Path>,
    ) -> Result<(CheckedWorkflow, Session), CommandError> {
        let checked = self.open(source)?;
        let device = select_device(&self.host, machine.device.into())?;
        let options = SessionOptions { seed: machine.seed, checkpoint: checkpoint.map(Path::to_path_buf) };
        let session = Session::open(&self.host, &checked, device, &options)?;
        Ok((checked, session))
    }
}
