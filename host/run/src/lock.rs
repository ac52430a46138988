//! The content of `lock.json`: hashes of everything that a run was started with.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pl_dsl::workflow::Policy;
use pl_model::NaiveDate;
use pl_record::{Lock, hash_file, hash_folder};
use pl_sandbox::DockerWorkers;

use crate::chat::today;
use crate::corpus;
use crate::design::files_of_designs;
use crate::error::Error;
use crate::host::Host;
use crate::permissions::Access;
use crate::sandbox::docker_settings;
use crate::session::{Session, is_start_restored};
use crate::workflow::CheckedWorkflow;

/// Hashes what a run uses.
///
/// # Errors
/// If a task file, a corpus or a `from` can't be read.
pub(crate) fn lock_of(host: &Host, checked: &CheckedWorkflow, session: &Session) -> Result<Lock, Error> {
    Ok(Lock {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        contract: "0.1".to_owned(),
        seed: session.seed,
        date: Some(session.date.to_string()),
        device: format!("{:?}", session.device).to_lowercase(),
        threads: tch::get_num_threads(),
        plugins: checked.plugins.hashes(),
        grants: checked.plugins.grants(&checked.workflow.plugins),
        models: session.model_hashes.clone(),
        dtypes: session.model_dtypes.clone(),
        starts: hash_starts(checked)?,
        data: hash_data(&data_files(host, checked)?)?,
        images: images_of(host, checked),
        permissions: checked
            .required_permissions()
            .iter()
            .map(|request| request.access.to_string())
            .collect(),
    })
}

/// Content of the files that a workflow names, to be compared with that of a finished run. Models are left out, as all of their
/// weights would have to be read, and so is the machine, as nothing is trained.
pub(crate) struct Inputs {
    starts: BTreeMap<String, String>,
    data: BTreeMap<String, String>,
    /// Files of the data by name.
    files: BTreeMap<String, PathBuf>,
    images: BTreeMap<String, String>,
}

impl Inputs {
    /// Hashes the files that a workflow names.
    ///
    /// # Errors
    /// If a task file, a corpus or a `from` can't be read.
    pub fn read(host: &Host, checked: &CheckedWorkflow) -> Result<Inputs, Error> {
        let files = data_files(host, checked)?;
        Ok(Inputs {
            starts: hash_starts(checked)?,
            data: hash_data(&files)?,
            files,
            images: images_of(host, checked),
        })
    }

    /// Returns the differences from what a finished run of the same workflow was started with, as [`Lock::differences_of_files`].
    ///
    /// # Errors
    /// If a plugin that the run has used can't be loaded.
    pub fn differences(&self, checked: &CheckedWorkflow, recorded: &Lock) -> Result<Vec<String>, Error> {
        for (index, block) in checked.workflow.plugins.iter().enumerate() {
            if recorded.plugins.contains_key(&block.name) {
                checked.plugin(index)?;
            }
        }
        let mut now = Lock {
            plugins: checked.plugins.hashes(),
            grants: checked.plugins.grants(&checked.workflow.plugins),
            starts: self.starts.clone(),
            data: self.data.clone(),
            images: self.images.clone(),
            ..recorded.clone()
        };
        allow_missing_starts(recorded, &mut now, &checked.workflow.policies);
        // Without an engine, nothing shows that the image is another one.
        if now.images.is_empty() {
            now.images.clone_from(&recorded.images);
        }
        Ok(recorded.differences_of_files(&now, &self.files))
    }
}

/// Hashes files, by their names.
fn hash_data(files: &BTreeMap<String, PathBuf>) -> Result<BTreeMap<String, String>, Error> {
    files.iter().map(|(name, path)| Ok((name.clone(), hash_file(path).map_err(Error::RunFolder)?))).collect()
}

/// Returns the files of tasks and corpora, and those of designs, by their names in the workflow.
///
/// # Errors
/// If a corpus can't be found.
pub(crate) fn data_files(host: &Host, checked: &CheckedWorkflow) -> Result<BTreeMap<String, PathBuf>, Error> {
    let mut files: BTreeMap<String, PathBuf> = checked.task_files(host).into_iter().collect();
    // No block has a name with a space.
    for corpus in checked.corpora() {
        let path = corpus::path(&checked.corpus_place(), corpus)?;
        files.extend(path.map(|path| (format!("corpus {}", corpus.name), path)));
    }
    // Designs are checked with the text of these files during the run.
    for path in files_of_designs(checked)? {
        files.insert(format!("text {}", path.display()), checked.folder.join(&path));
    }
    Ok(files)
}

/// Returns the id of the sandbox's image by its name. Returns nothing if no engine answers, which is an error of a run
/// that needs one, or if the programs do not run in containers of this process.
fn images_of(host: &Host, checked: &CheckedWorkflow) -> BTreeMap<String, String> {
    let Some(docker) = checked.own_containers() else { return BTreeMap::new() };
    let settings = docker_settings(&checked.workflow.sandbox, docker, &checked.folder);
    let ids: Vec<String> = host.block_on(DockerWorkers::image_ids(&settings)).into_iter().collect();
    if ids.is_empty() { BTreeMap::new() } else { BTreeMap::from([(settings.image, ids.join(", "))]) }
}

/// Takes over the recorded image if the programs of the run may also run without containers, as no engine answers now.
pub(crate) fn allow_missing_image(recorded: &Lock, now: &mut Lock, checked: &CheckedWorkflow) {
    if now.images.is_empty() && checked.own_containers().is_some_and(|docker| docker.fallback) {
        now.images.clone_from(&recorded.images);
    }
}

/// Returns what the user allowed when a run was started or resumed.
pub(crate) fn recorded_permissions(lock: &Lock) -> impl Iterator<Item = Access> {
    // A text of another form allows nothing, and the user is asked.
    lock.permissions.iter().filter_map(|text| text.parse().ok())
}

/// Returns the date at which a run was started, or the current date if an earlier version did not record it.
pub(crate) fn start_date(lock: &Lock) -> NaiveDate {
    lock.date.as_ref().and_then(|date| date.parse().ok()).unwrap_or_else(today)
}

/// Hashes the adapter or model of each policy with a `from`. A policy whose `from` is missing has no hash.
fn hash_starts(checked: &CheckedWorkflow) -> Result<BTreeMap<String, String>, Error> {
    let mut hashes = BTreeMap::new();
    for policy in &checked.workflow.policies {
        let Some(source) = policy.from.as_ref().map(|from| checked.start(from)) else { continue };
        let path = source.path();
        if path.is_dir() {
            hashes.insert(policy.name.clone(), hash_folder(&source).map_err(Error::RunFolder)?);
        } else if path.is_file() {
            hashes.insert(policy.name.clone(), hash_file(path).map_err(Error::RunFolder)?);
        }
    }
    Ok(hashes)
}

/// Takes over the recorded hash of each trained policy whose `from` no longer exists, if a checkpoint has all that
/// is needed of it.
pub(crate) fn allow_missing_starts(recorded: &Lock, now: &mut Lock, policies: &[Policy]) {
    for policy in policies.iter().filter(|policy| is_start_restored(policy)) {
        if let (false, Some(hash)) =
            (now.starts.contains_key(&policy.name), recorded.starts.get(&policy.name))
        {
            now.starts.insert(policy.name.clone(), hash.clone());
        }
    }
}
