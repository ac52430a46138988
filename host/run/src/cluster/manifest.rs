//! The manifest of a run: its workflow, the hashes of all that it uses, and the files that workers fetch.

use std::path::Path;

use pl_dsl::workflow::{CorpusSource, InFlight, Tasks, Workflow};
use pl_record::Lock;
use pl_types::SourcePath;
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use crate::corpus;
use crate::error::Error;
use crate::error::cluster::ClusterError;
use crate::locate;
use crate::session::absolute;
use crate::stored::StoredWorkflow;
use crate::workflow::CheckedWorkflow;

use super::cpu::cpu_kind;

/// Content of the manifest.
#[derive(Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The workflow with the paths of the files on a worker, relative to the folder that it has there.
    pub workflow: StoredWorkflow,
    pub lock: Lock,
    /// Kind of the coordinator's CPU.
    pub cpu: String,
    /// True if the weights are in a folder that all machines share.
    #[serde(default)]
    pub weights_in_folder: bool,
}

/// The manifest of a run with its files.
pub(super) struct CollectedManifest {
    pub bytes: Vec<u8>,
    pub files: Vec<CollectedFile>,
}

/// A file that workers fetch.
pub(super) struct CollectedFile {
    /// Path in the folder on a worker.
    pub path: String,
    /// Path here. It is checked when it is open.
    pub source: SourcePath,
}

/// Collects what workers need.
///
/// # Errors
/// If a file is missing, or the workflow has something that workers can't have.
pub(super) fn collect(
    checked: &CheckedWorkflow,
    stored: &StoredWorkflow,
    lock: &Lock,
    weights_in_folder: bool,
) -> Result<CollectedManifest, Error> {
    check_supported(&checked.workflow)?;
    let mut stored = stored.clone();
    let mut files = Vec::new();
    let workflow = &mut stored.workflow;
    // A worker was told the server, and has credentials of its own.
    workflow.cluster = None;
    for plugin in &mut workflow.plugins {
        if let Some(located) = locate::plugin(checked.plugins.reads(), &checked.folder, plugin) {
            let source = located.map_err(Error::NotRead)?;
            // Shipped plugins are the program's own.
            let source = if locate::is_shipped(&source) { source.into() } else { checked.to_open(source) };
            plugin.path = Some(add(&mut files, &format!("plugins/{}", plugin.name), source));
            plugin.is_name_of_included = false;
        }
    }
    for model in workflow.models.iter_mut().filter(|model| locate::is_path(&model.source)) {
        // A worker has the same file at the same place: models are too large to be sent.
        model.source = absolute(&checked.folder.join(&model.source)).display().to_string();
    }
    for policy in &mut workflow.policies {
        if let Some(from) = &mut policy.from {
            *from = add_folder(&mut files, &format!("starts/{}", policy.name), &checked.start(from))?;
        }
    }
    for corpus in &mut workflow.corpora {
        let path = corpus::path(&checked.corpus_place(), corpus)?;
        if let (CorpusSource::File(file), Some(path)) = (&mut corpus.source, path) {
            file.path = add(&mut files, &format!("corpora/{}", corpus.name), checked.to_open(path));
        }
    }
    // Leases have their tasks with them.
    for scenario in &mut workflow.scenarios {
        scenario.environment.tasks = no_tasks();
    }
    for evaluation in &mut workflow.evaluations {
        evaluation.tasks = no_tasks();
    }
    let (lock, cpu) = (lock.clone(), cpu_kind());
    let manifest = Manifest { workflow: stored, lock, cpu, weights_in_folder };
    let bytes = serde_json::to_vec(&manifest)
        .map_err(|error| Error::cluster(ClusterError::unreadable("the workflow", error)))?;
    Ok(CollectedManifest { bytes, files })
}

fn no_tasks() -> Tasks {
    Tasks::Generated { split: "train".to_owned(), level: 0 }
}

fn check_supported(workflow: &Workflow) -> Result<(), Error> {
    let refuse = |what: String, hint| Err(Error::cluster(ClusterError::Unsupported { what, hint }));
    if let Some(scenario) = workflow.scenarios.iter().find(|one| one.designer.is_some() && one.weight > 0.0) {
        let name = scenario.name.clone().unwrap_or_default();
        return refuse(format!("the designer of scenario {name}"), "train it on one machine");
    }
    if workflow.train.as_ref().is_some_and(|train| train.in_flight != InFlight::Off) {
        let hint = "workers keep the weights that an episode began with: remove it";
        return refuse("`in_flight`".to_owned(), hint);
    }
    if let Some(policy) = workflow.policies.iter().find(|policy| policy.train && policy.server.is_some()) {
        let what = format!("the server of policy {}", policy.name);
        return refuse(what, "remove its `server`, so that workers generate for it");
    }
    if let Some(plugin) = workflow.plugins.iter().find(|plugin| !plugin.grant.read.is_empty()) {
        let what = format!("the folder that plugin {} may read", plugin.name);
        return refuse(what, "workers fetch files, not folders: remove `grant { read }`");
    }
    Ok(())
}

/// Adds a file under a name that keeps its extension. Returns its path on a worker.
fn add(files: &mut Vec<CollectedFile>, name: &str, source: SourcePath) -> String {
    let extension = source.path().extension().map(|extension| extension.to_string_lossy().into_owned());
    let path = extension.map_or_else(|| name.to_owned(), |extension| format!("{name}.{extension}"));
    if !files.iter().any(|file| file.path == path) {
        files.push(CollectedFile { path: path.clone(), source });
    }
    path
}

/// Adds a file, or all files of a folder. Returns the path on a worker.
fn add_folder(files: &mut Vec<CollectedFile>, name: &str, source: &SourcePath) -> Result<String, Error> {
    let folder = source.path();
    if !folder.is_dir() {
        return Ok(add(files, name, source.clone()));
    }
    for entry in WalkDir::new(folder).sort_by_file_name() {
        let failed = |error: walkdir::Error| ClusterError::file(Path::new(name))(error.into());
        let entry = entry.map_err(failed).map_err(Error::cluster)?;
        if let (true, Ok(inner)) = (entry.file_type().is_file(), entry.path().strip_prefix(folder)) {
            let path = format!("{name}/{}", inner.display());
            files.push(CollectedFile { path, source: source.join(inner) });
        }
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use crate::permissions::{GrantedAccess, ReadPolicy, SharedPermissions};

    use super::*;

    #[test]
    fn a_file_for_workers_that_becomes_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (project, secret) = (root.join("project"), root.join("secret"));
        std::fs::create_dir_all(project.join("start/inner")).unwrap();
        std::fs::write(project.join("start/inner/weights"), "weights").unwrap();
        std::fs::write(&secret, "secret").unwrap();
        let reads = ReadPolicy::new(SharedPermissions::default(), GrantedAccess::new([], &project));
        let source = reads.source(&project.join("start")).unwrap();
        let mut files = Vec::new();
        assert_eq!(add_folder(&mut files, "starts/a", &source).unwrap(), "starts/a");
        let file = files.pop().unwrap();
        assert_eq!(
            (file.path.as_str(), file.source.read().unwrap()),
            ("starts/a/inner/weights", b"weights".to_vec())
        );
        // Between the collection and the opening, it becomes a link.
        std::fs::remove_file(project.join("start/inner/weights")).unwrap();
        symlink(&secret, project.join("start/inner/weights")).unwrap();
        assert!(file.source.read().unwrap_err().to_string().contains("outside of the workflow's folder"));
        // The control: without the second check, it is read.
        assert_eq!(std::fs::read(file.source.path()).unwrap(), b"secret");
    }
}
