//! The graph as JSON, for programs and pages that draw it.
//!
//! ```text
//! version       1; removing a field or changing its meaning increases it, adding a field does not
//! workflow      name of the workflow
//! scenario      name of the scenario, or null in a workflow without `scenario` blocks
//! layout        "L0", "L1", "L2", "L3" or "mixed"
//! max_visits    largest number of visits of one agent in an episode
//! models        [{ name, source }]
//! policies      [{ name, model, lora: { rank, alpha } or null, trained, from: text or null }]
//! environment   { name, item, sandbox: description }
//! reward        { name, item, team, local }: weights of the shared part and of each agent's own part
//! nodes         [{ id, kind: "start", "agents" or "end", agents: [{ name, item, policy }] }]
//! edges         [{ from, to: ids of nodes, when: a condition or null }]; the edges of one node are in the order in which they
//!               are tried; the first whose condition holds is taken
//! drawing       positions, in pixels from the upper left corner, x to the right and y downwards:
//!               { width, height,
//!                 nodes: [{ id, x, y, width, height }], x and y of the upper left corner,
//!                 links: [{ from, to, lines: lines of the label, label: { x, y, width, height } or null,
//!                           path: SVG path data that ends at the target }] }; edges of the same ends are one link
//! ```
//!
//! The graph of a workflow with several scenarios is that of the first, with the list of all as the field `scenarios`.
//!
//! `item` is `PLUGIN.ITEM`; `model` and `policy` are names.

use serde_json::{Value, json};

use super::model::{Agent, Graph, Node};
use super::placement::{PlacementError, Rect};
use crate::workflow::Workflow;

impl Graph {
    /// The graphs of all scenarios of a workflow as JSON; the header of this file describes the format.
    ///
    /// # Errors
    /// A graph can't be arranged.
    pub fn json_of_scenarios(workflow: &Workflow) -> Result<Value, PlacementError> {
        let all = Graph::of_scenarios(workflow).iter().map(Graph::json).collect::<Result<Vec<_>, _>>()?;
        let mut graph = all.first().cloned().unwrap_or_default();
        if all.len() > 1 {
            graph["scenarios"] = all.into();
        }
        Ok(graph)
    }

    /// The graph as JSON; the header of this file describes the format.
    ///
    /// # Errors
    /// The graph can't be arranged.
    pub fn json(&self) -> Result<Value, PlacementError> {
        let model = |index: usize| self.models.get(index).map(|model| model.name.as_str());
        let policy = |index: usize| self.policies.get(index).map(|policy| policy.name.as_str());
        let agent = |agent: &Agent| json!({ "name": agent.item.name, "item": agent.item.path, "policy": policy(agent.policy) });
        let node = |(index, node): (usize, &Node)| {
            let id = self.id(index);
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
        Ok(json!({
            "version": 1,
            "workflow": self.workflow,
            "scenario": self.scenario,
            "layout": self.layout,
            "max_visits": self.max_visits,
            "models": models,
            "policies": policies,
            "environment": { "name": environment.name, "item": environment.path, "sandbox": self.sandbox },
            "reward": {
                "name": reward.item.name, "item": reward.item.path, "team": reward.team, "local": reward.local,
            },
            "nodes": self.nodes.iter().enumerate().map(node).collect::<Vec<_>>(),
            "edges": edges,
            "drawing": self.drawing()?,
        }))
    }

    fn drawing(&self) -> Result<Value, PlacementError> {
        let placement = self.place()?;
        let rect = |rect: &Rect| json!({ "x": round(rect.x), "y": round(rect.y), "width": round(rect.width), "height": round(rect.height) });
        let nodes: Vec<Value> = placement
            .nodes
            .iter()
            .enumerate()
            .map(|(index, one)| {
                let mut node = rect(one);
                node["id"] = self.id(index).into();
                node
            })
            .collect();
        let links: Vec<Value> = self
            .links()
            .iter()
            .zip(&placement.edges)
            .map(|(link, placed)| {
                json!({
                    "from": self.id(link.from), "to": self.id(link.to), "lines": link.labels,
                    "label": placed.label.as_ref().map(rect), "path": placed.path,
                })
            })
            .collect();
        let (width, height) = (round(placement.width), round(placement.height));
        Ok(json!({ "width": width, "height": height, "nodes": nodes, "links": links }))
    }
}

/// Rounds to a tenth of a pixel.
fn round(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
