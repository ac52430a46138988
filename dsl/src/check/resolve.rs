//! Resolves the syntax tree to the checked workflow: names become indices, and items of plugins are looked up.
//!
//! An error in one block doesn't stop the check of others: an invalid block keeps its position and name, so that
//! references to it are not reported too.

use std::collections::BTreeSet;

use pl_types::{ItemKind, Sampling};

use super::block::{BlockSettings, ItemOfBlock, check_settings};
use super::prune::prune;
use super::resolver::{NamedBlocks, ResolvedAgent, ResolvedModel, ResolvedPolicy, Resolver};
use crate::catalog::Catalog;
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::eval::expand::expand;
use crate::eval::params::params;
use crate::eval::scalar::Scalar;
use crate::eval::scope::{Namespace, Param, Scope};
use crate::eval::typed::evaluate_as;
use crate::places::WrittenPlaces;
use crate::settings::{self as table, SettingKind};
use crate::source::Location;
use crate::source::Sources;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{Block, File};
use crate::workflow::layout;
use crate::workflow::{
    Agent, Designer, Devices, Evaluation, Layout, LongPrompt, Lora, Model, Policy, Workflow,
};

/// Smallest temperature above 0, as in vLLM: logits that are divided by far less overflow.
const MIN_TEMPERATURE: f64 = 0.01;

/// Checks the whole tree. The workflow is `None` if an error was reported.
pub(crate) fn resolve(
    mut file: File,
    sources: &Sources,
    namespaces: Vec<Namespace>,
    catalog: &dyn Catalog,
    reports: &mut Reports,
) -> (Option<Workflow>, WrittenPlaces) {
    let scope = Scope::new(catalog, sources, namespaces);
    let mut resolver = Resolver { catalog, scope, reports, plugins: Vec::new() };
    let workflow = resolver.run(&mut file);
    (workflow, resolver.scope.places)
}

impl Resolver<'_, '_, '_> {
    fn run(&mut self, file: &mut File) -> Option<Workflow> {
        for kind in [BlockKind::Use, BlockKind::Template] {
            self.named(file, kind);
        }
        let declared = self.named(file, BlockKind::Param);
        params(&declared.blocks, &mut self.scope, self.reports);
        expand(file, &mut self.scope, self.reports);
        prune(file, &mut self.scope);
        self.checked(file)
    }

    fn checked(&mut self, file: &File) -> Option<Workflow> {
        let name = self.single(file, BlockKind::Workflow, true);
        self.load_plugins(file);
        let models = self.named(file, BlockKind::Model);
        let resolved_models = self.models(&models);
        let servers = self.named(file, BlockKind::Server);
        let resolved_servers = self.servers(&servers);
        let corpora = self.named(file, BlockKind::Corpus);
        let resolved_corpora = self.corpora(&corpora);
        let policies = self.named(file, BlockKind::Policy);
        let mut resolved_policies = self.policies(&policies, &models, &servers);
        let agents = self.named(file, BlockKind::Agent);
        let resolved_agents = self.agents(&agents, &policies);
        let designers = self.named(file, BlockKind::Designer);
        let resolved_designers = self.designers(&designers, &policies);
        for (kind, names) in
            [(BlockKind::Model, &models), (BlockKind::Policy, &policies), (BlockKind::Agent, &agents)]
        {
            // A designer writes the agents.
            let designed = kind == BlockKind::Agent && !designers.blocks.is_empty();
            if names.blocks.is_empty() && !names.nameless && !designed {
                self.missing(kind);
            }
        }
        let scenarios = self.scenarios(file, &agents, &corpora, &designers);
        let sandbox = self.sandbox(file);
        let inference = self.inference(file);
        let train_block = self.single(file, BlockKind::Train, false);
        let train = train_block.map(|block| {
            self.train(block, &agents, &resolved_agents, &resolved_designers, &mut resolved_policies)
        });
        self.devices(file, &mut resolved_policies);
        self.packed_weights(&resolved_models, &resolved_policies);
        if let (Some(block), Some(Some(train))) = (train_block, &train) {
            for scenario in scenarios.trained() {
                self.end_reward(block, train, scenario, &resolved_policies);
                self.no_reward(file, scenario, &resolved_policies);
            }
            self.returns_in_trees(block, train, scenarios.trained(), &resolved_agents, &resolved_policies);
            self.levels_by_arrival(block, train, &scenarios.list);
            let designers = (&designers, resolved_designers.as_slice());
            self.trained_designers(block, train, designers, &scenarios.list, &resolved_policies);
        }
        self.server_policies(&policies, &resolved_policies, &resolved_servers, &resolved_agents);
        self.sleeping_servers(&servers, &resolved_servers, train.as_ref().and_then(Option::as_ref));
        let trained = train_block.zip(train.as_ref().and_then(Option::as_ref));
        let cluster = self.cluster(file, &resolved_policies, &designers, &scenarios.list, trained);
        let evaluations = self.evaluations(file, &scenarios, &agents, &policies);
        self.unused_servers(&servers, &resolved_policies);
        self.names_of_other_branches(&[
            (SettingKind::Model, &models, "model"),
            (SettingKind::Policy, &policies, "policy"),
            (SettingKind::PolicyNames, &policies, "policy"),
            (SettingKind::Server, &servers, "server"),
            (SettingKind::CorpusNames, &corpora, "corpus"),
            (SettingKind::Designer, &designers, "designer"),
        ]);
        self.unused_corpora(&corpora, &scenarios);
        self.unused_designers(&designers, &scenarios);
        let users = PolicyUsers {
            agents: &resolved_agents,
            designers: &resolved_designers,
            evaluations: &evaluations,
        };
        self.unused(file, &models, &policies, &resolved_policies, &users);
        let agents: Option<Vec<Agent>> = resolved_agents.into_iter().map(|one| one.agent).collect();
        let all_policies: Option<Vec<Policy>> = resolved_policies.into_iter().map(|one| one.policy).collect();
        let layout = match (&agents, &all_policies) {
            (Some(agents), Some(policies)) => Some(layout::derive_layout(agents, policies)),
            _ => None,
        };
        self.asserted_layout(file, layout);
        // Params of other files count only if they are used.
        let counts = |name: &String| !name.contains('.') || self.scope.used.contains(name);
        let params = self.scope.params.iter().filter(|(name, _)| counts(name));
        let params = params
            .map(|(name, value)| match value {
                Param::Evaluated(Some(value)) => Some((name.clone(), value.to_json())),
                Param::Evaluated(None) | Param::Pending => None,
            })
            .collect::<Option<_>>()?;
        let workflow = Workflow {
            name: name?.name.as_ref()?.text.clone(),
            params,
            plugins: self.plugins.iter().map(|loaded| loaded.plugin.clone()).collect::<Option<_>>()?,
            models: resolved_models.into_iter().map(|one| one.model).collect::<Option<_>>()?,
            servers: resolved_servers.into_iter().collect::<Option<_>>()?,
            corpora: resolved_corpora.into_iter().collect::<Option<_>>()?,
            policies: all_policies?,
            agents: agents?,
            designers: resolved_designers.into_iter().collect::<Option<_>>()?,
            scenarios: scenarios.list.into_iter().collect::<Option<_>>()?,
            sandbox: sandbox?,
            inference: inference?,
            cluster: cluster?,
            train: match train {
                Some(train) => Some(train?),
                None => None,
            },
            evaluations: evaluations.into_iter().collect::<Option<_>>()?,
            layout: layout?,
        };
        self.trained_without_episodes(&policies, &workflow);
        Some(workflow)
    }

    fn models(&mut self, models: &NamedBlocks) -> Vec<ResolvedModel> {
        (0..models.blocks.len())
            .map(|at| {
                let own =
                    check_settings(models.blocks[at], &ItemOfBlock::None, &mut self.scope, self.reports);
                let dtype = own.text("dtype").and_then(|name| name.parse().ok());
                let source = self.in_head(models.blocks[at]);
                let model = source.map(|source| Model { name: models.name(at).to_owned(), source, dtype });
                ResolvedModel { model, dtype: own.location("dtype") }
            })
            .collect()
    }

    fn policies(
        &mut self,
        policies: &NamedBlocks,
        models: &NamedBlocks,
        servers: &NamedBlocks,
    ) -> Vec<ResolvedPolicy> {
        let blocks = policies.blocks.iter().enumerate();
        blocks.map(|(at, block)| self.policy(policies.name(at), block, models, servers)).collect()
    }

    fn policy(
        &mut self,
        name: &str,
        block: &Block,
        models: &NamedBlocks,
        servers: &NamedBlocks,
    ) -> ResolvedPolicy {
        let own = check_settings(block, &ItemOfBlock::None, &mut self.scope, self.reports);
        let model = self.reference(&own, "model", models, "model");
        let lora = self.inner(block, BlockKind::Lora).map(|own| {
            Some(Lora {
                rank: own.integer("rank")?,
                alpha: own.number("alpha")?,
                targets: own.words("targets")?,
            })
        });
        let server = own.text("server").map(|_| self.reference(&own, "server", servers, "server"));
        let locations = ["server", "served", "from"].map(|key| own.location(key));
        let blocks = self.policy_blocks(block, &own, models);
        let devices = self.inner(block, BlockKind::PolicyDevices);
        let policy = || {
            Some(Policy {
                name: name.to_owned(),
                model: model?,
                lora: match lora {
                    Some(lora) => Some(lora?),
                    None => None,
                },
                train: own.boolean("train")?,
                from: own.text("from").map(str::to_owned),
                server: match server {
                    Some(server) => Some(server?),
                    None => None,
                },
                served: own.text("served").map(str::to_owned),
                devices: Devices::default(),
                training: None,
            })
        };
        let [server, served, from] = locations;
        ResolvedPolicy { policy: policy(), blocks, devices, server, served, from }
    }

    fn agents(&mut self, agents: &NamedBlocks, policies: &NamedBlocks) -> Vec<ResolvedAgent> {
        let blocks = agents.blocks.iter().enumerate();
        blocks
            .map(|(at, block)| {
                let (item, _, own) = self.with_item(block, ItemKind::Agent);
                let policy = self.reference(&own, "policy", policies, "policy");
                self.low_temperature(&own);
                let grammar = self.grammar(agents.name(at), &own);
                let neutral =
                    [("repetition_penalty", 1.0), ("presence_penalty", 0.0), ("frequency_penalty", 0.0)];
                let changes = |(key, neutral): (&'static str, f64)| {
                    own.number(key).filter(|number| *number != neutral)?;
                    Some((key, own.location(key)?))
                };
                let (temperature, penalties) =
                    (own.location("temperature"), neutral.into_iter().filter_map(changes).collect());
                let grammar_location =
                    ["grammar", "json_schema"].into_iter().find_map(|key| Some((key, own.location(key)?)));
                let agent = || {
                    let (plugin, item) = item?;
                    Some(Agent {
                        name: agents.name(at).to_owned(),
                        plugin,
                        item,
                        policy: policy?,
                        sampling: Sampling { grammar: grammar?, ..sampling(&own)? },
                        max_tokens: own.integer("max_tokens")?,
                        stop: own.words("stop").unwrap_or_default(),
                        thinking: own.boolean("thinking"),
                        long_prompt: match own.text("long_prompt")? {
                            "left" => LongPrompt::Left,
                            "middle" => LongPrompt::Middle,
                            _ => LongPrompt::End,
                        },
                        tool_rounds: own.integer("tool_rounds")?,
                        settings: own.item,
                    })
                };
                ResolvedAgent { agent: agent(), temperature, penalties, grammar: grammar_location }
            })
            .collect()
    }

    /// Reports a temperature between 0 and [`MIN_TEMPERATURE`].
    pub(super) fn low_temperature(&mut self, own: &BlockSettings) {
        let (Some(temperature), Some(location)) = (own.number("temperature"), own.location("temperature"))
        else {
            return;
        };
        if temperature > 0.0 && temperature < MIN_TEMPERATURE {
            let range = format!("0 or at least {MIN_TEMPERATURE}");
            let message = format!("`temperature` is {temperature:e}, but must be {range}");
            self.reports
                .error(DiagnosticCode::OutOfRange, location, message, format!("must be {range}"))
                .help("set it to 0, which always selects the most likely token");
        }
    }

    fn unused(
        &mut self,
        file: &File,
        models: &NamedBlocks,
        policies: &NamedBlocks,
        resolved: &[ResolvedPolicy],
        users: &PolicyUsers,
    ) {
        let PolicyUsers { agents, designers, evaluations } = users;
        // An invalid block may use a block that seems unused.
        let mut unused: Vec<&Block> = Vec::new();
        if !resolved.is_empty() && resolved.iter().all(|one| one.policy.is_some()) {
            let policies = resolved.iter().flat_map(|one| &one.policy).map(|policy| policy.model);
            let critics =
                resolved.iter().flat_map(|one| &one.blocks.critic).filter_map(|critic| critic.model);
            let used: BTreeSet<usize> = policies.chain(critics).collect();
            unused
                .extend((0..models.blocks.len()).filter(|at| !used.contains(at)).map(|at| models.blocks[at]));
        }
        let granted = self.granted_policies(policies, resolved);
        let all_users = !(agents.is_empty() && designers.is_empty())
            && agents.iter().all(|one| one.agent.is_some())
            && designers.iter().all(Option::is_some);
        if all_users && evaluations.iter().all(Option::is_some) {
            let mut used: BTreeSet<usize> =
                agents.iter().flat_map(|one| &one.agent).map(|agent| agent.policy).collect();
            used.extend(granted);
            for designer in designers.iter().flatten() {
                used.insert(designer.policy);
                let named = designer.palette.policies.iter();
                used.extend(named.filter_map(|name| policies.index.get(name.as_str())));
            }
            let in_roles: BTreeSet<usize> =
                evaluations.iter().flatten().flat_map(|one| &one.roles).map(|role| role.policy).collect();
            for (at, (block, own)) in policies.blocks.iter().zip(resolved).enumerate() {
                if used.contains(&at) {
                    continue;
                }
                if !in_roles.contains(&at) {
                    unused.push(block);
                } else if own.policy.as_ref().is_some_and(|policy| policy.training.is_some()) {
                    let message = format!("{} is trained, but only `roles` use it", block.title());
                    self.reports
                        .warning(DiagnosticCode::Unused, block.location(), message, "")
                        .help("set `train = false`, or give it to an agent");
                }
            }
        }
        if !self.reports.failed() {
            let is_unused = |block: &&Block| match (&block.kind, &block.name) {
                (BlockKind::Param, Some(name)) => !block.imported && !self.scope.used.contains(&name.text),
                (BlockKind::Template, Some(name)) => {
                    !block.imported && !self.scope.templates_used.contains(&name.text)
                }
                (BlockKind::Use, Some(name)) => {
                    let prefix = format!("{}.", name.text);
                    let begins = |one: &String| one.starts_with(&prefix);
                    !self.scope.imports_used.iter().any(begins)
                        && !self.scope.used.iter().any(begins)
                        && !self.scope.templates_used.iter().any(begins)
                }
                (BlockKind::Plugin, Some(name)) => {
                    self.plugins.iter().any(|loaded| loaded.name == name.text && !loaded.used)
                }
                _ => false,
            };
            unused.extend(file.blocks.iter().filter(is_unused));
        }
        for block in unused.into_iter().filter(|block| block.sound) {
            let message = format!("{} is never used", block.title());
            self.reports
                .warning(DiagnosticCode::Unused, block.location(), message, "")
                .help("use it or remove it");
        }
    }

    fn asserted_layout(&mut self, file: &File, layout: Option<Layout>) {
        let mut first: Option<Location> = None;
        for (key, value) in &file.layouts {
            if let Some(first) = first {
                self.reports
                    .error(DiagnosticCode::SettingTwice, key.location, "`layout` is set twice", "again here")
                    .also(first, "first here");
                continue;
            }
            first = Some(key.location);
            let kind = SettingKind::Choice(table::LAYOUTS);
            let Some(Scalar::Text(word)) = evaluate_as("layout", kind, value, &mut self.scope, self.reports)
            else {
                continue;
            };
            // What could not be read may decide about the layout.
            let layout = layout.filter(|_| !self.reports.left_out());
            if let Some(layout) = layout.filter(|layout| layout::keyword(*layout) != word) {
                let (is, why) = (layout::keyword(layout), layout::describe(layout));
                let message = format!("the layout is {is}, not {word}: {why}");
                let meant = table::LAYOUTS.iter().find(|choice| choice.word == word);
                let help = meant.map(|choice| format!("{word} means {}", choice.doc));
                self.reports
                    .error(DiagnosticCode::LayoutDiffers, value.location, message, "")
                    .maybe_help(help);
            }
        }
    }
}

/// Blocks that use policies.
struct PolicyUsers<'r> {
    agents: &'r [ResolvedAgent],
    designers: &'r [Option<Designer>],
    evaluations: &'r [Option<Evaluation>],
}

/// Returns the sampling settings of an agent or a designer; a designer has no penalties.
pub(super) fn sampling(own: &BlockSettings) -> Option<Sampling> {
    Some(Sampling {
        temperature: own.number("temperature")?,
        top_k: own.integer("top_k")?,
        top_p: own.number("top_p")?,
        min_p: own.number("min_p")?,
        repetition_penalty: own.number("repetition_penalty").unwrap_or(1.0),
        presence_penalty: own.number("presence_penalty").unwrap_or(0.0),
        frequency_penalty: own.number("frequency_penalty").unwrap_or(0.0),
        logit_bias: Default::default(),
        grammar: None,
    })
}
