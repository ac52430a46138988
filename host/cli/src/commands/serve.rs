//! `pl-host serve`: the policies and the team of a workflow over OpenAI's API.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use pl_rollout::{AgentStep, EpisodeEvent};
use pl_run::play::task_from_text;
use pl_run::{
    CheckedWorkflow, Host, Player, RuntimeAdapters, Session, SessionOptions, open_run, select_device,
};
use pl_serve::{
    AdapterError, AdapterLoader, LoadedAdapter, ServedModel, ServerConfig, ServerLimits, Service, Team,
    TeamError, TeamEvent, TeamResult, TeamTurn,
};
use pl_types::is_loopback;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::app::App;
use crate::arguments::common::WorkflowArgs;
use crate::arguments::serve::ServeArgs;
use crate::exit::{CommandError, CommandResult};
use crate::interrupt::first_signal;
use crate::stderr;

use super::serve_control::SessionControl;

pub fn run(app: &App, options: &ServeArgs) -> CommandResult {
    let key = key(options)?;
    let (checked, session) = open(app, options)?;
    let (models, hosted) = models(&checked, &session)?;
    if checked.workflow.policies.iter().any(|policy| policy.name == options.team) {
        let name = &options.team;
        return Err(CommandError::input(format!("a policy is named {name} too; give --team another name")));
    }
    let scenario = checked.scenario(options.scenario.as_deref())?;
    let player = session.player(scenario).ok_or_else(|| CommandError::failed("the scenario is missing"))?;
    let team: Arc<dyn Team> = Arc::new(PlayedTeam(player));
    let limits = ServerLimits { requests: options.max_requests, ..ServerLimits::default() };
    let config = ServerConfig { key, limits };
    let mut service = Service::new(models, Some((options.team.clone(), team)), session.generator(), config)
        .with_hosted(hosted);
    if options.allow_runtime_adapters {
        service = service.with_adapters(Arc::new(EngineAdapters(session.runtime_adapters())));
    }
    if options.allow_runtime_weights {
        let control = Arc::new(session.runtime_control());
        service = service.with_control(Arc::new(SessionControl(control)));
    }
    app.host.block_on(listen(&app.host, options.listen, service))
}

/// Returns the key that requests must carry.
fn key(options: &ServeArgs) -> Result<Option<String>, CommandError> {
    match &options.key_variable {
        None if is_loopback(options.listen.ip()) => Ok(None),
        None => Err(CommandError::input(format!(
            "anyone who can reach {} could use the models; name an environment variable with a key (--key-variable), or \
             listen on 127.0.0.1",
            options.listen
        ))),
        Some(name) => match std::env::var(name) {
            Ok(key) if !key.is_empty() => Ok(Some(key)),
            _ => Err(CommandError::input(format!(
                "the environment variable {name} is not set; it has the server's key"
            ))),
        },
    }
}

/// Opens a workflow file, or a run folder with its newest checkpoint.
fn open(app: &App, options: &ServeArgs) -> Result<(CheckedWorkflow, Session), CommandError> {
    let session = SessionOptions {
        seed: 0,
        checkpoint: options.checkpoint.clone(),
        own_weights: options.allow_runtime_weights,
    };
    if !options.file.is_dir() {
        let (given, permissions) = (options.given.clone(), options.permissions.clone());
        let source = WorkflowArgs { file: options.file.clone(), given, permissions };
        let checked = app.open_to_play(&source)?;
        let device = select_device(&app.host, options.device.into())?;
        let session = Session::open(&app.host, &checked, device, &session)?;
        return Ok((checked, session));
    }
    if !options.given.command_line()?.is_empty() {
        let message = "--set and --params go with a workflow file; a run folder has its own settings";
        return Err(CommandError::input(message));
    }
    let device = select_device(&app.host, options.device.into())?;
    app.with_consent(|| open_run(&app.host, &options.file, device, &session, options.trust))
}

/// Returns the policies of a session as models of the API, and the names of those that are hosted models: these take no prompts
/// in token ids.
fn models(
    checked: &CheckedWorkflow,
    session: &Session,
) -> Result<(Vec<ServedModel>, Vec<String>), CommandError> {
    let (mut models, mut hosted) = (Vec::new(), Vec::new());
    for policy in session.policies() {
        let block = checked.workflow.policies.get(policy.policy);
        let block = block.ok_or_else(|| CommandError::failed("a policy is missing in the workflow"))?;
        if pl_run::is_hosted(&checked.workflow, block) {
            hosted.push(block.name.clone());
            continue;
        }
        models.push(ServedModel {
            name: block.name.clone(),
            policy: policy.policy,
            tokenizer: policy.tokenizer,
            template: policy.template,
            max_positions: policy.max_positions,
            date: session.date(),
            base: policy.model,
            model_hash: policy.model_hash,
            is_adapter: policy.has_adapter,
        });
    }
    Ok((models, hosted))
}

async fn listen(host: &Host, address: SocketAddr, service: Service) -> CommandResult {
    let failed = |error: std::io::Error| CommandError::failed(format!("cannot listen on {address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    stderr::line(&format!("serving {} on http://{address}/v1 (Ctrl-C stops)", service.names().join(", ")));
    pl_serve::serve(listener, service, first_signal(host))
        .await
        .map_err(|error| CommandError::failed(format!("the server stopped: {error}")))
}

/// The session's engine as a loader of adapters.
struct EngineAdapters(RuntimeAdapters);

#[async_trait]
impl AdapterLoader for EngineAdapters {
    async fn load(&self, base: usize, folder: &Path, version: u64) -> Result<LoadedAdapter, AdapterError> {
        let (adapters, folder) = (self.0.clone(), folder.to_path_buf());
        let (policy, checksum) = blocking(move || adapters.load(base, &folder, version)).await?;
        Ok(LoadedAdapter { policy, checksum })
    }

    async fn unload(&self, policy: usize) -> Result<(), AdapterError> {
        let adapters = self.0.clone();
        blocking(move || adapters.unload(policy)).await
    }
}

/// Runs work that reads files and waits for the engine.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, pl_run::Error> + Send + 'static,
) -> Result<T, AdapterError> {
    let done = tokio::task::spawn_blocking(work).await;
    let failed = |error: &dyn std::fmt::Display| AdapterError(error.to_string());
    done.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}

/// The team of a workflow as a model.
struct PlayedTeam(Player);

#[async_trait]
impl Team for PlayedTeam {
    async fn play(
        &self,
        task: &str,
        seed: u64,
        events: UnboundedSender<TeamEvent>,
    ) -> Result<TeamResult, TeamError> {
        let failure = |error: pl_run::Error| match error {
            pl_run::Error::Task { cause, .. } => TeamError::Task(cause),
            error => TeamError::Episode(error.to_string()),
        };
        let task = task_from_text(task).map_err(failure)?;
        let (sender, played) = unbounded_channel();
        let playing = self.0.play(seed, task, sender);
        let (episode, ()) = tokio::join!(playing, relay(played, &events));
        let episode = episode.map_err(failure)?;
        match episode.summary {
            Some(summary) => Ok(TeamResult { truncated: summary.truncated }),
            None => {
                let failures: Vec<String> =
                    episode.failures.iter().map(|failure| failure.describe()).collect();
                Err(TeamError::Episode(failures.join("; ")))
            }
        }
    }
}

/// Passes on each turn of an episode once its agent has acted, and that another one has begun.
async fn relay(mut events: UnboundedReceiver<EpisodeEvent>, team_events: &UnboundedSender<TeamEvent>) {
    // Agents of one node are prompted one after another before the first of them acts.
    let mut prompted: Vec<(String, String)> = Vec::new();
    while let Some(event) = events.recv().await {
        match event {
            EpisodeEvent::Prompted { agent, mut text, .. } => {
                // The request may be gone.
                let _ = team_events.send(TeamEvent::Prompted);
                let mut content = String::new();
                while let Some(chunk) = text.recv().await {
                    content.push_str(&chunk.text);
                }
                prompted.push((agent, content));
            }
            EpisodeEvent::Acted(AgentStep { agent, action, prompt_tokens, tokens, .. }) => {
                // An attempt that failed has left prompts behind: the last one of the agent counts.
                let last = prompted.iter().rposition(|(name, _)| *name == agent);
                let content = last.map(|index| prompted.swap_remove(index).1).unwrap_or_default();
                let turn = TeamTurn { agent, content, action, prompt_tokens, tokens };
                let _ = team_events.send(TeamEvent::Turn(turn));
            }
            EpisodeEvent::Drawn(_) | EpisodeEvent::Restarted(_) | EpisodeEvent::PromptTooLong { .. } => {}
        }
    }
}
