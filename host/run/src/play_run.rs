//! Episodes of a recorded run that a person plays: from a task, or on from a turn of a recorded episode.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_dsl::workflow::Workflow;
use pl_record::RunFolder;
use pl_rollout::{Attempt, Continuation, EpisodeEvent, EpisodeSetup, Trace, continue_episode};
use pl_types::{EpisodeId, Phase};
use tch::Device;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::design::ScenarioDesigner;
use crate::error::Error;
use crate::evaluation::of_evaluation;
use crate::host::Host;
use crate::open_run::open_run;
use crate::origin::is_own;
use crate::play::{first_task, task_from_text, watched};
use crate::replay::RunTraces;
use crate::session::{Session, SessionOptions};
use crate::stored::StoredWorkflow;
use crate::workflow::CheckedWorkflow;

/// Start of an episode that is played.
#[derive(Debug, Clone)]
pub enum PlayStart {
    /// A task of the first scenario: a record as JSON, or a question in words. `None` for its first task.
    Task(Option<String>),
    /// A turn of a recorded episode.
    Turn {
        episode: EpisodeId,
        /// Number of node visits that are played again.
        node_visit: u32,
        /// Texts that take the place of prompts at that visit, with the markers of the chat template, by agent.
        prompts: HashMap<String, String>,
        /// Number of the draw; 0 has the recorded random streams.
        draw: u64,
    },
}

/// Run whose models are loaded, ready to play.
pub struct PlayableRun {
    run: PathBuf,
    checked: CheckedWorkflow,
    session: Session,
}

/// Returns the names of a run's checkpoints, the newest first.
///
/// # Errors
/// If the folder of checkpoints can't be read.
pub fn checkpoint_names(run: &Path) -> Result<Vec<String>, Error> {
    let folder = RunFolder::checkpoints(run);
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(Vec::new()) };
    let is_checkpoint = |name: &String| name == "best" || name.starts_with("step-");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(is_checkpoint).collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

impl PlayableRun {
    /// Loads the models of a run with the weights of a checkpoint of [`checkpoint_names`], or with the newest ones.
    /// A run of somebody else needs `trust`: its workflow names the models and plugins that are loaded.
    ///
    /// # Errors
    /// [`Error::ForeignRun`]; [`Error::NoCheckpoint`]; if a plugin is another build than the run was played with; if a
    /// model or checkpoint can't be loaded.
    pub fn open(
        host: &Host,
        run: &Path,
        checkpoint: Option<&str>,
        device: Device,
        trust: bool,
    ) -> Result<PlayableRun, Error> {
        if !trust && !is_own(run) {
            let models = StoredWorkflow::read(run)?.workflow.models;
            let opens = models.into_iter().map(|model| format!("model {}: {}", model.name, model.source));
            return Err(Error::ForeignRun { path: run.to_path_buf(), opens: opens.collect() });
        }
        let checkpoint = match checkpoint {
            None => None,
            Some(name) if checkpoint_names(run)?.iter().any(|known| known == name) => {
                Some(RunFolder::checkpoints(run).join(name))
            }
            Some(name) => return Err(Error::NoCheckpoint { path: RunFolder::checkpoints(run).join(name) }),
        };
        let options = SessionOptions { checkpoint, ..SessionOptions::default() };
        let (checked, session) = open_run(host, run, device, &options, trust)?;
        Ok(PlayableRun { run: run.to_path_buf(), checked, session })
    }

    /// Plays an episode. Its events go to `watch`, which ends when the episode does, or ends it by an error. Returns the
    /// attempt, successful or not.
    ///
    /// # Errors
    /// If there is no such episode or task, a prompt can't be encoded, the episode can't be played, or `watch` fails.
    pub fn play<E, W>(
        &self,
        host: &Host,
        start: PlayStart,
        watch: impl FnOnce(UnboundedReceiver<EpisodeEvent>) -> W,
    ) -> Result<Trace, E>
    where
        E: From<Error>,
        W: Future<Output = Result<(), E>>,
    {
        match start {
            PlayStart::Task(text) => {
                let task = match text {
                    Some(text) => task_from_text(&text)?,
                    None => first_task(host, &self.checked, &self.session, 0)?,
                };
                let missing = || Error::NoScenario { scenario: String::new(), scenarios: Vec::new() };
                let player = self.session.player(0).ok_or_else(missing)?;
                let playing = async |sender| {
                    let played = player.play(self.session.seed, task, sender).await.map_err(E::from)?;
                    played.trace.ok_or_else(|| E::from(Error::NoTraces { run: self.run.clone() }))
                };
                watched(host, playing, watch)
            }
            PlayStart::Turn { episode, node_visit, prompts, draw } => {
                let trace = RunTraces::open(&self.run)?.find(&episode)?;
                let setup = self.setup_of(&trace)?;
                let prompts = self.encode(&setup, prompts)?;
                let versions = self.session.trainer.versions().into();
                let from = Continuation { node_visit, prompts, draw, versions };
                let playing = async |sender| {
                    let setup = EpisodeSetup { observer: Some(sender), fault_penalty: None, ..setup };
                    let Attempt { trace, .. } = continue_episode(&setup, &trace, &from).await;
                    Ok(trace)
                };
                watched(host, playing, watch)
            }
        }
    }

    /// Returns the setup that an episode was played with: that of its evaluation, of its design, or of training in its scenario.
    fn setup_of(&self, trace: &Trace) -> Result<EpisodeSetup, Error> {
        let Workflow { evaluations, .. } = &self.checked.workflow;
        let evaluation = match &trace.key.phase {
            Phase::Evaluate(name) => evaluations.iter().find(|evaluation| evaluation.name == *name),
            Phase::Train | Phase::Play => None,
        };
        let scenarios = &self.session.scenarios;
        let named =
            scenarios.iter().position(|own| own.setup.scenario.as_deref() == trace.scenario.as_deref());
        let scenario = evaluation.map(|evaluation| evaluation.scenario).or(named).unwrap_or_default();
        let own = &scenarios[scenario];
        if let Some(evaluation) = evaluation {
            return Ok(of_evaluation(EpisodeSetup::clone(&own.setup), evaluation));
        }
        let designer = ScenarioDesigner::new(&self.checked, scenario, own, &self.session.formats)?;
        let designed = designer.and_then(|designer| designer.setup_of(trace));
        Ok(EpisodeSetup::clone(&designed.unwrap_or_else(|| Arc::clone(&own.setup))))
    }

    fn encode(
        &self,
        setup: &EpisodeSetup,
        prompts: HashMap<String, String>,
    ) -> Result<HashMap<String, Vec<u32>>, Error> {
        let policies: BTreeMap<usize, _> =
            self.session.policies().into_iter().map(|policy| (policy.policy, policy)).collect();
        let encode = |(agent, text): (String, String)| {
            let policy = setup.agents.iter().find(|own| own.name == agent).map(|own| own.policy);
            let unknown = || Error::UnknownAgent { path: self.run.clone(), agent: agent.clone() };
            let policy = policies.get(&policy.ok_or_else(unknown)?).ok_or_else(unknown)?;
            let tokens = policy.tokenizer.encode(&text).map_err(Error::model(&policy.model))?;
            Ok((agent, tokens))
        };
        prompts.into_iter().map(encode).collect()
    }
}
