//! The layout: assignment of agents to models.

use std::collections::BTreeSet;
use std::fmt;

use super::{Agent, Layout, Policy};

/// Derives the layout from agents and policies. Policies that no agent uses don't count.
pub(crate) fn derive_layout(agents: &[Agent], policies: &[Policy]) -> Layout {
    let used: BTreeSet<usize> = agents.iter().map(|agent| agent.policy).collect();
    if agents.len() <= 1 {
        return Layout::L0;
    }
    if used.len() == 1 {
        return Layout::L1;
    }
    let bases: BTreeSet<(usize, Option<usize>)> = used
        .iter()
        .filter_map(|at| policies.get(*at).map(|policy| (*at, policy)))
        .map(|(at, policy)| {
            // Adapters share their base model, and so does a policy that is the untrained model itself.
            let untrained = !policy.train && policy.from.is_none();
            let shared = policy.lora.is_some() || untrained;
            (policy.model, (!shared).then_some(at))
        })
        .collect();
    if bases.len() == 1 {
        Layout::L2
    } else if bases.len() == used.len() {
        Layout::L3
    } else {
        Layout::Mixed
    }
}

/// Returns the word for `layout = …`.
pub(crate) fn keyword(layout: Layout) -> &'static str {
    match layout {
        Layout::L0 => "L0",
        Layout::L1 => "L1",
        Layout::L2 => "L2",
        Layout::L3 => "L3",
        Layout::Mixed => "mixed",
    }
}

impl fmt::Display for Layout {
    /// Writes the word for `layout = …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(keyword(*self))
    }
}

/// Returns a description of the layout for messages.
pub(crate) fn describe(layout: Layout) -> &'static str {
    match layout {
        Layout::L0 => "there is one agent",
        Layout::L1 => "all agents share one policy",
        Layout::L2 => "the policies are adapters of one base model",
        Layout::L3 => "every policy has a base model of its own",
        Layout::Mixed => "some policies share a base model and some do not",
    }
}
