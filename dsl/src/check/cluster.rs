//! Checks the `cluster` block.

use super::block::{BlockSettings, ItemOfBlock, check_settings};
use super::resolver::{NamedBlocks, ResolvedPolicy, Resolver};
use super::servers::check_uri;
use crate::diagnostic::DiagnosticCode;
use crate::source::Location;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{Block, File};
use crate::workflow::{Cluster, InFlight, Scenario, Train};

impl Resolver<'_, '_, '_> {
    /// Checks the block, and that workers can have all that the file needs. `None` if it has an error, `Some(None)` without a
    /// block.
    pub(super) fn cluster(
        &mut self,
        file: &File,
        policies: &[ResolvedPolicy],
        designers: &NamedBlocks,
        scenarios: &[Option<Scenario>],
        train: Option<(&Block, &Train)>,
    ) -> Option<Option<Cluster>> {
        let Some(block) = self.single(file, BlockKind::Cluster, false) else { return Some(None) };
        let own = check_settings(block, &ItemOfBlock::None, &mut self.scope, self.reports);
        self.not_on_workers(file, policies, designers, scenarios, train);
        if !file.blocks.iter().any(|other| other.kind == BlockKind::Train) {
            self.reports
                .warning(
                    DiagnosticCode::Unused,
                    block.location(),
                    "`cluster` has no effect without a `train` block",
                    "",
                )
                .help("workers play the episodes of training: add a `train` block or remove it");
        }
        if let (Some(_), Some(location)) = (own.location("credentials"), own.location("token_variable")) {
            self.reports
                .error(
                    DiagnosticCode::NoEffect,
                    location,
                    "`token_variable` has no effect beside `credentials`",
                    "",
                )
                .help("keep the one that the server asks for");
        }
        let nats = self.nats_addresses(&own);
        Some(Some(Cluster {
            credentials: own.text("credentials").map(str::to_owned),
            token_variable: self.variable(&own, "token_variable")?,
            authorities: own.text("authorities").map(str::to_owned),
            learners: self.learners(&own, policies)?,
            sandboxes: own.boolean("sandboxes")?,
            lease: own.duration("lease")?,
            nats: nats?,
        }))
    }

    /// Returns the policies that other processes train. A policy that is not trained at all is reported.
    fn learners(&mut self, own: &BlockSettings, policies: &[ResolvedPolicy]) -> Option<Vec<String>> {
        let Some((names, location)) = own.words("learners").zip(own.location("learners")) else {
            return own.location("learners").is_none().then(Vec::new);
        };
        let trained = || policies.iter().filter_map(|one| one.policy.as_ref()).filter(|policy| policy.train);
        let Some(name) = names.iter().find(|name| !trained().any(|policy| policy.name == **name)) else {
            return Some(names);
        };
        let message = format!("no policy `{name}` is trained");
        let known = trained().map(|policy| format!("`{}`", policy.name)).collect::<Vec<_>>().join(", ");
        self.reports
            .error(DiagnosticCode::UnknownName, location, message, "")
            .help(format!("the trained policies are {known}"));
        None
    }

    /// Returns the addresses of the servers. Each invalid one is reported.
    fn nats_addresses(&mut self, own: &BlockSettings) -> Option<Vec<String>> {
        let (addresses, location) = own.words("nats").zip(own.location("nats"))?;
        let mut sound = !addresses.is_empty();
        for address in &addresses {
            let Err(problem) = check_nats_address(address) else { continue };
            let message = format!("`{address}` is not the address of a NATS server: {problem}");
            self.reports
                .error(DiagnosticCode::ServerAddress, location, message, "")
                .help("write it like `nats://10.0.0.1:4222`; `credentials` or `token_variable` let it in");
            sound = false;
        }
        sound.then_some(addresses)
    }

    /// Reports what workers can't have yet.
    fn not_on_workers(
        &mut self,
        file: &File,
        policies: &[ResolvedPolicy],
        designers: &NamedBlocks,
        scenarios: &[Option<Scenario>],
        train: Option<(&Block, &Train)>,
    ) {
        let mut refuse = |location: Location, what: String, help: &str| {
            let message = format!("{what} can't be used with a cluster yet");
            self.reports.error(DiagnosticCode::NotSupported, location, message, "").help(help);
        };
        if let Some((block, Train { in_flight: InFlight::Recompute | InFlight::Keep, .. })) = train {
            refuse(
                block.setting_location("in_flight"),
                "`in_flight`".to_owned(),
                "workers keep the weights that an episode began with: remove `in_flight` or `cluster`",
            );
        }
        for ResolvedPolicy { policy, server, .. } in policies {
            if let (Some(policy), Some(location)) = (policy.as_ref().filter(|policy| policy.train), server) {
                let what = format!("the server of the trained policy `{}`", policy.name);
                refuse(
                    *location,
                    what,
                    "remove its `server`, so that workers generate for it, or remove `cluster`",
                );
            }
        }
        let is_trained = |scenario: &&Scenario| scenario.weight > 0.0;
        for designer in scenarios.iter().flatten().filter(is_trained).filter_map(|scenario| scenario.designer)
        {
            if let Some(block) = designers.blocks.get(designer) {
                let what = format!("{} in training", block.title());
                refuse(block.location(), what, "train it on one machine: remove `cluster`");
            }
        }
        let block_of = |plugin: &str| -> Option<&Block> {
            let mut plugins = file.blocks.iter().filter(|block| block.kind == BlockKind::Plugin);
            plugins.find(|block| block.name.as_ref().is_some_and(|name| name.text == plugin))
        };
        for plugin in self.plugins.iter().filter_map(|loaded| loaded.plugin.as_ref()) {
            if let (false, Some(block)) = (plugin.grant.read.is_empty(), block_of(&plugin.name)) {
                let what = format!("the folder that plugin `{}` may read", plugin.name);
                refuse(
                    block.location(),
                    what,
                    "workers fetch files, not folders: remove `grant { read }` or `cluster`",
                );
            }
        }
    }
}

/// Checks the form of an address: `nats://HOST:PORT` or `tls://HOST:PORT`.
fn check_nats_address(address: &str) -> Result<(), String> {
    check_uri(address, ["nats", "tls"])?;
    let (_, rest) = address.split_once("://").unwrap_or_default();
    match rest.trim_end_matches('/').contains('/') {
        true => Err("it has a path".to_owned()),
        false => Ok(()),
    }
}
