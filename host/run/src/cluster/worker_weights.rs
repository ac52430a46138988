//! Weights on a worker: adapters side by side, whole models one version at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use pl_cluster::{WeightsRef, Worker};
use pl_types::Generate;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use crate::error::Error;
use crate::generation::{PinnedTeam, PinnedVersion, PolicyRouter};

use super::run::blocking;
use super::weights::{LearnerWeights, ModelFormats};
use super::weights_folder::WeightsFolder;

/// Versions of adapters that stay in memory after their last task: those of a step and of an evaluation, for each learner.
const KEPT_VERSIONS: usize = 8;

/// Hashes of the whole models that the engine has, by learner.
type Published = BTreeMap<u32, String>;

/// Weights that the worker's engine has.
pub(super) struct WorkerWeights {
    worker: Worker,
    router: Arc<PolicyRouter>,
    formats: ModelFormats,
    /// `None` if the server keeps the weights.
    folder: Option<Arc<WeightsFolder>>,
    /// The newest last.
    pinned: Mutex<VecDeque<(String, Arc<PinnedVersion>)>>,
    /// Locked for reading while a task plays, so that no whole model is replaced under it.
    published: Arc<RwLock<Published>>,
}

/// Generator with the weights of a task. Other weights wait until it is dropped, if they would replace these.
pub(super) struct TaskWeights {
    pub generator: Arc<dyn Generate>,
    _published: OwnedRwLockReadGuard<Published>,
}

/// Weights that a lease needs in the engine.
struct TaskWeightSources {
    pinned: Vec<Arc<PinnedVersion>>,
    /// Learner and hash of each whole model, with its weights if they were fetched.
    models: Vec<(u32, String, Option<LearnerWeights>)>,
}

impl WorkerWeights {
    /// Weights for the engine behind `router`, from the server or from a `folder` that all machines share.
    pub fn new(
        worker: Worker,
        router: Arc<PolicyRouter>,
        formats: ModelFormats,
        folder: Option<WeightsFolder>,
    ) -> WorkerWeights {
        let folder = folder.map(Arc::new);
        WorkerWeights { worker, router, formats, folder, pinned: Mutex::default(), published: Arc::default() }
    }

    /// Gives the engine the weights of a lease.
    ///
    /// # Errors
    /// If they are missing or don't fit.
    pub async fn load(&self, references: &[WeightsRef]) -> Result<TaskWeights, Error> {
        let sources = self.sources(references).await?;
        let published = self.publish(sources.models).await?;
        let team = PinnedTeam { router: Arc::clone(&self.router), versions: sources.pinned };
        Ok(TaskWeights { generator: Arc::new(team), _published: published })
    }

    async fn sources(&self, references: &[WeightsRef]) -> Result<TaskWeightSources, Error> {
        let mut sources = TaskWeightSources { pinned: Vec::new(), models: Vec::new() };
        for WeightsRef { learner, hash, .. } in references {
            if let Some(version) = self.pinned(hash) {
                sources.pinned.push(version);
                continue;
            }
            if self.published.read().await.get(learner) == Some(hash) {
                sources.models.push((*learner, hash.clone(), None));
                continue;
            }
            let stored = self.fetch(*learner, hash).await?;
            if stored.has_adapters() && !stored.has_models() {
                let updates = stored.updates(&self.formats).map_err(Error::cluster)?;
                let version = Arc::new(PinnedVersion::new(Arc::clone(&self.router), updates)?);
                self.keep(hash, &version);
                sources.pinned.push(version);
            } else {
                sources.models.push((*learner, hash.clone(), Some(stored)));
            }
        }
        Ok(sources)
    }

    async fn fetch(&self, learner: u32, hash: &str) -> Result<LearnerWeights, Error> {
        let bytes = match self.folder.clone() {
            Some(folder) => {
                let hash = hash.to_owned();
                blocking(move || folder.get(learner, &hash)).await.map_err(Error::cluster)?
            }
            None => self.worker.blob(hash).await.map_err(Error::cluster)?,
        };
        LearnerWeights::decode(&bytes).map_err(Error::cluster)
    }

    fn pinned(&self, hash: &str) -> Option<Arc<PinnedVersion>> {
        let pinned = self.pinned.lock();
        pinned.iter().find(|(own, _)| own == hash).map(|(_, version)| Arc::clone(version))
    }

    fn keep(&self, hash: &str, version: &Arc<PinnedVersion>) {
        let mut pinned = self.pinned.lock();
        pinned.push_back((hash.to_owned(), Arc::clone(version)));
        if pinned.len() > KEPT_VERSIONS {
            pinned.pop_front();
        }
    }

    /// Replaces the whole models that differ, when no task plays. Returns the lock that keeps them as they are.
    async fn publish(
        &self,
        mut models: Vec<(u32, String, Option<LearnerWeights>)>,
    ) -> Result<OwnedRwLockReadGuard<Published>, Error> {
        let current = Arc::clone(&self.published).read_owned().await;
        let is_there = |(learner, hash, _): &(u32, String, _)| current.get(learner) == Some(hash);
        if models.iter().all(is_there) {
            return Ok(current);
        }
        drop(current);
        let mut current = Arc::clone(&self.published).write_owned().await;
        for (learner, hash, stored) in &mut models {
            if current.get(learner) == Some(hash) {
                continue;
            }
            let stored = match stored.take() {
                Some(stored) => stored,
                // Another task has replaced them meanwhile.
                None => self.fetch(*learner, hash).await?,
            };
            for (policy, update, version) in stored.updates(&self.formats).map_err(Error::cluster)? {
                self.router.publish_embedded(policy, update, version)?;
            }
            current.insert(*learner, hash.clone());
        }
        Ok(current.downgrade())
    }
}
