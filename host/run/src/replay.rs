//! Replay of a run's episodes: the plugins run again on the recorded completions and sandbox verdicts, and
//! any difference is reported.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::{StreamExt, stream};
use pl_dsl::workflow::Evaluation;
use pl_plugin::{Corpora, Services};
use pl_record::{TraceFile, Traces, missing_traces};
use pl_rollout::{
    Agreement, Difference, DisabledGenerator, EpisodeEvent, EpisodeSetup, EventKind, ReplayResult, Trace,
};
use pl_sandbox::DeniedSandbox;
use pl_types::{EpisodeId, Phase};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::chat::ChatFormats;
use crate::design::ScenarioDesigner;
use crate::error::Error;
use crate::evaluation::with_roles;
use crate::host::Host;
use crate::lock::start_date;
use crate::open_run::open_recorded;
use crate::play::watched;
use crate::progress::Activity;
use crate::session::{SessionScenario, chat_formats, episode_setups};
use crate::stored::StoredWorkflow;

/// Episodes that are replayed at a time.
const IN_FLIGHT: usize = 32;

/// Largest number of candidates of a tree's node that a trace may have. A workflow allows fewer.
const MOST_CANDIDATES: u32 = 1 << 16;

/// Traces of a run, as far as it has been played.
pub struct RunTraces {
    run: PathBuf,
    traces: Traces,
    files: Vec<TraceFile>,
}

impl RunTraces {
    /// Lists the traces of a run folder.
    ///
    /// # Errors
    /// [`Error::RunFolder`] if it is not a run folder, [`Error::NoTraces`] if it has no traces.
    pub fn open(run: &Path) -> Result<RunTraces, Error> {
        StoredWorkflow::read(run)?;
        let traces = Traces::for_run(run);
        let files = traces.files()?;
        if files.is_empty() {
            return Err(Error::NoTraces { run: run.to_path_buf() });
        }
        Ok(RunTraces { run: run.to_path_buf(), traces, files })
    }

    /// Returns the paths of the trace files that the run's metrics have and its folder lacks.
    ///
    /// # Errors
    /// If the metrics can't be read.
    pub fn missing(&self) -> Result<Vec<PathBuf>, Error> {
        let missing = missing_traces(self.traces.run())?;
        Ok(missing.iter().map(|file| self.traces.path(file)).collect())
    }

    /// Returns the traces of all attempts, file by file.
    pub fn traces(&self) -> impl Iterator<Item = Result<Trace, Error>> {
        self.files.iter().flat_map(|file| self.read(file))
    }

    /// Reads the traces of a file one by one: a small file may have more than fits into memory.
    fn read(&self, file: &TraceFile) -> impl Iterator<Item = Result<Trace, Error>> + use<> {
        let (traces, error) = match self.traces.read::<Trace>(file) {
            Ok(traces) => (Some(traces), None),
            Err(error) => (None, Some(Err(Error::Record(error)))),
        };
        let checked = |trace: Result<Trace, pl_record::Error>| match trace {
            Ok(trace) if trace.candidates > MOST_CANDIDATES => {
                let (episode, candidates) = (EpisodeId::from_key(&trace.key), trace.candidates);
                Err(Error::InvalidTrace { episode, candidates })
            }
            trace => trace.map_err(Error::Record),
        };
        error.into_iter().chain(traces.into_iter().flatten().map(checked))
    }

    /// Finds the trace of an episode: of several attempts that match, the last.
    ///
    /// # Errors
    /// [`Error::NoEpisode`] if the run has no such episode.
    pub fn find(&self, id: &EpisodeId) -> Result<Trace, Error> {
        let missing = |missing: String| Error::NoEpisode { run: self.run.clone(), missing };
        let file = TraceFile { step: id.step, evaluation: id.evaluation.clone() };
        if !self.files.contains(&file) {
            return Err(missing(match &id.evaluation {
                Some(name) => format!("evaluation {name} after step {}", id.step),
                None => format!("step {}", id.step),
            }));
        }
        let mut found = None;
        for trace in self.read(&file) {
            let trace = trace?;
            if id.matches(&trace.key) {
                found = Some(trace);
            }
        }
        found.ok_or_else(|| missing(format!("episode {id}")))
    }

    /// Returns the episode that was recorded last.
    ///
    /// # Errors
    /// If the traces can't be read, or there are no traces.
    pub fn last_episode(&self) -> Result<EpisodeId, Error> {
        let mut last = None;
        if let Some(file) = self.files.last() {
            for trace in self.read(file) {
                last = Some(trace?);
            }
        }
        let last = last.ok_or_else(|| Error::NoTraces { run: self.run.clone() })?;
        Ok(EpisodeId::from_key(&last.key))
    }
}

/// Returns true if an attempt failed, or one of its candidates did.
pub fn has_fault(trace: &Trace) -> bool {
    trace.end.failure.is_some()
        || trace.events.iter().any(|event| matches!(event.kind, EventKind::Fault { .. }))
}

/// Plugins of a run, ready to replay its episodes.
pub struct Replayer {
    scenarios: Vec<SessionScenario>,
    /// Designers of the scenarios that the run trained with one.
    designers: Vec<Option<ScenarioDesigner>>,
    /// Setup of each evaluation, by name.
    evaluations: BTreeMap<String, Arc<EpisodeSetup>>,
    formats: ChatFormats,
}

impl Replayer {
    /// Loads the plugins that the run was played with, or the builds in `plugins` instead (component files by
    /// plugin name), and the tokenizers of its models. No weights are loaded, and no requests are sent. With
    /// `trust`, a run of somebody else may use the components and folders that it names.
    ///
    /// # Errors
    /// [`Error::ForeignRun`]; if a plugin is another build than the run was played with, or the run has no such
    /// plugin.
    pub fn new(
        host: &Host,
        run: &Path,
        plugins: &BTreeMap<String, PathBuf>,
        trust: bool,
    ) -> Result<Replayer, Error> {
        let (checked, lock) = open_recorded(host, run, plugins, trust)?;
        let formats = chat_formats(&checked, start_date(&lock))?;
        let denied = DeniedSandbox("a replay runs no code".to_owned());
        let services = Services { sandbox: Arc::new(denied), corpora: Corpora::default() };
        let environments = checked.environments_with(|_| Ok(services.clone()))?;
        let setups = episode_setups(&checked, &formats, &environments, Arc::new(DisabledGenerator))?;
        let of_evaluation = |evaluation: &Evaluation| {
            let setup = setups.get(evaluation.scenario)?.clone();
            Some((evaluation.name.clone(), Arc::new(with_roles(setup, &evaluation.roles))))
        };
        let evaluations = checked.workflow.evaluations.iter().filter_map(of_evaluation).collect();
        let scenario = |(environment, setup)| SessionScenario { environment, setup: Arc::new(setup) };
        let scenarios: Vec<SessionScenario> = environments.into_iter().zip(setups).map(scenario).collect();
        let designer = |(index, own): (usize, _)| ScenarioDesigner::new(&checked, index, own, &formats);
        let designers = scenarios.iter().enumerate().map(designer).collect::<Result<_, Error>>()?;
        Ok(Replayer { scenarios, designers, evaluations, formats })
    }

    /// Returns the setup that an attempt was played with.
    fn setup_of(&self, trace: &Trace) -> Arc<EpisodeSetup> {
        let own = match &trace.key.phase {
            Phase::Evaluate(name) => self.evaluations.get(name),
            Phase::Train | Phase::Play => None,
        };
        let is_it = |own: &SessionScenario| own.setup.scenario.as_deref() == trace.scenario.as_deref();
        let scenario = self.scenarios.iter().position(is_it);
        let designer = scenario.and_then(|index| self.designers.get(index)?.as_ref());
        let designed = designer.filter(|_| own.is_none()).and_then(|designer| designer.setup_of(trace));
        // A stored workflow has at least one scenario.
        let of_scenario = || own.unwrap_or(&self.scenarios[scenario.unwrap_or_default()].setup);
        designed.unwrap_or_else(|| Arc::clone(of_scenario()))
    }

    /// Replays one attempt.
    pub fn replay(&self, host: &Host, trace: &Trace) -> ReplayResult {
        host.block_on(pl_rollout::replay(&self.setup_of(trace), trace))
    }

    /// Replays one attempt whose events go to `watch`, which ends when the episode does.
    ///
    /// # Errors
    /// If `watch` fails.
    pub fn replay_watched<E, W>(
        &self,
        host: &Host,
        trace: &Trace,
        watch: impl FnOnce(UnboundedReceiver<EpisodeEvent>) -> W,
    ) -> Result<ReplayResult, E>
    where
        W: Future<Output = Result<(), E>>,
    {
        let playing = async |sender| {
            let setup = EpisodeSetup { observer: Some(sender), ..EpisodeSetup::clone(&self.setup_of(trace)) };
            Ok(pl_rollout::replay(&setup, trace).await)
        };
        watched(host, playing, watch)
    }

    /// Replays all attempts of a run, or only those with a fault. Hands each result to `finished`, in order.
    ///
    /// # Errors
    /// If a trace can't be read, or `finished` fails.
    pub fn replay_all<E: From<Error>>(
        &self,
        host: &Host,
        run: &RunTraces,
        only_faults: bool,
        mut finished: impl FnMut(Agreement) -> Result<(), E>,
    ) -> Result<(), E> {
        for file in &run.files {
            let wanted = |trace: &Result<Trace, Error>| {
                trace.as_ref().map_or(true, |trace| !only_faults || has_fault(trace))
            };
            let total = run.read(file).filter(wanted).count() as u64;
            let mut tracker = host.progress().start(Activity::Replay);
            tracker.update(0, total);
            host.block_on(async {
                let mut replays = stream::iter(run.read(file).filter(wanted).map(|trace| async move {
                    let trace = trace?;
                    let setup = self.setup_of(&trace);
                    let replay = async move { pl_rollout::replay(&setup, &trace).await.agreement };
                    tokio::spawn(replay).await.map_err(Error::from)
                }))
                .buffered(IN_FLIGHT);
                let mut done = 0;
                while let Some(agreement) = replays.next().await {
                    done += 1;
                    tracker.update(done, total);
                    finished(agreement?)?;
                }
                Ok::<(), E>(())
            })?;
        }
        Ok(())
    }

    /// Returns a text that shows a difference. Tokens are decoded.
    pub fn describe(&self, difference: &Difference) -> String {
        // All scenarios have the same agents. Those of designs have names of their own.
        let agents = &self.scenarios[0].setup.agents;
        difference.show(|agent, tokens| {
            let runtime = agents.iter().find(|known| known.name == agent);
            let format = self.formats.get(runtime.map_or(0, |runtime| runtime.policy));
            format.map(|format| format.tokenizer.decode(tokens, false)).unwrap_or_default()
        })
    }
}
