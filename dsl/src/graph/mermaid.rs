//! The Mermaid format, which documentation sites and code forges draw if it has fewer than 500 edges.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::model::{Graph, Node};
use super::svg::TINTS;

impl Graph {
    /// A Mermaid flowchart.
    pub fn mermaid(&self) -> String {
        let mut out = String::from("flowchart TD\n");
        let mut line = |text: String| {
            out.push_str("  ");
            out.push_str(&text);
            out.push('\n');
        };
        for (at, node) in self.nodes.iter().enumerate() {
            let id = self.mermaid_id(at);
            line(match node {
                Node::Start => format!("{id}([start])"),
                Node::End => format!("{id}([end])"),
                Node::Agents(agents) => {
                    let lines: Vec<String> = agents
                        .iter()
                        .map(|agent| {
                            let policy = self.describe_policy(agent.policy);
                            [&agent.item.name, &agent.item.path, &policy]
                                .map(|text| escape(text))
                                .join("<br/>")
                        })
                        .collect();
                    let models: BTreeSet<usize> =
                        agents.iter().map(|agent| self.model_of_policy(agent.policy)).collect();
                    let class = match models.first() {
                        Some(model) if models.len() == 1 => format!(":::m{}", model % TINTS.len()),
                        _ => String::new(),
                    };
                    format!("{id}[\"{}\"]{class}", lines.join("<br/>— in parallel with —<br/>"))
                }
            });
        }
        for (edge, label) in self.edges.iter().zip(self.labels()) {
            let (from, to) = (self.mermaid_id(edge.from), self.mermaid_id(edge.to));
            line(match label {
                Some(label) => format!("{from} -->|\"{}\"| {to}", escape(&label)),
                None => format!("{from} --> {to}"),
            });
        }
        let (environment, reward) = (&self.environment, &self.reward.item);
        line(format!(
            "env[[\"environment {}<br/>{}\"]]",
            escape(&environment.name),
            escape(&environment.path)
        ));
        line(format!("code[/\"sandbox<br/>{}\"/]", escape(&self.sandbox)));
        line(format!(
            "score{{{{\"reward {}<br/>{}<br/>{}\"}}}}",
            escape(&reward.name),
            escape(&reward.path),
            escape(&self.describe_reward())
        ));
        line("env --- code".to_owned());
        line("env -.-> score".to_owned());
        for (at, tint) in TINTS.iter().enumerate().take(self.models.len()) {
            line(format!("classDef m{at} fill:{},stroke:{},color:#1b1f24", tint.fill, tint.line));
        }
        out
    }

    /// Identifier of a node; `end` is a keyword of Mermaid.
    fn mermaid_id(&self, node: usize) -> String {
        if node == self.end() { "finish".to_owned() } else { self.id(node) }
    }
}

/// Escapes a text within quotes: characters with a meaning in Mermaid or HTML become their code points.
fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, letter| {
        match letter {
            '"' | '#' | '&' | '<' | '>' | '`' | ';' | '\\' | '|' => {
                let _ = write!(out, "#{};", u32::from(letter));
            }
            letter => out.push(letter),
        }
        out
    })
}
