//! Origin of a run folder: this user on this machine, or somebody else.
//!
//! A user has chosen the workflow file of a new run. A run folder may come from anywhere, and its
//! `workflow.json` names components to load, folders to read and hosts to send requests to. The file
//! `workflow.json.mac` has the keyed BLAKE3 of `workflow.json` under a key that each user has. Without it, or
//! if it differs, resuming and replaying ask for consent.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use pl_dsl::workflow::{CorpusSource, Plugin, RetrievalServer};
use pl_record::RunFolder;

use crate::error::Error;
use crate::locate;
use crate::stored::StoredWorkflow;

const WORKFLOW: &str = "workflow.json";
const MAC: &str = "workflow.json.mac";
const KEY: &str = "run-folders.key";
const KEY_LENGTH: usize = 32;

/// Marks a run folder as made by this user.
///
/// # Errors
/// If the user's key or the mark can't be written.
pub(crate) fn mark_as_own(root: &Path) -> io::Result<()> {
    let mac = mac_of(root, &own_key()?)?;
    pl_record::write_atomically(&root.join(MAC), mac.to_hex().as_bytes()).map_err(io::Error::other)
}

/// Returns true if this user made the run folder on this machine, and nobody has changed its workflow.
pub(crate) fn is_own(root: &Path) -> bool {
    let Ok(Some(key)) = state_folder().and_then(|folder| read_key(&folder.join(KEY))) else { return false };
    let Ok(recorded) = RunFolder::read_text(root, MAC) else { return false };
    let (Ok(recorded), Ok(mac)) = (blake3::Hash::from_hex(recorded), mac_of(root, &key)) else {
        return false;
    };
    // The comparison takes the same time whatever differs.
    recorded == mac
}

/// Checks that the user made the run, that it opens nothing of the machine, or that the user trusts it. The
/// user has chosen the components of the plugins in `chosen`.
///
/// # Errors
/// [`Error::ForeignRun`] with everything that the run would open.
pub(crate) fn require_trust(
    root: &Path,
    stored: &StoredWorkflow,
    chosen: &BTreeMap<String, PathBuf>,
    trusted: bool,
) -> Result<(), Error> {
    if trusted || is_own(root) {
        return Ok(());
    }
    let opens = opened_resources(stored, chosen);
    if opens.is_empty() { Ok(()) } else { Err(Error::ForeignRun { path: root.to_path_buf(), opens }) }
}

/// Describes each component, folder, host, server, retrieval server and Docker engine that a run would use. Components
/// that are shipped with the program are not listed.
fn opened_resources(stored: &StoredWorkflow, chosen: &BTreeMap<String, PathBuf>) -> Vec<String> {
    let mut lines = Vec::new();
    for Plugin { name, path, grant, .. } in &stored.workflow.plugins {
        // A component that is missing can't be loaded.
        let path = path.as_ref().and_then(|path| locate::plugin(&stored.folder, path).ok());
        let shipped = locate::shipped_plugins();
        let path = path.filter(|path| path.parent() != shipped.as_deref() && !chosen.contains_key(name));
        if let Some(path) = path {
            lines.push(format!("plugin {name}: {}", path.display()));
        }
        for folder in &grant.read {
            lines.push(format!("plugin {name} reads {}", stored.folder.join(folder).display()));
        }
        for host in &grant.http {
            lines.push(format!("plugin {name} sends requests to {host}"));
        }
    }
    let with_key = |variable: &Option<String>| {
        variable.as_ref().map_or(String::new(), |variable| format!(", with the key in {variable}"))
    };
    for server in &stored.workflow.servers {
        let key = with_key(&server.key_variable);
        let addresses = server.addresses.iter();
        lines.extend(addresses.map(|address| format!("prompts are sent to {address}{key}")));
    }
    for corpus in &stored.workflow.corpora {
        if let CorpusSource::Server(RetrievalServer { address, key_variable, .. }) = &corpus.source {
            lines.push(format!("queries are sent to {address}{}", with_key(key_variable)));
        }
    }
    let engines = stored.workflow.sandbox.docker.iter().flat_map(|docker| &docker.endpoints);
    lines.extend(engines.map(|endpoint| format!("the sandbox uses the Docker engine {endpoint}")));
    lines
}

fn mac_of(root: &Path, key: &[u8; KEY_LENGTH]) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update_reader(File::open(root.join(WORKFLOW))?)?;
    Ok(hasher.finalize())
}

/// Returns the user's key. Creates it when it is first needed.
fn own_key() -> io::Result<[u8; KEY_LENGTH]> {
    let folder = state_folder()?;
    let path = folder.join(KEY);
    if let Some(key) = read_key(&path)? {
        return Ok(key);
    }
    fs::create_dir_all(&folder)?;
    let mut key = [0; KEY_LENGTH];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    // Readable by the user alone, as all temporary files are.
    let mut file = tempfile::NamedTempFile::new_in(&folder)?;
    file.write_all(&key)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(&path) {
        Ok(_) => Ok(key),
        // Another process was faster.
        Err(_) => {
            read_key(&path)?.ok_or_else(|| io::Error::other(format!("cannot create {}", path.display())))
        }
    }
}

/// Reads a key. Returns `None` if there is none.
fn read_key(path: &Path) -> io::Result<Option<[u8; KEY_LENGTH]>> {
    match fs::read(path) {
        Ok(bytes) => Ok(bytes.try_into().ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the folder of the program's state: `pl-host` in `$XDG_STATE_HOME` or in `~/.local/state`.
fn state_folder() -> io::Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    let base = base.ok_or_else(|| io::Error::other("HOME and XDG_STATE_HOME are not set"))?;
    Ok(base.join("pl-host"))
}
