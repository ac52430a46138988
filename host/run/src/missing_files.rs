//! Models, adapters and files that a workflow names and that are not on this machine, as diagnostics with their places.

use pl_dsl::workflow::{CorpusSource, Tasks};
use pl_dsl::{BlockKind, Diagnostic, DiagnosticCode, Severity};

use crate::data;
use crate::error::locate::LocateError;
use crate::locate;
use crate::unknown_names::{SettingOf, tasks};
use crate::workflow::CheckedWorkflow;

impl CheckedWorkflow {
    /// Adds warnings about models, adapters, tasks and corpora that are not on this machine and that a run does not fetch, so
    /// that it would stop. Files that may not be read are not looked for.
    pub fn warn_of_missing_files(&mut self) {
        let missing = missing_files(self);
        self.warnings.add(missing);
    }
}

fn missing_files(checked: &CheckedWorkflow) -> Vec<Diagnostic> {
    let CheckedWorkflow { workflow, folder, places, .. } = checked;
    let mut found: Vec<(SettingOf<'_>, String)> = Vec::new();
    for model in &workflow.models {
        if let Some(why) = reason(checked.model_on_disk(model)) {
            let setting = (BlockKind::Model, model.name.as_str(), "source");
            found.push((setting, format!("model {}: {why}", model.name)));
        }
    }
    for policy in &workflow.policies {
        let Some(path) = policy.from.as_ref().map(|from| folder.join(from)) else { continue };
        if checked.check_read(&path).is_ok() && !path.exists() {
            let setting = (BlockKind::Policy, policy.name.as_str(), "from");
            found.push((setting, format!("policy {}: {}", policy.name, LocateError::NoFile(path))));
        }
    }
    for (setting, tasks) in tasks(workflow) {
        let located = match tasks {
            Tasks::File(path) => checked.task_sources(path).map(drop),
            Tasks::Named(name) => data::check_available(name),
            Tasks::Generated { .. } => Ok(()),
        };
        found.extend(reason(located).map(|why| (setting, why)));
    }
    for corpus in workflow.used_corpora() {
        let CorpusSource::File(file) = &corpus.source else { continue };
        if let Some(why) = reason(locate::corpus(checked.plugins.reads(), folder, &file.path)) {
            let setting = (BlockKind::Corpus, corpus.name.as_str(), "source");
            found.push((setting, format!("corpus {}: {why}", corpus.name)));
        }
    }
    let warning =
        |(setting, message)| places.diagnostic(setting, DiagnosticCode::NotFound, Severity::Warning, message);
    found.into_iter().map(warning).collect()
}

/// Returns the reason for which something is not there. Returns `None` if a run fetches it, or if it may not be read.
fn reason<T>(located: Result<T, LocateError>) -> Option<String> {
    match located {
        Ok(_) | Err(LocateError::NotFetched | LocateError::NotAllowed(_)) => None,
        Err(why) => Some(why.to_string()),
    }
}
