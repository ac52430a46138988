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
    // No block has a name with a space.
    let mut corpora: Vec<(String, PathBuf)> = Vec::new();
    for corpus in checked.corpora() {
        let path = corpus::path(&checked.corpus_place(), corpus)?;
        corpora.extend(path.map(|path| (format!("corpus {}", corpus.name), path)));
    }
    // Designs are checked with the text of these files during the run.
    let texts = files_of_designs(checked)?;
    let texts = texts.iter().map(|path| (format!("text {}", path.display()), checked.folder.join(path)));
    let data = checked
        .task_files(host)
        .into_iter()
        .chain(corpora)
        .chain(texts)
        .map(|(name, path)| Ok((name, hash_file(&path).map_err(Error::RunFolder)?)))
        .collect::<Result<_, Error>>()?;
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
        data,
        images: images_of(host, checked),
        permissions: checked
            .required_permissions()
            .iter()
            .map(|request| request.access.to_string())
            .collect(),
    })
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
