//! A training run as the coordinator of workers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use pl_cluster::{
    Connection, Coordinator, CoordinatorOptions, LearnerEntry, Lease, MissingProcess, Role, WeightsRef,
    random_digits,
};
use pl_record::{Lock, RunFolder, write_atomically};
use pl_rollout::PlayEpisodes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::runtime::Handle;

use crate::checkpoints::PolicyVersions;
use crate::error::Error;
use crate::error::cluster::ClusterError;
use crate::host::Host;
use crate::schedule::UpdateKey;
use crate::session::Session;
use crate::stored::StoredWorkflow;
use crate::workflow::CheckedWorkflow;

use super::leased_team::LeasedTeam;
use super::leased_weights::{LeasedWeights, WeightsPlace};
use super::local::LocalCluster;
use super::manifest;
use super::missing_processes::MissingProcesses;
use super::options::{ClusterOptions, RunServer, learner_id};
use super::results::TrainedModels;
use super::task::TeamRef;
use super::update_task::SentWeights;
use super::weights::{self, ModelFormats};
use super::weights_folder::WeightsFolder;

/// File in the run folder with the name of the run's streams.
const CLUSTER: &str = "cluster.json";

/// Folder in the run folder of the store of a server on this machine.
const LOCAL: &str = "cluster";

/// Content of [`CLUSTER`].
#[derive(Serialize, Deserialize)]
struct ClusterName {
    run: String,
}

/// A training run whose episodes are played by workers.
pub(crate) struct ClusterRun {
    coordinator: Arc<Coordinator>,
    formats: ModelFormats,
    models: Arc<TrainedModels>,
    /// Learners in processes of their own.
    learners: Vec<LearnerEntry>,
    /// `None` if the server keeps the weights.
    weights_folder: Option<Arc<WeightsFolder>>,
    runtime: Handle,
    /// Last step whose results were removed from the server.
    forgotten: Mutex<u64>,
    /// Tells the user if no process plays, trains or runs jobs.
    _missing: MissingProcesses,
    /// Ends after the coordinator.
    _local: Option<LocalCluster>,
}

impl ClusterRun {
    /// Starts the coordinator of a run, after `step` finished steps, and lets workers join. Returns `None` if this process
    /// plays.
    ///
    /// # Errors
    /// If the server fails, the workflow has something that workers can't have, or a file can't be read.
    pub fn start(
        host: &Host,
        checked: &CheckedWorkflow,
        session: &Session,
        (stored, lock): (&StoredWorkflow, &Lock),
        (root, step): (&Path, u64),
        options: &ClusterOptions,
    ) -> Result<Option<ClusterRun>, Error> {
        let Some(server) = options.server_of(checked)? else { return Ok(None) };
        let manifest = manifest::collect(checked, stored, lock, options.weights_folder.is_some())?;
        let learners = options.learners_of(checked, &session.trainer)?;
        let sandboxes = options.sandboxes_of(checked)?;
        let jobs = sandboxes.then(|| json!(checked.workflow.sandbox));
        let run = name_of(root)?;
        let shared = options.weights_folder.as_deref();
        let weights_folder = shared.map(|shared| Arc::new(WeightsFolder::new(shared, &run)));
        let (address, mut local) = match server {
            RunServer::Address(address) => (address, None),
            RunServer::Local { workers, commands } => {
                let local =
                    LocalCluster::start(&root.join(LOCAL), workers, commands).map_err(Error::cluster)?;
                (local.address(), Some(local))
            }
        };
        let starting = async {
            let name = format!("pl-host run {run}");
            let connection = Connection::open(&address, &name, Role::Coordinator).await?;
            let (lease, learners) = (options.lease_of(checked), learners.clone());
            let settings = CoordinatorOptions { run: run.clone(), lease, learners, jobs };
            let coordinator = Coordinator::start(&connection, &settings).await?;
            let mut files = Vec::new();
            for file in manifest.files {
                let bytes = file.source.read().map_err(ClusterError::file(file.source.path()))?;
                files.push(pl_cluster::SharedFile {
                    path: file.path,
                    hash: coordinator.put_blob(&bytes).await?,
                });
            }
            let program = env!("CARGO_PKG_VERSION");
            coordinator.open_to_workers(program, &manifest.bytes, files).await?;
            Ok::<_, ClusterError>(coordinator)
        };
        let coordinator = Arc::new(host.block_on(starting).map_err(Error::cluster)?);
        if let Some(local) = &mut local {
            let ranks = checked.workflow.train.as_ref().map_or(1, |train| train.data_parallel);
            local.start_processes(&run, &learners, ranks, sandboxes, shared).map_err(Error::cluster)?;
        }
        // Processes of this machine are started here, and those that load models take their time.
        let is_local = local.is_some();
        let is_watched =
            move |process: &MissingProcess| !is_local || *process == MissingProcess::SandboxMachine;
        let missing = MissingProcesses::watch(host, &coordinator, &run, is_watched);
        Ok(Some(ClusterRun {
            coordinator,
            formats: ModelFormats::of(&session.trainer),
            models: Arc::new(TrainedModels::of(&session.trainer)),
            learners,
            weights_folder,
            runtime: host.handle(),
            forgotten: Mutex::new(step),
            _missing: missing,
            _local: local,
        }))
    }

    /// Stores the weights of a learner after an update and announces them.
    ///
    /// # Errors
    /// If the server or the folder of the weights fails, or another coordinator has taken the run over.
    pub async fn store_weights(
        &self,
        UpdateKey { learner, step: update }: UpdateKey,
        versions: &PolicyVersions,
    ) -> Result<Arc<LeasedWeights>, Error> {
        let learner = learner_id(learner);
        let bytes = weights::encode(learner, update, versions, &self.formats).map_err(Error::cluster)?;
        let storing = async {
            let hash = match self.weights_folder.clone() {
                Some(folder) => blocking(move || folder.put(learner, &bytes)).await?,
                None => self.coordinator.put_blob(&bytes).await?,
            };
            let reference = WeightsRef { learner, update, hash };
            self.coordinator.announce(&reference).await?;
            Ok::<_, ClusterError>(reference)
        };
        let reference = storing.await.map_err(Error::cluster)?;
        let place = match &self.weights_folder {
            Some(folder) => WeightsPlace::Folder(Arc::clone(folder)),
            None => WeightsPlace::Server(Arc::clone(&self.coordinator), self.runtime.clone()),
        };
        Ok(Arc::new(LeasedWeights::new(reference, place)))
    }

    /// Returns the weights that a learner's process has sent.
    ///
    /// # Errors
    /// If they are not in the folder of the weights.
    pub(super) async fn sent_weights(&self, learner: usize, sent: SentWeights) -> Result<Vec<u8>, Error> {
        let learner = learner_id(learner);
        match (sent, self.weights_folder.clone()) {
            (SentWeights::Inline(bytes), _) => Ok(bytes),
            (SentWeights::InFolder(hash), Some(folder)) => {
                blocking(move || folder.get(learner, &hash)).await.map_err(Error::cluster)
            }
            (SentWeights::InFolder(hash), None) => {
                Err(Error::cluster(ClusterError::NoWeights { folder: PathBuf::new(), hash }))
            }
        }
    }

    /// Returns the positions of the learners that other processes train.
    pub fn remote_learners(&self) -> impl Iterator<Item = usize> + '_ {
        self.learners.iter().map(|own| own.learner as usize)
    }

    /// Dimensions and formats of the policies' models.
    pub(super) fn formats(&self) -> &ModelFormats {
        &self.formats
    }

    /// Stores bytes under their hash. Returns the hash.
    ///
    /// # Errors
    /// If the server fails.
    pub(super) async fn put(&self, bytes: &[u8]) -> Result<String, Error> {
        self.coordinator.put_blob(bytes).await.map_err(Error::cluster)
    }

    /// Removes bytes that no lease names any more.
    pub async fn remove(&self, hash: &str) {
        self.coordinator.remove_blob(hash).await;
    }

    /// Publishes a lease and waits for its result.
    ///
    /// # Errors
    /// If no process can do it, or the server fails.
    pub(super) async fn lease<T>(
        &self,
        lease: Lease,
        check: impl Fn(&[u8]) -> Result<T, ClusterError>,
    ) -> Result<T, Error> {
        self.coordinator.play(lease, check).await.map_err(Error::cluster)
    }

    /// Returns a player whose episodes workers play with these weights.
    pub fn player(&self, team: TeamRef, weights: Vec<Arc<LeasedWeights>>) -> Arc<dyn PlayEpisodes> {
        let (coordinator, models) = (Arc::clone(&self.coordinator), Arc::clone(&self.models));
        Arc::new(LeasedTeam::new(coordinator, team, weights, models))
    }

    /// Removes the results of steps that a checkpoint includes.
    pub async fn forget(&self, step: u64) {
        let before = {
            let mut forgotten = self.forgotten.lock();
            std::mem::replace(&mut *forgotten, step)
        };
        self.coordinator.forget(before + 1..=step).await;
    }

    /// Ends a run whose steps are all finished: workers leave it, and the server forgets it.
    pub async fn end(&self) {
        self.coordinator.end().await;
        self.weights_folder.iter().for_each(|folder| folder.clear());
    }
}

/// Runs work that reads or writes large files on a thread of its own.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ClusterError> + Send + 'static,
) -> Result<T, ClusterError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Returns the name of the run's streams, which the run folder keeps.
fn name_of(root: &Path) -> Result<String, Error> {
    if root.join(CLUSTER).exists() {
        let ClusterName { run } = RunFolder::read_json(root, CLUSTER).map_err(Error::RunFolder)?;
        return Ok(run);
    }
    let name = ClusterName { run: new_name(root) };
    write_atomically(&root.join(CLUSTER), json!(name).to_string().as_bytes())?;
    Ok(name.run)
}

/// Returns a name that no other run has: that of the run folder, with random digits.
fn new_name(root: &Path) -> String {
    let folder = root.file_name().unwrap_or_default().to_string_lossy();
    let letters = folder.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let letters: String = letters.take(32).collect();
    format!("{letters}-{}", random_digits(8))
}
