//! One stop of the turn cursor: agents of a node are asked, answer, act together and are scored.
//!
//! Flat and tree sampling both play their stops with these pieces.

use std::sync::Arc;

use pl_dsl::workflow::Node;
use pl_inference::{Completion, Finish, Request};
use pl_plugin::{Message, Outcome, Scores, Task, Turn};
use serde_json::{Map, Value};
use tokio::sync::mpsc::unbounded_channel;

use crate::tape::{Live, Tape};
use crate::trace::What;
use crate::turns::{Cursor, LastReward};
use crate::{Cast, Fault, Heard};

/// A question put to one agent at this stop.
#[derive(Debug, Clone)]
pub struct Question {
    /// Index into the cast's players.
    pub agent: usize,
    /// The agent's earlier visits.
    pub visit: u32,
    pub view: String,
    pub messages: Vec<Message>,
    pub prompt: Arc<[u32]>,
    pub stop: Arc<[String]>,
}

/// A completion and what it means.
#[derive(Debug, Clone)]
pub struct Answer {
    pub completion: Completion,
    /// JSON.
    pub action: String,
}

/// What came of the joint action of a stop.
#[derive(Debug, Clone)]
pub struct Step {
    pub outcome: Outcome,
    pub scores: Scores,
}

impl Cast {
    /// Reads the views of a node's agents, all from one state, and makes their prompts. An agent that skips
    /// the turn has no question.
    pub(crate) async fn ask(
        &self,
        live: &mut Live,
        node: &Node,
        cursor: &Cursor,
        tape: &mut Tape,
    ) -> Result<Vec<Question>, Fault> {
        let mut questions = Vec::with_capacity(node.agents.len());
        for &index in &node.agents {
            let Some(player) = self.players.get(index) else { continue };
            let name = Some(player.name.as_str());
            let named = |fault: Fault| Fault { agent: Some(player.name.clone()), ..fault };
            let view = live.view(&player.name, tape).await.map_err(named)?;
            let turn = Turn { agent: player.name.clone(), visit: cursor.visits(index) };
            let journal = tape.journal(name, "prompt");
            let request = player.agent.prompt(&view, &turn, &journal).await;
            tape.did(name, "prompt", &journal);
            let Some(request) = request.map_err(named)? else {
                tape.note(name, What::Skipped);
                continue;
            };
            let prompt = player.encoder.encode(&request.messages, &request.tools).map_err(named)?;
            tape.note(name, What::Asked { visit: turn.visit, prompt: prompt.clone() });
            let mut stop = request.stop;
            stop.extend(player.stop.iter().filter(|own| !stop.contains(own)).cloned().collect::<Vec<_>>());
            questions.push(Question {
                agent: index,
                visit: turn.visit,
                view,
                messages: request.messages,
                prompt: prompt.into(),
                stop: stop.into(),
            });
        }
        Ok(questions)
    }

    /// Samples one completion per seed.
    pub(crate) async fn complete(
        &self,
        question: &Question,
        seeds: Vec<[u8; 32]>,
    ) -> Result<Vec<Completion>, Fault> {
        let player = &self.players[question.agent];
        let wanted = seeds.len();
        let listener = self.listener.as_ref().map(|listener| {
            let (sender, text) = unbounded_channel();
            let (agent, visit) = (player.name.clone(), question.visit);
            // Nobody may be there any more to hear it.
            let _ = listener.send(Heard::Asked { agent, visit, messages: question.messages.clone(), text });
            sender
        });
        let request = Request {
            policy: player.policy,
            prompt: Arc::clone(&question.prompt),
            seeds,
            max_tokens: player.max_tokens,
            sampling: player.sampling.clone(),
            stop: Arc::clone(&question.stop),
            stop_ids: Arc::new([]),
            top_logprobs: 0,
            listener,
        };
        let completions =
            self.generator.generate(request).await.map_err(|e| Fault::of(&player.name, "generation", e))?;
        if completions.len() != wanted {
            let cause = format!("{wanted} completions were asked for, {} came", completions.len());
            return Err(Fault::of(&player.name, "generation", cause));
        }
        Ok(completions)
    }

    /// Notes what the model said.
    pub(crate) fn said(&self, question: &Question, completion: &Completion, tape: &mut Tape) {
        let Completion { text, tokens, .. } = completion;
        let (text, finish, tokens) = (text.clone(), finish_of(completion), tokens.clone());
        tape.note(Some(&self.players[question.agent].name), What::Said { text, finish, tokens });
    }

    /// Asks the agent what a completion means.
    pub(crate) async fn parse(
        &self,
        question: &Question,
        completion: Completion,
        tape: &mut Tape,
    ) -> Result<Answer, Fault> {
        let player = &self.players[question.agent];
        let name = Some(player.name.as_str());
        let said = pl_plugin::Completion::new(completion.text.clone(), finish_of(&completion));
        let journal = tape.journal(name, "parse");
        let action = player.agent.parse(&question.view, &said, &journal).await;
        tape.did(name, "parse", &journal);
        let action = action.map_err(|fault| Fault { agent: Some(player.name.clone()), ..fault })?;
        tape.note(name, What::Means(action.clone()));
        Ok(Answer { completion, action })
    }

    /// Applies the joint action and scores it at once, before anything else touches the environment.
    pub(crate) async fn act(
        &self,
        live: &mut Live,
        task: &Task,
        joint: &[(&Question, &Answer)],
        tape: &mut Tape,
    ) -> Result<Step, Fault> {
        let actions: Vec<(String, String)> = joint
            .iter()
            .map(|(question, answer)| (self.players[question.agent].name.clone(), answer.action.clone()))
            .collect();
        let outcome = live.apply(&actions, tape).await?;
        tape.note(None, What::Outcome(outcome.clone()));
        let journal = tape.journal(None, "score");
        let scores = self.reward.score(task, &actions, &outcome, &journal).await;
        tape.did(None, "score", &journal);
        let scores = scores?;
        tape.note(None, What::Scores(scores.clone()));
        Ok(Step { outcome, scores })
    }
}

fn finish_of(completion: &Completion) -> pl_plugin::Finish {
    match completion.finish {
        Finish::Stop => pl_plugin::Finish::Stop,
        Finish::Length => pl_plugin::Finish::Length,
    }
}

impl Step {
    /// Team weight times team part plus local weight times local part.
    pub fn reward(&self, cast: &Cast, agent: usize) -> f64 {
        cast.team_weight * self.scores.team + cast.local_weight * self.local(cast, agent)
    }

    pub fn local(&self, cast: &Cast, agent: usize) -> f64 {
        self.own(cast, agent).map_or(0.0, |s| s.reward)
    }

    pub fn success(&self, cast: &Cast, agent: usize) -> bool {
        self.own(cast, agent).is_some_and(|s| s.success)
    }

    fn own(&self, cast: &Cast, agent: usize) -> Option<&pl_plugin::AgentScore> {
        let name = &cast.players[agent].name;
        self.scores.local.iter().find(|s| s.agent == *name)
    }

    /// What conditions read as `reward.*` after this step, in which the agents of `questions` acted.
    pub fn last_reward<'q>(
        &self,
        cast: &Cast,
        questions: impl IntoIterator<Item = &'q Question>,
    ) -> LastReward {
        let reward = |question: &Question| {
            (cast.players[question.agent].name.clone(), Value::from(self.reward(cast, question.agent)))
        };
        LastReward {
            team: self.scores.team,
            success: self.scores.success,
            agents: questions.into_iter().map(reward).collect::<Map<_, _>>(),
        }
    }
}
