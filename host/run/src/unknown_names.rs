//! Names that a workflow uses and that are wrong on every machine, as diagnostics with their places.

use pl_dsl::workflow::{Tasks, Workflow};
use pl_dsl::{BlockKind, Diagnostic, DiagnosticCode, Places, Severity, suggest};

use crate::locate;

/// Block of a setting, the block's name, and the key.
pub(crate) type SettingOf<'a> = (BlockKind, &'a str, &'static str);

/// Returns errors about sources of models and names of data sets that are wrong on every machine. Reads no file.
pub fn unknown_names(workflow: &Workflow, places: &Places) -> Vec<Diagnostic> {
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
                let title = "the path of a folder begins with `./`, and the data sets are";
                (format!("there is no data set `{name}`"), suggest(&name, title, known))
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

/// Returns the tasks of all environments and evaluations. Those that several share are listed once.
pub(crate) fn tasks(workflow: &Workflow) -> Vec<(SettingOf<'_>, &Tasks)> {
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
