//! The picture as data, for programs.
//!
//! ```text
//! version       1; a field that goes or changes its meaning makes it 2, new fields do not
//! workflow      its name
//! layout        "L0", "L1", "L2", "L3" or "mixed"
//! max_visits    of one agent in an episode
//! models        [{ name, source }]
//! policies      [{ name, model, lora: { rank, alpha } or null, trained, from: text or null }]
//! environment   { name, item, sandbox: in words }
//! reward        { name, item, team, local }: weights of the team's part and of each agent's own
//! nodes         [{ id, kind: "start", "agents" or "end", agents: [{ name, item, policy }] }]
//! edges         [{ from, to: ids of nodes, when: a condition or null }]; of one node in the order in which they are
//!               tried, the first whose condition holds is taken
//! ```
//!
//! `item` is `PLUGIN.ITEM`; `model` and `policy` are names.

use serde_json::{Value, json};

use super::model::{Agent, Graph, Node};

impl Graph {
    /// The picture as JSON; this file says what stands in it.
    pub fn json(&self) -> Value {
        let model = |at: usize| self.models.get(at).map(|model| model.name.as_str());
        let policy = |at: usize| self.policies.get(at).map(|policy| policy.name.as_str());
        let agent = |agent: &Agent| json!({ "name": agent.item.name, "item": agent.item.item, "policy": policy(agent.policy) });
        let node = |(at, node): (usize, &Node)| {
            let id = self.id(at);
            match node {
                Node::Start => json!({ "id": id, "kind": "start" }),
                Node::End => json!({ "id": id, "kind": "end" }),
                Node::Agents(agents) => {
                    let agents: Vec<Value> = agents.iter().map(agent).collect();
                    json!({ "id": id, "kind": "agents", "agents": agents })
                }
            }
        };
        let models: Vec<Value> =
            self.models.iter().map(|one| json!({ "name": one.name, "source": one.source })).collect();
        let policies: Vec<Value> = self
            .policies
            .iter()
            .map(|one| {
                let lora = one.adapter.map(|adapter| json!({ "rank": adapter.rank, "alpha": adapter.alpha }));
                json!({
                    "name": one.name, "model": model(one.model), "lora": lora,
                    "trained": one.trained, "from": one.from,
                })
            })
            .collect();
        let edges: Vec<Value> = self
            .edges
            .iter()
            .map(|edge| json!({ "from": self.id(edge.from), "to": self.id(edge.to), "when": edge.when }))
            .collect();
        let (environment, reward) = (&self.environment, &self.reward);
        json!({
            "version": 1,
            "workflow": self.workflow,
            "layout": self.layout,
            "max_visits": self.max_visits,
            "models": models,
            "policies": policies,
            "environment": { "name": environment.name, "item": environment.item, "sandbox": self.sandbox },
            "reward": {
                "name": reward.item.name, "item": reward.item.item, "team": reward.team, "local": reward.local,
            },
            "nodes": self.nodes.iter().enumerate().map(node).collect::<Vec<_>>(),
            "edges": edges,
        })
    }
}
