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
    setup: &'a EpisodeSetup,
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

    /// Counts the visit of a node.
    pub fn leave(&mut self, node: usize) {
        self.cursor.leave(node, &self.setup.turns);
    }

    /// Takes over the facts and rewards of the step that the episode continues from. Returns false if the
    /// step ended the episode.
    pub fn continue_from(&mut self, step: ScoredStep, prompts: &[AgentPrompt]) -> bool {
        if step.outcome.done || step.outcome.truncated {
            return false;
        }
        self.reward = step.last_reward(self.setup, prompts);
        self.facts = step.outcome.facts;
        true
    }
}
