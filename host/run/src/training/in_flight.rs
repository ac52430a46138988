//! Weights that take over while episodes play.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use pl_dsl::workflow::InFlight;
use pl_inference::{OldCache, PlannedVersions};
use pl_record::versions::{CompletionVersions, EpisodeStart, RecordedVersions, read_versions};
use pl_types::Generate;

use crate::checkpoints::PolicyVersions;
use crate::error::Error;
use crate::error::repeat::RepeatError;
use crate::generation::{InFlightTeam, PolicyRouter};
use crate::schedule::lanes::StepPart;

use super::step_weights::{StepWeights, WeightSource};

/// Versions of an earlier run.
#[derive(Default)]
pub(super) struct RepeatedVersions {
    /// By [`CompletionVersions::key`].
    completions: HashMap<u64, PlannedVersions>,
    /// By the part of the step and the position of the episode.
    episodes: HashMap<(StepPart, usize), Vec<u64>>,
}

impl RepeatedVersions {
    /// Reads the versions that a run has recorded.
    ///
    /// # Errors
    /// If it has no such record, or the record can't be read.
    pub fn read(run: &Path) -> Result<RepeatedVersions, Error> {
        let refused = |source| Error::Schedule { run: run.to_path_buf(), source };
        let lines = read_versions(run)?.ok_or_else(|| refused(RepeatError::NoVersions))?;
        let mut repeated = RepeatedVersions::default();
        // What a resumed run has played again comes later, and counts.
        for RecordedVersions { episodes, completions, .. } in lines {
            let start = |EpisodeStart { step, lane, episode, versions }| {
                ((StepPart { step, lane }, episode), versions)
            };
            repeated.episodes.extend(episodes.into_iter().map(start));
            let planned = |own: CompletionVersions| {
                (own.seed, PlannedVersions { version: own.version, changes: own.changes })
            };
            repeated.completions.extend(completions.into_iter().map(planned));
        }
        Ok(repeated)
    }
}

/// The newest weights of a run, which all of its episodes use.
pub(super) struct InFlightWeights {
    router: Arc<PolicyRouter>,
    team: Arc<InFlightTeam>,
    /// Versions of all policies, in the workflow's order.
    versions: Vec<u64>,
    /// Recorded starts. `None` for a run that repeats no other.
    repeated: Option<HashMap<(StepPart, usize), Vec<u64>>>,
    /// Starts since the last record.
    starts: Vec<EpisodeStart>,
}

impl InFlightWeights {
    /// Weights with `versions` at first. Returns `None` if episodes end with the weights that they begin with. To repeat a
    /// run, the engine keeps as many versions as its `staleness` allows.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn new(
        in_flight: InFlight,
        router: &Arc<PolicyRouter>,
        trained: BTreeSet<usize>,
        versions: Vec<u64>,
        (repeated, staleness): (Option<RepeatedVersions>, u64),
    ) -> Result<Option<InFlightWeights>, Error> {
        let cache = match in_flight {
            InFlight::Off => return Ok(None),
            InFlight::Recompute => OldCache::Recompute,
            InFlight::Keep => OldCache::Keep,
        };
        if repeated.is_some() {
            router.keep_versions(usize::try_from(staleness + 1).unwrap_or(usize::MAX))?;
        }
        let (completions, episodes) = repeated.map(|own| (own.completions, own.episodes)).unzip();
        let team = Arc::new(InFlightTeam::new(Arc::clone(router), trained, cache, completions));
        let router = Arc::clone(router);
        Ok(Some(InFlightWeights { router, team, versions, repeated: episodes, starts: Vec::new() }))
    }

    /// Takes new weights over, also for completions in progress.
    ///
    /// # Errors
    /// If they don't fit the engine.
    pub fn take_over(&mut self, policies: PolicyVersions) -> Result<(), Error> {
        for (policy, version) in policies.versions() {
            if let Some(own) = self.versions.get_mut(*policy) {
                *own = *version;
            }
        }
        policies.take_over(&self.router)
    }

    /// Returns the weights of a step's episodes.
    pub fn of_step(&self) -> StepWeights {
        let team = Arc::clone(&self.team) as Arc<dyn Generate>;
        StepWeights { versions: self.versions.clone(), source: WeightSource::Generator(team) }
    }

    /// Returns the weights of an evaluation, during which nothing is trained.
    pub fn of_evaluation(&self) -> StepWeights {
        StepWeights { versions: self.versions.clone(), source: WeightSource::Session }
    }

    /// Starts an episode. Returns the versions that it starts with.
    pub fn start(&mut self, part: StepPart, episode: usize) -> Vec<u64> {
        let recorded = self.repeated.as_ref().and_then(|starts| starts.get(&(part, episode)));
        let versions = recorded.unwrap_or(&self.versions).clone();
        let StepPart { step, lane } = part;
        self.starts.push(EpisodeStart { step, lane, episode, versions: versions.clone() });
        versions
    }

    /// Takes the versions that were used since the last call, when a step is handed over.
    pub fn take_record(&mut self, step: u64) -> RecordedVersions {
        let mut completions = self.team.take_recorded();
        completions.sort_by_key(|own| own.seed);
        RecordedVersions { step, episodes: std::mem::take(&mut self.starts), completions }
    }
}
