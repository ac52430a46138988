//! State that all requests share.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use parking_lot::RwLock;
use pl_types::{Completion, Generate, Request};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::adapter_loader::{AdapterLoader, LoadedAdapters};
use crate::config::ServerConfig;
use crate::control::EngineControl;
use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::models::ServedModel;
use crate::team::Team;

/// Models with the engine that serves them.
pub struct Service {
    /// Policies, and adapters that clients have loaded.
    models: RwLock<Vec<Arc<ServedModel>>>,
    /// Names of policies that are hosted models, which this server doesn't offer.
    hosted: Vec<String>,
    pub(crate) adapters: Option<LoadedAdapters>,
    control: Option<Arc<dyn EngineControl>>,
    team: Option<(String, Arc<dyn Team>)>,
    pub(crate) generator: Arc<dyn Generate>,
    pub(crate) config: ServerConfig,
    pub(crate) metrics: Metrics,
    permits: Arc<Semaphore>,
    /// Seconds since 1970 at the start of the server.
    pub(crate) started: u64,
}

/// Target of a request, named by its `model`.
pub(crate) enum Asked {
    Policy(Arc<ServedModel>),
    Team(Arc<dyn Team>),
}

impl Service {
    /// Creates a service. `team` has the team under the name by which requests ask for it.
    pub fn new(
        models: Vec<ServedModel>,
        team: Option<(String, Arc<dyn Team>)>,
        generator: Arc<dyn Generate>,
        config: ServerConfig,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(config.limits.requests.min(Semaphore::MAX_PERMITS)));
        let metrics = Metrics::new();
        let models = RwLock::new(models.into_iter().map(Arc::new).collect());
        Self {
            models,
            hosted: Vec::new(),
            adapters: None,
            control: None,
            team,
            generator,
            config,
            metrics,
            permits,
            started: unix_time(),
        }
    }

    /// Names the policies that are hosted models: a request for one is refused with the reason.
    #[must_use]
    pub fn with_hosted(self, hosted: Vec<String>) -> Self {
        Self { hosted, ..self }
    }

    /// Lets clients load adapters while the server runs. A client that may send requests can then make the server
    /// read folders on its machine.
    #[must_use]
    pub fn with_adapters(self, loader: Arc<dyn AdapterLoader>) -> Self {
        Self { adapters: Some(LoadedAdapters::new(loader)), ..self }
    }

    /// Lets clients pause the engine and replace the weights of models while the server runs. As with adapters, they can
    /// then make the server read folders on its machine.
    #[must_use]
    pub fn with_control(self, control: Arc<dyn EngineControl>) -> Self {
        Self { control: Some(control), ..self }
    }

    /// Returns the commands to the engine.
    ///
    /// # Errors
    /// Status 404 if the server takes none.
    pub(crate) fn control(&self) -> Result<&dyn EngineControl, ApiError> {
        let message = "this server takes no commands; start it with --allow-runtime-weights";
        self.control.as_deref().ok_or_else(|| ApiError::with_status(StatusCode::NOT_FOUND, message))
    }

    /// Returns the names of all models, the team's last.
    pub fn names(&self) -> Vec<String> {
        let team = self.team.iter().map(|(name, _)| name.clone());
        self.models().iter().map(|model| model.name.clone()).chain(team).collect()
    }

    pub(crate) fn models(&self) -> Vec<Arc<ServedModel>> {
        self.models.read().clone()
    }

    pub(crate) fn add_model(&self, model: ServedModel) {
        self.models.write().push(Arc::new(model));
    }

    /// Replaces the description of a model of the same name.
    pub(crate) fn replace_model(&self, new: ServedModel) {
        let mut models = self.models.write();
        if let Some(model) = models.iter_mut().find(|model| model.name == new.name) {
            *model = Arc::new(new);
        }
    }

    pub(crate) fn remove_model(&self, name: &str) {
        self.models.write().retain(|model| model.name != name);
    }

    /// Returns the model or the team of a name. A request without a name means the only policy.
    ///
    /// # Errors
    /// Status 404 if there is no model of this name.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<Asked, ApiError> {
        let models = self.models();
        if let (None, [only]) = (name, models.as_slice()) {
            return Ok(Asked::Policy(Arc::clone(only)));
        }
        let list = || self.names().iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let Some(name) = name else {
            return Err(ApiError::field("model", format!("`model` is missing; this server has {}", list())));
        };
        if let Some(model) = models.into_iter().find(|model| model.name == name) {
            return Ok(Asked::Policy(model));
        }
        match &self.team {
            Some((team, played)) if team == name => Ok(Asked::Team(Arc::clone(played))),
            _ => {
                let mut message = format!("there is no model `{name}`; this server has {}", list());
                if self.hosted.iter().any(|hosted| hosted == name) {
                    message.push_str(&format!("; the policy `{name}` is a hosted model: ask its own server"));
                }
                let (param, code) = (Some("model".into()), Some("model_not_found"));
                Err(ApiError { status: StatusCode::NOT_FOUND, message, param, code })
            }
        }
    }

    /// Returns the policy of a name, for endpoints that a team has no use for.
    ///
    /// # Errors
    /// As [`Self::find`]; status 400 for the team.
    pub(crate) fn policy(&self, name: Option<&str>) -> Result<Arc<ServedModel>, ApiError> {
        match self.find(name)? {
            Asked::Policy(model) => Ok(model),
            Asked::Team(_) => Err(ApiError::field(
                "model",
                "a team answers /v1/chat/completions alone; name one of its policies",
            )),
        }
    }

    /// Checks the number of prompts of a request, each of which counts as a request in progress.
    ///
    /// # Errors
    /// If it is more than the server ever takes.
    pub(crate) fn check_prompts(&self, prompts: usize) -> Result<(), ApiError> {
        let most = self.config.limits.requests;
        if prompts > most {
            let message = format!(
                "the request has {prompts} prompts, each of which counts as a request in progress; this server takes at most \
                 {most} of these: send fewer prompts at a time"
            );
            return Err(ApiError::field("prompt", message));
        }
        Ok(())
    }

    /// Checks the number of completions of a request.
    ///
    /// # Errors
    /// If it is more than the server takes.
    pub(crate) fn check_count(&self, count: usize) -> Result<(), ApiError> {
        let most = self.config.limits.completions;
        if count > most {
            let message =
                format!("the request asks for {count} completions; this server takes at most {most}");
            return Err(ApiError::field("n", message));
        }
        Ok(())
    }

    /// Generates completions and counts their tokens. Dropping the future cancels the request.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) async fn generate(
        &self,
        request: Request,
        permit: Permit,
    ) -> Result<Vec<Completion>, ApiError> {
        let prompt = request.prompt.len();
        let completions = self.generator.generate(request).await?;
        drop(permit);
        self.count_tokens(prompt, completions.iter().map(|completion| completion.tokens.len()).sum());
        Ok(completions)
    }

    /// Counts the tokens of a finished request.
    pub(crate) fn count_tokens(&self, prompt: usize, completion: usize) {
        self.metrics.prompt_tokens.inc_by(prompt as u64);
        self.metrics.generation_tokens.inc_by(completion as u64);
    }

    /// Reserves one of the requests in progress, until the permit is dropped.
    ///
    /// # Errors
    /// Status 429 if all are taken.
    pub(crate) fn admit(&self) -> Result<Permit, ApiError> {
        match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => {
                self.metrics.running.inc();
                Ok(Permit { _permit: permit, running: self.metrics.running.clone() })
            }
            Err(_) => Err(ApiError::busy(self.config.limits.requests)),
        }
    }
}

/// Right of a request to be in progress.
pub(crate) struct Permit {
    _permit: OwnedSemaphorePermit,
    running: prometheus_client::metrics::gauge::Gauge,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.running.dec();
    }
}

/// Returns seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
