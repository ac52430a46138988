//! The DOT format of Graphviz.

use std::fmt::Write;

use super::model::{Agent, Graph, Node};
use super::svg::{TINTS, escape};

impl Graph {
    /// A directed graph in DOT.
    pub fn dot(&self) -> String {
        let mut out = format!("digraph {} {{\n", quoted(&self.full_name()));
        let mut line = |text: String| {
            let _ = writeln!(out, "  {text}");
        };
        line("node [fontname=\"Helvetica\", fontsize=11, shape=plain]".to_owned());
        line("edge [fontname=\"Courier\", fontsize=10]".to_owned());
        for (at, node) in self.nodes.iter().enumerate() {
            let id = quoted(&self.id(at));
            line(match node {
                Node::Start => format!("{id} [shape=oval, label=\"start\"]"),
                Node::End => format!("{id} [shape=oval, label=\"end\"]"),
                Node::Agents(agents) => {
                    let cells: String = agents.iter().map(|agent| self.cell(agent)).collect();
                    let table = "<table border=\"0\" cellborder=\"1\" cellspacing=\"0\" cellpadding=\"6\">";
                    format!("{id} [label=<{table}<tr>{cells}</tr></table>>]")
                }
            });
        }
        for (edge, label) in self.edges.iter().zip(self.labels()) {
            let label = label.map(|label| format!(" [label={}]", quoted(&label))).unwrap_or_default();
            line(format!("{} -> {}{label}", quoted(&self.id(edge.from)), quoted(&self.id(edge.to))));
        }
        let (environment, reward) = (&self.environment, &self.reward.item);
        let label = |lines: &[&str]| quoted(&lines.join("\n"));
        let title = format!("environment {}", environment.name);
        line(format!("environment [shape=box, label={}]", label(&[&title, &environment.path])));
        line(format!("sandbox [shape=box3d, label={}]", label(&["sandbox", &self.sandbox])));
        let title = format!("reward {}", reward.name);
        line(format!(
            "reward [shape=hexagon, label={}]",
            label(&[&title, &reward.path, &self.describe_reward()])
        ));
        line("environment -> sandbox [dir=none]".to_owned());
        line("environment -> reward [style=dashed]".to_owned());
        out.push_str("}\n");
        out
    }

    fn cell(&self, agent: &Agent) -> String {
        let tint = &TINTS[self.model_of_policy(agent.policy) % TINTS.len()];
        let (name, item) = (escape(&agent.item.name), escape(&agent.item.path));
        let policy = escape(&self.describe_policy(agent.policy));
        format!(
            "<td bgcolor=\"{}\" color=\"{}\"><b>{name}</b><br/>{item}<br/>{policy}</td>",
            tint.fill, tint.line
        )
    }
}

fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}
