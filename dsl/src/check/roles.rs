//! Checks `roles { … }` of an evaluation.

use std::collections::BTreeMap;

use super::resolver::{NamedBlocks, Resolver};
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::spelling::suggest;
use crate::eval::scalar::Scalar;
use crate::eval::typed::evaluate_as;
use crate::settings::SettingKind;
use crate::source::Location;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{Block, Entry, Setting};
use crate::workflow::RoleAssignment;

impl Resolver<'_, '_, '_> {
    /// Returns the agents that an evaluation maps to other policies, in order of agents. Returns `None` if an error was
    /// reported.
    pub(super) fn roles(
        &mut self,
        block: &Block,
        agents: &NamedBlocks,
        policies: &NamedBlocks,
    ) -> Option<Vec<RoleAssignment>> {
        let Some((_, body)) = block.inner(BlockKind::Roles) else { return Some(Vec::new()) };
        let mut seen: BTreeMap<&str, Location> = BTreeMap::new();
        let mut roles = Vec::new();
        let mut sound = body.complete;
        for entry in &body.entries {
            let setting = match entry {
                Entry::Setting(setting) => setting,
                Entry::Nested { name, .. } => {
                    self.reports
                        .error(DiagnosticCode::WrongType, name.location, "`roles` has no blocks", "")
                        .help(format!("write `{} = POLICY`", name.text));
                    sound = false;
                    continue;
                }
                Entry::Edge(_) => continue,
            };
            let key = &setting.key;
            if let Some(first) = seen.insert(&key.text, key.location) {
                let message = format!("`{}` is set twice in `roles`", key.text);
                self.reports
                    .error(DiagnosticCode::SettingTwice, key.location, message, "again here")
                    .also(first, "first here")
                    .help("remove one of them");
                sound = false;
                continue;
            }
            let agent = agents.index.get(key.text.as_str()).copied();
            if agent.is_none() && !agents.nameless {
                let hint = suggest(&key.text, "the agents are", agents.names());
                let message = format!("there is no agent `{}`", key.text);
                self.reports.error(DiagnosticCode::UnknownName, key.location, message, "").maybe_help(hint);
            }
            match (agent, self.role_policy(setting, policies)) {
                (Some(agent), Some(policy)) => {
                    roles.push(RoleAssignment { agent, policy });
                }
                _ => sound = false,
            }
        }
        roles.sort_by_key(|role| role.agent);
        sound.then_some(roles)
    }

    fn role_policy(&mut self, setting: &Setting, policies: &NamedBlocks) -> Option<usize> {
        let name = self.scope.in_namespace(setting.namespace, self.reports, |scope, reports| {
            evaluate_as(&setting.key.text, SettingKind::Policy, &setting.value, scope, reports)
        })?;
        let Scalar::Text(name) = name else { return None };
        let found = policies.index.get(name.as_str()).copied();
        if found.is_none() && !policies.nameless {
            let hint = suggest(&name, "the policies are", policies.names());
            let message = format!("there is no policy `{name}`");
            self.reports
                .error(DiagnosticCode::UnknownName, setting.value.location, message, "")
                .maybe_help(hint);
        }
        found
    }
}
