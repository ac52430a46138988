//! Models, data sets and files that a workflow names and that are not there, as diagnostics with their places.

use pl_dsl::workflow::{CorpusSource, Tasks, Workflow};
use pl_dsl::{BlockKind, Diagnostic, DiagnosticCode, Places, Severity, suggest};

use crate::data;
use crate::error::locate::LocateError;
use crate::locate;
use crate::workflow::CheckedWorkflow;

/// Block of a setting, the block's name, and the key.
type SettingOf<'a> = (BlockKind, &'a str, &'static str);

/// Returns errors about sources of models and names of data sets that are wrong on every machine.
pub(crate) fn unknown_names(workflow: &Workflow, places: &Places) -> Vec<Diagnostic> {
    let error = |setting: SettingOf<'_>, message: String, help: Option<String>| {
        let found = places.diagnostic(setting, DiagnosticCode::NotFound, Severity::Error, message);
        Diagnostic { help, ..found }
    };
    let mut found = Vec::new();
    for model in &workflow.models {
        if let Err(why) = locate::check_model_source(&model.source) {
            let setting = (BlockKind::Model, model.name.as_str(), "source");
            found.push(error(setting, format!("model {}: {why}", model.name), None));
        }
    }
    for (setting, tasks) in tasks(workflow) {
        let Tasks::Named(name) = tasks else { continue };
        let Err(why) = pl_data::find(&name.data, &name.split) else { continue };
        let (message, help) = match why {
            pl_data::Error::UnknownData { name, known } => {
                (format!("there is no data set `{name}`"), suggest(&name, "the data sets are", known))
            }
            pl_data::Error::UnknownSplit { data, split, splits } => (
                format!("the data set `{data}` has no split `{split}`"),
                suggest(&split, "its splits are", splits),
            ),
            why => (why.to_string(), None),
        };
        found.push(error(setting, message, help));
    }
    found
}

/// Returns warnings about models, adapters, tasks and corpora that are not on this machine and that a run does not fetch.
/// Files that may not be read are not looked for.
pub(crate) fn missing_files(checked: &CheckedWorkflow) -> Vec<Diagnostic> {
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
            Tasks::File(path) => checked.task_file(path).map(drop),
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

/// Returns the tasks of all environments and evaluations. Those that several share are listed once.
fn tasks(workflow: &Workflow) -> Vec<(SettingOf<'_>, &Tasks)> {
    let environments = workflow.scenarios.iter().map(|scenario| &scenario.environment);
    let environments = environments.map(|one| (BlockKind::Environment, one.name.as_str(), &one.tasks));
    let evaluations = workflow.evaluations.iter();
    let evaluations = evaluations.map(|one| (BlockKind::Evaluate, one.block(), &one.tasks));
    let mut listed: Vec<(SettingOf<'_>, &Tasks)> = Vec::new();
    for (block, name, tasks) in environments.chain(evaluations) {
        if listed.iter().all(|(_, known)| *known != tasks) {
            listed.push(((block, name, "tasks"), tasks));
        }
    }
    listed
}

/// Returns the reason for which something is not there. Returns `None` if a run fetches it, or if it may not be read.
fn reason<T>(located: Result<T, LocateError>) -> Option<String> {
    match located {
        Ok(_) | Err(LocateError::NotFetched | LocateError::NotAllowed(_)) => None,
        Err(why) => Some(why.to_string()),
    }
}
