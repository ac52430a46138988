//! The walk of an episode through the turn graph.

use pl_dsl::workflow::Node;
use serde_json::{Map, Value};

use crate::node_visit::{AgentPrompt, ScoredStep};
use crate::result::EpisodeSummary;
use crate::setup::EpisodeSetup;
use crate::trace::recorder::TraceRecorder;
use crate::turns::{LastReward, NextNode, TurnCursor};

/// The turn cursor of an episode with the facts and rewards that its conditions read.
pub(crate) struct GraphWalk<'a> {
    pub setup: &'a EpisodeSetup,
    pub cursor: TurnCursor,
    facts: Map<String, Value>,
    reward: LastReward,
}

impl<'a> GraphWalk<'a> {
    pub fn new(setup: &'a EpisodeSetup) -> GraphWalk<'a> {
        let cursor = TurnCursor::new(setup.agents.len());
        GraphWalk { setup, cursor, facts: Map::new(), reward: LastReward::default() }
    }

    /// Finds the next node, and moves the recorder to its visit. Returns `None` if the episode is over; marks
    /// the summary if a limit on visits ended it.
    pub fn next_node(
        &self,
        summary: &mut EpisodeSummary,
        recorder: &mut TraceRecorder,
    ) -> Option<(usize, &'a Node)> {
        match self.cursor.next(&self.setup.turns, &self.facts, &self.reward) {
            NextNode::Node(index) => {
                recorder.set_node_visit(self.cursor.node_visits());
                self.setup.turns.nodes.get(index).map(|node| (index, node))
            }
            NextNode::End => None,
            NextNode::Truncated => {
                summary.truncated = true;
                None
            }
        }
    }

    /// Returns true if `agent` might act again after a step of the agents of `prompts`: its visits are not used
    /// up, and edges lead from the next node to one of its nodes. Conditions of later edges are not known yet.
    pub fn may_act_again(&self, agent: usize, step: &ScoredStep, prompts: &[AgentPrompt]) -> bool {
        let turns = &self.setup.turns;
        if step.outcome.done || step.outcome.truncated || self.cursor.visits(agent) >= turns.max {
            return false;
        }
        let reward = step.last_reward(self.setup, prompts);
        match self.cursor.next(turns, &step.outcome.facts, &reward) {
            NextNode::Node(next) => turns.reaches(next, agent),
            NextNode::End | NextNode::Truncated => false,
        }
    }

    /// Counts the visit of a node.
    pub fn count_visit(&mut self, node: usize) {
        self.cursor.count_visit(node, &self.setup.turns);
    }

    /// Takes over the facts and rewards of the step that the episode continues from. Returns false if the
    /// step ended the episode.
    pub fn continue_from(&mut self, step: &ScoredStep, prompts: &[AgentPrompt]) -> bool {
        if step.outcome.done || step.outcome.truncated {
            return false;
        }
        self.reward = step.last_reward(self.setup, prompts);
        self.facts = step.outcome.facts.clone();
        true
    }
}
