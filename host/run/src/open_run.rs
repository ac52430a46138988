//! The workflow of a run folder, opened as the run has it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pl_record::{Lock, RunFolder, first_digits};
use tch::Device;

use crate::error::Error;
use crate::host::Host;
use crate::origin::{is_own, refuse_links, require_trust};
use crate::session::{Session, SessionOptions, absolute};
use crate::stored::StoredWorkflow;
use crate::workflow::CheckedWorkflow;

/// Loads the workflow of a run as the run has it, with its newest checkpoint or the one that the options
/// name. With `trust`, a run of somebody else may use the components and folders that it names.
///
/// # Errors
/// [`Error::ForeignRun`]; if a plugin is another build than the run was played with; if a model or
/// checkpoint can't be loaded.
pub fn open_run(
    host: &Host,
    run: &Path,
    device: Device,
    options: &SessionOptions,
    trust: bool,
) -> Result<(CheckedWorkflow, Session), Error> {
    let checked = open_recorded(host, run, &BTreeMap::new(), trust)?.0;
    let checkpoint = options.checkpoint.clone().or_else(|| Some(run.to_path_buf()));
    let session = Session::open(host, &checked, device, &SessionOptions { checkpoint, ..options.clone() })?;
    Ok((checked, session))
}

/// Opens the workflow of a run with the plugins that it was played with, or the builds in `plugins` instead.
/// With `trust`, a run of somebody else may use the components and folders that it names.
///
/// # Errors
/// [`Error::RunFolder`] if the folder is not that of a run; [`Error::ForeignRun`]; [`Error::NotAllowed`] if it needs more than
/// its start was allowed; if a plugin is another build than the run was played with, or the run has no such plugin.
pub(crate) fn open_recorded(
    host: &Host,
    run: &Path,
    plugins: &BTreeMap<String, PathBuf>,
    trust: bool,
) -> Result<(CheckedWorkflow, Lock), Error> {
    RunFolder::require(run).map_err(Error::RunFolder)?;
    refuse_links(run)?;
    let is_own = is_own(run);
    let lock = RunFolder::read_lock(run).map_err(Error::RunFolder)?;
    let mut stored = StoredWorkflow::read(run)?;
    for (name, file) in plugins {
        let blocks = &mut stored.workflow.plugins;
        match blocks.iter_mut().find(|block| block.name == *name) {
            Some(block) => {
                block.path = Some(absolute(file).display().to_string());
                block.is_name_of_included = false;
            }
            None => {
                let (plugin, plugins) = (name.clone(), blocks.iter().map(|b| b.name.clone()).collect());
                return Err(Error::NoPlugin { plugin, plugins });
            }
        }
    }
    let trusted = trust || is_own;
    let given = stored.given(run, &lock, trusted, &[]).with_files(plugins.values());
    let mut checked = stored.open(host, run, given)?.without_cluster();
    if trust {
        checked.allow_required_permissions();
    }
    if !trusted {
        require_trust(run, &checked)?;
    }
    checked.require_reads()?;
    check_builds(&checked, &lock, plugins)?;
    Ok((checked, lock))
}

/// Refuses plugins and granted folders that differ from the run's, except for plugins in `replaced`.
fn check_builds(
    checked: &CheckedWorkflow,
    lock: &Lock,
    replaced: &BTreeMap<String, PathBuf>,
) -> Result<(), Error> {
    let blocks = &checked.workflow.plugins;
    for block in blocks {
        let name = &block.name;
        let plugin = checked
            .plugins
            .load(block)
            .map_err(|error| Error::Plugin { plugin: name.clone(), source: error.into() })?;
        let (found, recorded) = (plugin.hash(), lock.plugins.get(name));
        let Some(recorded) = recorded.filter(|hash| !replaced.contains_key(name) && **hash != found) else {
            continue;
        };
        let place = match checked.plugins.path(block) {
            Some(path) => path.display().to_string(),
            None => "the one built into this pl-host".to_owned(),
        };
        return Err(Error::OtherBuild {
            plugin: name.clone(),
            place,
            found: first_digits(&found).to_owned(),
            recorded: first_digits(recorded).to_owned(),
        });
    }
    let grants = checked.plugins.grants(blocks);
    match lock.grants.iter().find(|(grant, content)| grants.get(*grant) != Some(content)) {
        Some((grant, _)) => Err(Error::OtherGrant { grant: grant.clone() }),
        None => Ok(()),
    }
}
