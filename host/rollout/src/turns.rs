//! The turn cursor: the position of an episode in the turn graph.

use pl_dsl::workflow::{Condition, Edge, Node, Target, Turns};
use serde_json::{Map, Value};

/// The scores of the last step: the values of `reward.*` in conditions.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LastReward {
    pub team: f64,
    pub success: bool,
    /// Weighted reward of each agent that acted, by name.
    pub agents: Map<String, Value>,
}

/// The position of an episode in the turn graph.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TurnCursor {
    node: Option<usize>,
    /// Number of visits, by agent index.
    visits: Vec<u32>,
    node_visits: u32,
}

/// The result of following an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextNode {
    /// Index of the next node.
    Node(usize),
    End,
    /// An agent would exceed the limit on its visits.
    Truncated,
}

impl TurnCursor {
    pub fn new(agents: usize) -> TurnCursor {
        TurnCursor { node: None, visits: vec![0; agents], node_visits: 0 }
    }

    /// Number of the agent's visits.
    pub fn visits(&self, agent: usize) -> u32 {
        self.visits.get(agent).copied().unwrap_or(0)
    }

    /// Number of node visits.
    pub fn node_visits(&self) -> u32 {
        self.node_visits
    }

    /// Follows the first edge whose condition holds. The episode ends if none does.
    pub fn next(&self, turns: &Turns, facts: &Map<String, Value>, reward: &LastReward) -> NextNode {
        let node = self.node.and_then(|n| turns.nodes.get(n));
        let edges: &[Edge] = node.map_or(&turns.start, |n| &n.edges);
        let turn = node.and_then(|n| n.agents.first()).map_or(0, |&agent| self.visits(agent));
        let scope = Scope { facts, reward, turn };
        let taken = edges.iter().find(|edge| edge.when.as_ref().is_none_or(|c| scope.holds(c)));
        match taken.map(|edge| edge.to) {
            None | Some(Target::End) => NextNode::End,
            Some(Target::Node(to)) => match turns.nodes.get(to) {
                Some(Node { agents, .. }) if agents.iter().all(|&a| self.visits(a) < turns.max) => {
                    NextNode::Node(to)
                }
                Some(_) => NextNode::Truncated,
                None => NextNode::End,
            },
        }
    }

    /// Counts a visit of `node`, after its agents have acted.
    pub fn count_visit(&mut self, node: usize, turns: &Turns) {
        self.node = Some(node);
        self.node_visits += 1;
        for &agent in turns.nodes.get(node).map_or(&[][..], |n| &n.agents) {
            if let Some(visits) = self.visits.get_mut(agent) {
                *visits += 1;
            }
        }
    }
}

/// The values that a condition can read.
struct Scope<'a> {
    facts: &'a Map<String, Value>,
    reward: &'a LastReward,
    turn: u32,
}

impl Scope<'_> {
    fn holds(&self, condition: &Condition) -> bool {
        condition.holds(&|subject| self.value(subject))
    }

    /// The value of a subject; null for a fact or reward that does not exist yet.
    fn value(&self, subject: &Condition) -> Value {
        match subject {
            Condition::Fact(name) => self.facts.get(name).cloned().unwrap_or(Value::Null),
            Condition::Turn => self.turn.into(),
            Condition::Reward(name) => match name.as_str() {
                "team" => self.reward.team.into(),
                "success" => self.reward.success.into(),
                agent => self.reward.agents.get(agent).cloned().unwrap_or(Value::Null),
            },
            _ => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use pl_dsl::workflow::Comparison;

    use super::*;
    use serde_json::json;

    fn edge(to: Target, when: Option<Condition>) -> Edge {
        Edge { to, when }
    }

    /// start -> tool -> reason; reason -> end when env.agreed; reason -> tool
    fn loop_of_two() -> Turns {
        Turns {
            max: 2,
            start: vec![edge(Target::Node(0), None)],
            nodes: vec![
                Node { agents: vec![0], edges: vec![edge(Target::Node(1), None)] },
                Node {
                    agents: vec![1],
                    edges: vec![
                        edge(Target::End, Some(Condition::Fact("agreed".into()))),
                        edge(Target::Node(0), None),
                    ],
                },
            ],
        }
    }

    fn facts(agreed: bool) -> Map<String, Value> {
        json!({ "agreed": agreed }).as_object().cloned().unwrap()
    }

    #[test]
    fn the_loop_runs_until_a_condition_or_the_limit_ends_it() {
        let (turns, reward) = (loop_of_two(), LastReward::default());
        let mut cursor = TurnCursor::new(2);
        for expected in [0, 1, 0, 1] {
            assert_eq!(cursor.next(&turns, &facts(false), &reward), NextNode::Node(expected));
            cursor.count_visit(expected, &turns);
        }
        assert_eq!(cursor.next(&turns, &facts(true), &reward), NextNode::End);
        assert_eq!(cursor.next(&turns, &facts(false), &reward), NextNode::Truncated);
        assert_eq!((cursor.visits(0), cursor.node_visits()), (2, 4));
    }

    #[test]
    fn conditions_compare_the_values_that_they_name() {
        let reward = LastReward {
            team: 0.5,
            success: true,
            agents: json!({"tool": 1.5}).as_object().cloned().unwrap(),
        };
        let facts = json!({"stage": "late", "left": 3}).as_object().cloned().unwrap();
        let scope = Scope { facts: &facts, reward: &reward, turn: 2 };
        let literal = |v: Value| Box::new(Condition::Literal(v));
        let compare = |how, left: Condition, right: Value| {
            scope.holds(&Condition::Compare(how, Box::new(left), literal(right)))
        };
        assert!(compare(Comparison::Equal, Condition::Fact("stage".into()), json!("late")));
        assert!(compare(Comparison::Less, Condition::Fact("left".into()), json!(3.5)));
        assert!(compare(Comparison::GreaterOrEqual, Condition::Turn, json!(2)));
        assert!(compare(Comparison::Greater, Condition::Reward("tool".into()), json!(1)));
        assert!(compare(Comparison::Equal, Condition::Reward("team".into()), json!(0.5)));
        assert!(scope.holds(&Condition::Reward("success".into())));
        // A missing value equals nothing.
        assert!(!compare(Comparison::Equal, Condition::Fact("gone".into()), json!(1)));
        assert!(compare(Comparison::NotEqual, Condition::Fact("gone".into()), json!(1)));
        assert!(!scope.holds(&Condition::Fact("gone".into())));
    }
}
