//! The episode in which a designer writes a design: one turn, whose action is the design and whose reward is its check.
//!
//! It is an episode like any other, so that its completion is a transition of the designer's policy, and so that it is
//! traced and replayed. The environment is the scenario's, for the view of the task alone. What the design's own episodes
//! solve is added to the reward when they have been played.

use std::sync::Arc;

use async_trait::async_trait;
use pl_dsl::format_design;
use pl_dsl::workflow::{Edge, LongPrompt, Node, Target, Turns};
use pl_plugin::call_log::CallLog;
use pl_plugin::{AgentScore, Completion, Outcome, PromptRequest, Scores, Snapshot, Task, Turn};
use pl_rollout::{Agent, AgentRuntime, Environment, Episode, EpisodeSetup, Fault, Reward};
use serde_json::{Map, Value};

use super::brief::DesignBrief;
use super::numbers::designer_number;
use super::prompt::{FittingPrompt, NoRoom, Shown, first_that_fits};
use super::propose::without_fences;
use super::team::{Assessment, TeamBuilder};
use super::view::TaskView;
use crate::chat::ChatEncoder;
use crate::session::has_critic;
use crate::workflow::CheckedWorkflow;

/// Returns the setup of the episodes in which the designer of a scenario writes. `scenario` is the scenario's own setup.
pub(crate) fn designer_setup(
    checked: &CheckedWorkflow,
    brief: &DesignBrief,
    builder: &Arc<TeamBuilder>,
    scenario: &EpisodeSetup,
    encoder: ChatEncoder,
) -> EpisodeSetup {
    let (workflow, designer) = (&checked.workflow, &brief.designer);
    let encoder = Arc::new(encoder);
    let name: Arc<str> = Arc::from(designer.name.as_str());
    let agent = DesignerAgent { brief: brief.clone(), encoder: Arc::clone(&encoder) };
    let runtime = AgentRuntime {
        name: designer.name.clone(),
        number: designer_number(workflow, brief.position),
        agent: Arc::new(agent),
        encoder,
        policy: designer.policy,
        sampling: brief.sampling.clone(),
        max_tokens: designer.max_tokens,
        stop: Vec::new(),
        long_prompt: LongPrompt::End,
        tool_rounds: 0,
        bootstraps: has_critic(workflow, designer.policy),
    };
    let edge = |to| vec![Edge { to, when: None }];
    EpisodeSetup {
        environment: Arc::new(DesignEnvironment {
            environment: Arc::clone(&scenario.environment),
            designer: Arc::clone(&name),
        }),
        agents: vec![runtime],
        reward: Arc::new(CheckReward { builder: Arc::clone(builder) }),
        team_weight: 1.0,
        local_weight: 0.0,
        scores_end: false,
        drawings: false,
        turns: Turns {
            max: 1,
            start: edge(Target::Node(0)),
            nodes: vec![Node { agents: vec![0], edges: edge(Target::End) }],
        },
        ..scenario.clone()
    }
}

/// Returns the design of an action.
pub(crate) fn design_of(action: &str) -> Option<String> {
    serde_json::from_str(action).ok()
}

/// The designer: its prompt shows the task, its action is the text of a design.
struct DesignerAgent {
    brief: DesignBrief,
    encoder: Arc<ChatEncoder>,
}

#[async_trait]
impl Agent for DesignerAgent {
    async fn prompt(&self, view: &str, _: &Turn, _: &CallLog) -> Result<Option<PromptRequest>, Fault> {
        let designer = &self.brief.designer;
        let view = TaskView::new(view);
        // A small context has no room for an example.
        let selections = [true, false].map(|example| Shown { best: Vec::new(), wrong: Vec::new(), example });
        let NoRoom { prompt, context } = match first_that_fits(&self.encoder, &self.brief, &view, selections)?
        {
            Ok(FittingPrompt { messages, .. }) => {
                return Ok(Some(PromptRequest { messages, ..PromptRequest::default() }));
            }
            Err(no_room) => no_room,
        };
        let cause = format!(
            "the prompt of {prompt} tokens and a design of {} don't fit the model's context of {context}; lower \
             `max_tokens` of the designer, or name fewer items in its palette",
            designer.max_tokens
        );
        Err(Fault::new("prompt", cause))
    }

    async fn parse(&self, _: &str, completion: &Completion, _: &CallLog) -> Result<String, Fault> {
        let design = format_design(without_fences(&completion.text));
        Ok(Value::String(design).to_string())
    }
}

/// The scenario's environment, as far as a designer sees it: the view of the task before the first turn.
struct DesignEnvironment {
    environment: Arc<dyn Environment>,
    designer: Arc<str>,
}

#[async_trait]
impl Environment for DesignEnvironment {
    async fn start(
        &self,
        task: &Task,
        seed: u64,
        stream: [u8; 32],
        call_log: &CallLog,
    ) -> Result<Box<dyn Episode>, Fault> {
        let mut episode = self.environment.start(task, seed, stream, call_log).await?;
        let view = episode.view(&self.designer).await?;
        Ok(Box::new(DesignEpisode { view, reproducible: episode.reproducible() }))
    }

    async fn restore(&self, _: &Snapshot, _: &CallLog) -> Result<Box<dyn Episode>, Fault> {
        Err(no_copies())
    }
}

/// State of an episode in which a design is written.
struct DesignEpisode {
    view: String,
    reproducible: bool,
}

#[async_trait]
impl Episode for DesignEpisode {
    async fn view(&mut self, _: &str) -> Result<String, Fault> {
        Ok(self.view.clone())
    }

    async fn apply(&mut self, _: &[(String, String)]) -> Result<Outcome, Fault> {
        Ok(Outcome { done: true, truncated: false, facts: Map::new(), evidence: "null".to_owned() })
    }

    async fn snapshot(&mut self) -> Result<Snapshot, Fault> {
        Err(no_copies())
    }

    fn reproducible(&self) -> bool {
        self.reproducible
    }
}

fn no_copies() -> Fault {
    Fault::new("snapshot", "an episode of a designer has no copies")
}

/// Reward of a design before any episode.
struct CheckReward {
    builder: Arc<TeamBuilder>,
}

#[async_trait]
impl Reward for CheckReward {
    async fn score(
        &self,
        _: &Task,
        actions: &[(String, String)],
        _: &Outcome,
        _: &CallLog,
    ) -> Result<Scores, Fault> {
        let design = actions.first().and_then(|(_, action)| design_of(action)).unwrap_or_default();
        let assessment = self.builder.assess(&design);
        let (team, success) = (assessment.reward(), matches!(assessment, Assessment::Sound(_)));
        let local =
            actions.iter().map(|(agent, _)| AgentScore { agent: agent.clone(), reward: 0.0, success });
        Ok(Scores { team, local: local.collect(), success })
    }
}
