//! Notes in the cache of what audits of an environment, its agents and its reward have found.

use std::fs;
use std::path::PathBuf;

use pl_dsl::workflow::Scenario;
use pl_toolchain::cache;
use pl_types::PartHasher;

use crate::error::Error;
use crate::host::Host;
use crate::progress::Notice;
use crate::workflow::CheckedWorkflow;

/// Notes that an audit of a scenario of the workflow has found a number of defects.
///
/// # Errors
/// If the cache can't be written.
pub(super) fn write(checked: &CheckedWorkflow, scenario: &Scenario, defects: usize) -> Result<(), Error> {
    let path = path(checked, scenario)?;
    let failed = |source| Error::AuditNote { path: path.clone(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(&path, defects.to_string()).map_err(failed)
}

/// Notifies a person who trains with a scenario that was never audited, or whose last audit has found defects. All plugins of
/// the workflow are loaded.
pub(crate) fn warn(host: &Host, checked: &CheckedWorkflow) {
    let trained = checked.workflow.scenarios.iter().filter(|scenario| scenario.weight > 0.0);
    let notes: Vec<Option<usize>> = trained.map(|scenario| read(checked, scenario)).collect();
    if notes.contains(&None) {
        host.notify(Notice::NeverAudited);
    }
    let defects: usize = notes.into_iter().flatten().sum();
    if defects > 0 {
        host.notify(Notice::AuditFoundDefects { defects });
    }
}

/// Returns the number of defects that the last audit of a scenario has found. `None` if it was never audited.
fn read(checked: &CheckedWorkflow, scenario: &Scenario) -> Option<usize> {
    // A cache that can't be read says so elsewhere.
    let Ok(path) = path(checked, scenario) else { return Some(0) };
    fs::read_to_string(path).ok()?.parse().ok()
}

/// Returns the path of the note of a scenario, which depends on the plugins' components, what the scenario plays and the
/// agents' settings, but not on its name or its share of the tasks.
fn path(checked: &CheckedWorkflow, scenario: &Scenario) -> Result<PathBuf, Error> {
    let workflow = &checked.workflow;
    let mut hasher = PartHasher::content().text("audit 4");
    for (name, hash) in checked.plugins.hashes() {
        hasher = hasher.text(&name).text(&hash);
    }
    let played = (&scenario.environment, &scenario.turns, &scenario.reward);
    hasher = hasher.text(&serde_json::to_string(&played).unwrap_or_default());
    for agent in &workflow.agents {
        let settings = serde_json::to_string(&agent.settings).unwrap_or_default();
        hasher = hasher.text(&agent.name).u64(agent.plugin as u64).text(&agent.item).text(&settings);
    }
    Ok(cache::root()?.join("audits").join(hasher.hex()))
}
