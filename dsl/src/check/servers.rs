//! Checks `server` blocks, and policies that servers generate for.

use super::block::{BlockSettings, ItemOfBlock, check_settings};
use super::resolver::{NamedBlocks, ResolvedAgent, ResolvedPolicy, Resolver};
use crate::diagnostic::DiagnosticCode;
use crate::eval::scalar::Scalar;
use crate::eval::typed::evaluate_as;
use crate::settings as table;
use crate::source::Location;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::Block;
use crate::workflow::{Policy, Schedule, Server, ServerKind, Train};

impl Resolver<'_, '_, '_> {
    pub(super) fn servers(&mut self, servers: &NamedBlocks) -> Vec<Option<Server>> {
        let blocks = servers.blocks.iter().enumerate();
        blocks.map(|(at, block)| self.server(servers.name(at), block)).collect()
    }

    fn server(&mut self, name: &str, block: &Block) -> Option<Server> {
        let own = check_settings(block, &ItemOfBlock::None, &mut self.scope, self.reports);
        let addresses = self.addresses(block);
        Some(Server {
            name: name.to_owned(),
            addresses: addresses?,
            kind: match own.text("kind")? {
                "llamacpp" => ServerKind::LlamaCpp,
                "sglang" => ServerKind::SgLang,
                "openai" => ServerKind::OpenAi,
                _ => ServerKind::Vllm,
            },
            key_variable: self.variable(&own, "key_variable")?,
            timeout: own.duration("timeout")?,
            connections: own.integer("connections")?,
            retries: own.integer("retries")?,
            hedge_after: own.duration("hedge_after"),
            sleep: own.integer("sleep")?,
        })
    }

    /// Returns the environment variable that a setting names, if it is written. An invalid name is reported.
    pub(super) fn variable(&mut self, own: &BlockSettings, key: &str) -> Option<Option<String>> {
        let Some(name) = own.text(key) else { return Some(None) };
        if is_variable(name) {
            return Some(Some(name.to_owned()));
        }
        if let Some(location) = own.location(key) {
            let message = format!("`{name}` is not the name of an environment variable");
            self.reports
                .error(DiagnosticCode::BadSetting, location, message, "")
                .help("a name has letters, digits and `_`, and does not begin with a digit");
        }
        None
    }

    /// Checks that servers which sleep can sleep, and have the time.
    pub(super) fn sleeping_servers(
        &mut self,
        names: &NamedBlocks,
        servers: &[Option<Server>],
        train: Option<&Train>,
    ) {
        let sleeping = servers.iter().flatten().zip(&names.blocks).filter(|(server, _)| server.sleep > 0);
        for (server, block) in sleeping {
            let (problem, help) = if server.kind != ServerKind::Vllm {
                ("only servers with `kind = vllm` can", "remove `sleep`")
            } else if train.is_some_and(|train| train.schedule != Schedule::Sync) {
                (
                    "with this schedule they generate while policies are trained",
                    "remove `sleep`, or set `schedule = sync`",
                )
            } else {
                continue;
            };
            let message = format!("the servers of `{}` can't sleep: {problem}", server.name);
            self.reports.error(DiagnosticCode::ServerLimits, block.location(), message, "").help(help);
        }
    }

    /// Returns the addresses in a block's head. Each invalid one is reported.
    fn addresses(&mut self, block: &Block) -> Option<Vec<String>> {
        let (own, value) = (table::head_setting(BlockKind::Server)?, block.value.as_ref()?);
        let found = self.scope.in_namespace(block.namespace, self.reports, |scope, reports| {
            evaluate_as(own.key, own.kind, value, scope, reports)
        })?;
        let Scalar::List(list) = found else { return None };
        let mut addresses = Vec::new();
        let mut sound = true;
        for one in list {
            let Scalar::Text(address) = one else { return None };
            if let Err(problem) = check_address(&address) {
                let message = format!("`{address}` is not the address of a server: {problem}");
                self.reports
                    .error(DiagnosticCode::ServerAddress, value.location, message, "")
                    .help("write it like `http://10.0.0.1:8000`");
                sound = false;
            }
            addresses.push(address);
        }
        sound.then_some(addresses)
    }

    /// Checks that servers can do what their policies need.
    pub(super) fn server_policies(
        &mut self,
        names: &NamedBlocks,
        policies: &[ResolvedPolicy],
        servers: &[Option<Server>],
        agents: &[ResolvedAgent],
    ) {
        for (at, resolved) in policies.iter().enumerate() {
            let Some(policy) = &resolved.policy else { continue };
            let name = names.name(at);
            match (policy.server, resolved.server) {
                (Some(server), Some(location)) => {
                    let Some(server) = servers.get(server).and_then(Option::as_ref) else { continue };
                    self.server_policy(name, policy, resolved, server, location);
                    self.grammars(name, server, at, agents);
                    if matches!(server.kind, ServerKind::LlamaCpp | ServerKind::OpenAi)
                        && policy.training.is_none()
                    {
                        self.penalties(name, server, at, agents);
                    }
                }
                (None, None) => {
                    if let Some(location) = resolved.served {
                        self.reports
                            .error(
                                DiagnosticCode::NoEffect,
                                location,
                                "`served` has no effect without `server`",
                                "",
                            )
                            .help("name the server with `server = NAME`, or remove `served`");
                    }
                }
                _ => {}
            }
        }
    }

    fn server_policy(
        &mut self,
        name: &str,
        policy: &Policy,
        resolved: &ResolvedPolicy,
        server: &Server,
        location: Location,
    ) {
        let trained = policy.training.is_some();
        let mut refuse = |code, location, message: String, help: &str| {
            self.reports.error(code, location, message, "").help(help);
        };
        if trained && server.kind == ServerKind::LlamaCpp {
            let message = format!(
                "policy `{name}` is trained, but the servers of `{}` can't load its adapters: llama.cpp takes them only \
                 when it starts",
                server.name
            );
            let help = "use a server with `kind = vllm`, or set `train = false`";
            refuse(DiagnosticCode::ServerLimits, location, message, help);
        } else if trained && !server.kind.has_token_ids() {
            let message = format!(
                "policy `{name}` is trained, but the servers of `{}` return text without token ids and log-probabilities",
                server.name
            );
            let help = "use a server with `kind = vllm`, or set `train = false`";
            refuse(DiagnosticCode::ServerLimits, location, message, help);
        }
        if !trained && !server.kind.has_token_ids() && resolved.served.is_none() {
            let message = format!("policy `{name}` doesn't say which model of `{}` it is", server.name);
            refuse(DiagnosticCode::BadSetting, location, message, "name it: `served = \"MODEL\"`");
        }
        if let (true, true, Some(served)) = (trained, policy.lora.is_some(), resolved.served) {
            let message = format!(
                "policy `{name}` is trained, so its adapters get names of their own, and `served` names another model"
            );
            let help = "remove `served`, or set `train = false`";
            refuse(DiagnosticCode::BadSetting, served, message, help);
        }
        match (resolved.from, resolved.served) {
            (Some(from), Some(_)) if !trained => {
                let message = format!("policy `{name}` has both `from` and `served`");
                let help = "remove one of them: `served` names a model that the server has already";
                refuse(DiagnosticCode::BadSetting, from, message, help);
            }
            (Some(from), None) if !trained && server.kind == ServerKind::LlamaCpp => {
                let message = format!(
                    "policy `{name}` starts from an adapter, which the servers of `{}` can't load: llama.cpp takes \
                     adapters only when it starts",
                    server.name
                );
                let help = "start llama.cpp with the adapter (`--lora`) and remove `from`";
                refuse(DiagnosticCode::ServerLimits, from, message, help);
            }
            _ => {}
        }
    }

    /// Reports grammars of the agents of a policy on servers that are sent none.
    fn grammars(&mut self, name: &str, server: &Server, policy: usize, agents: &[ResolvedAgent]) {
        if server.kind.takes_grammars() {
            return;
        }
        for (key, location) in users(agents, policy).filter_map(|one| one.grammar) {
            let message = format!(
                "`{key}` of an agent with policy `{name}` is not passed on to the servers of `{}`",
                server.name
            );
            self.reports.error(DiagnosticCode::ServerLimits, location, message, "").help(format!(
                "remove it, use a server with `kind = vllm`, or generate on this machine: remove `server` from policy \
                 `{name}`"
            ));
        }
    }

    /// Reports penalties of the agents of a policy on servers that don't have the same ones.
    fn penalties(&mut self, name: &str, server: &Server, policy: usize, agents: &[ResolvedAgent]) {
        for (key, location) in users(agents, policy).flat_map(|one| &one.penalties) {
            let reason = match server.kind {
                // Its presence and frequency penalties are OpenAI's own.
                ServerKind::OpenAi if *key != "repetition_penalty" => continue,
                ServerKind::OpenAi => "OpenAI's API has no such setting",
                _ => "they are llama.cpp, whose penalties differ",
            };
            let message = format!(
                "`{key}` of an agent with policy `{name}` has no equal on the servers of `{}`: {reason}",
                server.name
            );
            self.reports
                .error(DiagnosticCode::ServerLimits, *location, message, "")
                .help("remove it, or use a server with `kind = vllm`");
        }
    }

    pub(super) fn unused_servers(&mut self, servers: &NamedBlocks, policies: &[ResolvedPolicy]) {
        // An invalid policy may use a server that seems unused.
        if policies.iter().any(|one| one.policy.is_none()) {
            return;
        }
        let used: Vec<usize> =
            policies.iter().flat_map(|one| &one.policy).filter_map(|one| one.server).collect();
        let blocks =
            servers.blocks.iter().enumerate().filter(|(at, block)| block.sound && !used.contains(at));
        for (_, block) in blocks {
            let message = format!("{} is never used", block.title());
            self.reports
                .warning(DiagnosticCode::Unused, block.location(), message, "")
                .help("use it or remove it");
        }
    }
}

/// Returns the agents that use a policy.
fn users(agents: &[ResolvedAgent], policy: usize) -> impl Iterator<Item = &ResolvedAgent> {
    agents.iter().filter(move |one| one.agent.as_ref().is_some_and(|agent| agent.policy == policy))
}

/// Returns true for the names of environment variables that workflows may use.
pub fn is_variable(name: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_first) && name.chars().all(|c| is_first(c) || c.is_ascii_digit())
}

/// Checks the form of an address: `http://HOST:PORT`, possibly with a path.
pub(super) fn check_address(address: &str) -> Result<(), String> {
    check_uri(address, ["http", "https"])
}

/// Checks the form of an address with one of two schemes.
pub(super) fn check_uri(address: &str, [plain, encrypted]: [&str; 2]) -> Result<(), String> {
    let uri: http::Uri = address.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    match uri.scheme_str() {
        Some(scheme) if scheme == plain || scheme == encrypted => {}
        Some(other) => return Err(format!("`{other}` is neither `{plain}` nor `{encrypted}`")),
        None => return Err(format!("it doesn't begin with `{plain}://` or `{encrypted}://`")),
    }
    match uri.authority() {
        Some(authority) if authority.as_str().contains('@') => {
            return Err("a user or password doesn't belong into an address".to_owned());
        }
        Some(authority) if authority.host().is_empty() => return Err("it has no host".to_owned()),
        Some(authority)
            if authority.host().contains([',', '*', ';', '\'', '(', ')', '!', '$', '&', '+', '=']) =>
        {
            return Err(format!("`{}` is not a host", authority.host()));
        }
        Some(authority) if authority.as_str() != authority.host() && authority.port_u16().is_none() => {
            return Err("its port is not a number up to 65535".to_owned());
        }
        Some(_) => {}
        None => return Err("it has no host".to_owned()),
    }
    if uri.query().is_some() || address.contains('#') {
        return Err("it has a query or a fragment".to_owned());
    }
    Ok(())
}
