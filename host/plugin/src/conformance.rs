//! Conformance checks of a plugin: the result of a call does not depend on earlier calls, a copy restored
//! from a snapshot has the same future, a generated task does not depend on the batch in which it is
//! generated, and the settings schema matches the settings that an item accepts.
//!
//! The checks are independent of the domain. Environments are episodes with the actions that the plugin's own
//! agents make of [`COMPLETIONS`], or with those of [`Samples::actions`]; agents read the views that its
//! environments show, or those of [`Samples::views`].

mod agents;
mod drive;
mod environments;
mod given_settings;
mod report;
mod rewards;
mod settings;

use std::sync::Arc;

use async_trait::async_trait;
use pl_types::{AnswerQuestions, Item, ItemKind, Question, QuestionError};

pub use self::given_settings::GivenSettingsError;
pub use self::report::{COMPLETIONS, Check, CheckResult, Report, Samples};
use crate::agent::Agent;
use crate::environment::Environment;
use crate::plugin::Plugin;
use crate::reward::Reward;
use crate::services::Services;

/// Policies of the checks: there is one of every name, and its answer is the last message.
struct EchoPolicies;

#[async_trait]
impl AnswerQuestions for EchoPolicies {
    fn has(&self, _: &str) -> bool {
        true
    }

    async fn answer(&self, question: &Question) -> Result<String, QuestionError> {
        Ok(question.messages.last().map(|message| message.text.clone()).unwrap_or_default())
    }

    fn is_reproducible(&self, _: &str) -> bool {
        true
    }
}

/// Checks all items of a plugin. The plugins in `others` provide missing counterparts: an environment for its
/// agents, or agents for its environment.
///
/// # Errors
/// [`Samples::settings`] has an item that no plugin has, or settings that their item refuses.
pub async fn check_plugin(
    plugin: &Plugin,
    others: &[Plugin],
    services: &Services,
    samples: &Samples,
) -> Result<Report, GivenSettingsError> {
    let mut report = Report::default();
    let all: Vec<&Plugin> = std::iter::once(plugin).chain(others).collect();
    given_settings::check_items(&all, samples)?;
    let episodes = drive::sample_episodes(&all, services, samples, &mut report).await;
    given_settings::check_accepted(&all, services, &episodes, samples).await?;
    let own: Vec<&Item> = plugin.items().iter().filter(|item| item.kind == ItemKind::Environment).collect();
    let has_step = |item: &Item| episodes.of_environment(&item.name).any(|played| !played.steps.is_empty());
    let has_view = |item: &Item| episodes.views.iter().any(|shown| shown.environment == item.name);
    // What an item refuses may be meant for another environment, unless all those of its plugin were tried.
    let has_views = !own.is_empty() && own.iter().all(|item| has_view(item));
    let has_steps = !own.is_empty() && own.iter().all(|item| has_step(item));
    let given = samples.views.iter().map(String::as_str).take(agents::MAX_VIEWS);
    let views: Vec<&str> = given.chain(episodes.views(agents::MAX_VIEWS)).collect();
    for item in plugin.items() {
        let settings = samples.settings.get(&item.name).cloned().unwrap_or_default();
        match item.kind {
            ItemKind::Environment => {
                if let Ok(environment) = Environment::new(plugin, &item.name, settings, services.clone()) {
                    environments::check_environment(
                        item,
                        &environment,
                        &episodes,
                        samples.level,
                        &mut report,
                    )
                    .await;
                }
            }
            ItemKind::Agent => {
                if let Ok(agent) = Agent::new(plugin, &item.name, settings) {
                    agents::check_agent(item, &agent, &views, has_views, &mut report).await;
                }
            }
            ItemKind::Reward => {
                if let Ok(reward) = Reward::new(plugin, &item.name, settings) {
                    let reward = reward.with_policies(Arc::new(EchoPolicies));
                    rewards::check_reward(item, &reward, &episodes, has_steps, &mut report).await;
                }
            }
        }
        settings::check_settings(plugin, item, services, &episodes, &mut report).await;
    }
    Ok(report)
}
