//! Checks of a workflow that was read from a run folder, which may come from anywhere: all indices and the limits of components
//! are in range, and names can be used in file names.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use pl_dsl::settings::{self, SettingKind};
use pl_dsl::workflow::{CorpusSource, Plugin, Target, Workflow};
use pl_dsl::{BlockKind, is_variable};

use crate::error::stored::InvalidWorkflow;

/// Longest name, in bytes. File systems allow 255 bytes, of which file names add some.
const LONGEST_NAME: usize = 128;

/// Checks a workflow. Returns the first problem.
///
/// # Errors
/// A text that completes "workflow.json: …".
pub(super) fn validate(workflow: &Workflow) -> Result<(), InvalidWorkflow> {
    check_names(workflow)?;
    workflow.plugins.iter().try_for_each(check_limits)?;
    let (plugins, policies) = (workflow.plugins.len(), workflow.policies.len());
    for policy in &workflow.policies {
        check_index("model", policy.model, workflow.models.len())?;
        policy.server.map_or(Ok(()), |server| check_index("server", server, workflow.servers.len()))?;
        let critic = policy.training.as_ref().and_then(|training| training.critic.as_ref());
        if let Some(model) = critic.and_then(|critic| critic.model) {
            check_index("model", model, workflow.models.len())?;
        }
    }
    let corpora = workflow.corpora.iter().filter_map(|corpus| match &corpus.source {
        CorpusSource::Server(server) => server.key_variable.as_ref(),
        CorpusSource::File(_) => None,
    });
    let servers = workflow.servers.iter().filter_map(|server| server.key_variable.as_ref());
    let cluster = workflow.cluster.iter().filter_map(|cluster| cluster.token_variable.as_ref());
    if let Some(name) = servers.chain(corpora).chain(cluster).find(|name| !is_variable(name)) {
        return Err(InvalidWorkflow::Variable { name: name.clone() });
    }
    for agent in &workflow.agents {
        check_index("plugin", agent.plugin, plugins)?;
        check_index("policy", agent.policy, policies)?;
    }
    if workflow.scenarios.is_empty() {
        return Err(InvalidWorkflow::NoScenario);
    }
    let weights = || workflow.scenarios.iter().map(|scenario| scenario.weight);
    if weights().any(|weight| !(0.0..=1e9).contains(&weight)) || weights().sum::<f64>() <= 0.0 {
        return Err(InvalidWorkflow::Weights);
    }
    for designer in &workflow.designers {
        check_index("policy", designer.policy, policies)?;
    }
    for evaluation in &workflow.evaluations {
        check_index("scenario", evaluation.scenario, workflow.scenarios.len())?;
        for role in &evaluation.roles {
            check_index("agent", role.agent, workflow.agents.len())?;
            check_index("policy", role.policy, policies)?;
        }
    }
    for scenario in &workflow.scenarios {
        check_index("plugin", scenario.environment.plugin, plugins)?;
        check_index("plugin", scenario.reward.plugin, plugins)?;
        scenario.designer.map_or(Ok(()), |one| check_index("designer", one, workflow.designers.len()))?;
        for corpus in &scenario.environment.corpora {
            check_index("corpus", *corpus, workflow.corpora.len())?;
        }
        let nodes = &scenario.turns.nodes;
        for agent in nodes.iter().flat_map(|node| &node.agents) {
            check_index("agent", *agent, workflow.agents.len())?;
        }
        let edges = nodes.iter().flat_map(|node| &node.edges).chain(&scenario.turns.start);
        for edge in edges {
            if let Target::Node(node) = edge.to {
                check_index("node", node, nodes.len())?;
            }
        }
        if nodes.iter().any(|node| node.agents.is_empty()) {
            return Err(InvalidWorkflow::EmptyNode);
        }
    }
    Ok(())
}

fn check_index(kind: &'static str, index: usize, count: usize) -> Result<(), InvalidWorkflow> {
    if index < count { Ok(()) } else { Err(InvalidWorkflow::Index { kind, index, count }) }
}

/// Checks that a component gets no more memory, instructions and time than a workflow file can give it.
fn check_limits(plugin: &Plugin) -> Result<(), InvalidWorkflow> {
    for key in ["memory", "fuel", "timeout"] {
        let Some(setting) = settings::find(BlockKind::Plugin, key) else { continue };
        let in_range = match setting.kind {
            SettingKind::Bytes { min, max } => (min..=max).contains(&plugin.memory),
            SettingKind::Integer { min, max } => {
                i64::try_from(plugin.fuel).is_ok_and(|fuel| (min..=max).contains(&fuel))
            }
            SettingKind::Duration { min, max } => (min..=max).contains(&plugin.timeout),
            _ => true,
        };
        if !in_range {
            let range = setting.kind.range().unwrap_or_default();
            return Err(InvalidWorkflow::Limit { plugin: plugin.name.clone(), key, range });
        }
    }
    Ok(())
}

fn check_names(workflow: &Workflow) -> Result<(), InvalidWorkflow> {
    let Workflow { plugins, models, policies, agents, evaluations, scenarios, .. } = workflow;
    check_unique(plugins.iter().map(|block| &block.name))?;
    check_unique(models.iter().map(|block| &block.name))?;
    check_unique(workflow.servers.iter().map(|block| &block.name))?;
    check_unique(workflow.corpora.iter().map(|block| &block.name))?;
    check_unique(policies.iter().map(|block| &block.name))?;
    check_unique(agents.iter().map(|block| &block.name))?;
    check_unique(workflow.designers.iter().map(|block| &block.name))?;
    check_unique(evaluations.iter().map(|block| &block.name))?;
    check_unique(scenarios.iter().filter_map(|block| block.name.as_ref()))?;
    if scenarios.len() > 1 && scenarios.iter().any(|scenario| scenario.name.is_none()) {
        return Err(InvalidWorkflow::UnnamedScenario);
    }
    let blocks = scenarios.iter().flat_map(|scenario| [&scenario.environment.name, &scenario.reward.name]);
    blocks.chain([&workflow.name]).try_for_each(|name| check_name(name))
}

/// Checks names of blocks of one kind.
fn check_unique<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), InvalidWorkflow> {
    let mut known = BTreeSet::new();
    for name in names {
        check_name(name)?;
        if !known.insert(name) {
            return Err(InvalidWorkflow::Duplicate { name: name.clone() });
        }
    }
    Ok(())
}

/// Checks that a name is one part of a path.
fn check_name(name: &str) -> Result<(), InvalidWorkflow> {
    let mut parts = Path::new(name).components();
    let one_part =
        matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
    if one_part && name.len() <= LONGEST_NAME && !name.contains(char::is_control) {
        return Ok(());
    }
    Err(InvalidWorkflow::Name { name: name.to_owned() })
}
