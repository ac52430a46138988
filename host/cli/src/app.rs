//! Resources of a command: the host, the terminal, and the workflows that it opens.

use std::path::Path;
use std::sync::Arc;

use pl_dsl::Override;
use pl_run::{CheckedWorkflow, Embedded, Error, Host, Permissions, Session, SessionOptions, select_device};

use crate::arguments::common::{MachineArgs, WorkflowArgs};
use crate::consent;
use crate::diagnostics::{self, DiagnosticFormat};
use crate::exit::{CommandError, CommandResult};
use crate::progress::Terminal;

/// Resources of a command.
pub struct App {
    pub host: Host,
    pub terminal: Arc<Terminal>,
}

impl App {
    /// Starts the host. Workflows have the permissions.
    pub fn new(
        embedded: Embedded,
        terminal: Arc<Terminal>,
        permissions: Permissions,
    ) -> Result<App, CommandError> {
        let host = Host::new(embedded, terminal.clone())?.with_permissions(permissions);
        Ok(App { host, terminal })
    }

    /// Opens a workflow and shows its warnings.
    pub fn open(&self, source: &WorkflowArgs) -> Result<CheckedWorkflow, CommandError> {
        let checked = CheckedWorkflow::open(&self.host, &source.file, &source.given.all()?)?;
        self.show_warnings(&checked)?;
        Ok(checked)
    }

    /// Opens a workflow that is going to be played: what it needs of the machine must be allowed, or the user is asked.
    pub fn open_to_play(&self, source: &WorkflowArgs) -> Result<CheckedWorkflow, CommandError> {
        let checked = self.open_with_consent(&source.file, &source.given.all()?)?.without_cluster();
        self.with_consent(|| checked.require_permissions())?;
        Ok(checked)
    }

    /// Opens a workflow, asks for the files outside of its folder that it is written in, and shows its warnings.
    pub fn open_with_consent(
        &self,
        file: &Path,
        overrides: &[Override],
    ) -> Result<CheckedWorkflow, CommandError> {
        let checked = self.with_consent(|| CheckedWorkflow::open(&self.host, file, overrides))?;
        self.show_warnings(&checked)?;
        Ok(checked)
    }

    /// Does something for which a workflow may need permissions. Asks for them at the terminal and tries again.
    pub fn with_consent<T>(&self, mut act: impl FnMut() -> Result<T, Error>) -> Result<T, CommandError> {
        loop {
            match act() {
                Err(Error::NotAllowed { workflow, requests }) if consent::ask(&workflow, &requests)? => {
                    self.host.allow(&requests);
                }
                Err(Error::Workflow(errors))
                    if !errors.refused.is_empty() && consent::ask("the workflow", &errors.refused)? =>
                {
                    self.host.allow(&errors.refused);
                }
                result => return Ok(result?),
            }
        }
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
        let checked = self.open_to_play(source)?;
        let device = select_device(&self.host, machine.device.into())?;
        let options = SessionOptions {
            seed: machine.seed,
            checkpoint: checkpoint.map(Path::to_path_buf),
            ..SessionOptions::default()
        };
        let session = Session::open(&self.host, &checked, device, &options)?;
        Ok((checked, session))
    }
}
