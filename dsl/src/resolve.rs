//! From the syntax tree to the checked workflow: every name to an index, every item looked up.
//!
//! All that can be checked is, whatever else is wrong: a block that is amiss keeps its place and name, so that
//! those who use it are not reported as well.

mod plugins;
mod run;

use std::collections::{BTreeSet, HashMap};

use self::plugins::{BUILT_IN, LoadedPlugin};
use crate::block::{Guest, Settings, body, settings};
use crate::catalog::{Catalog, ItemKind};
use crate::condition::Surroundings;
use crate::diagnostic::{Code, Place, Reports, suggest};
use crate::expand::expand;
use crate::layout;
use crate::params::params;
use crate::prune::prune;
use crate::scope::{Param, Scope, Space};
use crate::settings::{self as table, Kind};
use crate::source::Sources;
use crate::syntax::{Block, BlockKind, Entry, File};
use crate::turns::turns;
use crate::values::{Scalar, typed};
use crate::workflow::{
    Agent, Dtype, Environment, Layout, Lora, Model, Policy, Reward, Sampling, Scenario, Tasks, Workflow,
};

/// Checks the whole tree. None: something is amiss, and reported.
pub(crate) fn resolve(
    mut file: File,
    sources: &Sources,
    spaces: Vec<Space>,
    catalog: &dyn Catalog,
    reports: &mut Reports,
) -> Option<Workflow> {
    let scope = Scope::new(catalog, sources, spaces);
    let mut resolver = Resolver { catalog, scope, reports, plugins: Vec::new() };
    resolver.run(&mut file)
}

/// The blocks of one kind that have a name of their own, in order.
struct Named<'f> {
    blocks: Vec<&'f Block>,
    index: HashMap<&'f str, usize>,
    /// A block whose name can't be read is there: what is not found may be it.
    nameless: bool,
}

impl<'f> Named<'f> {
    fn name(&self, at: usize) -> &'f str {
        self.blocks[at].name.as_ref().map_or("", |name| name.text.as_str())
    }

    fn names(&self) -> impl Iterator<Item = &'f str> + '_ {
        (0..self.blocks.len()).map(|at| self.name(at))
    }
}

/// An agent, and where those of its settings are written that training has something to say about.
struct Written {
    agent: Option<Agent>,
    temperature: Option<Place>,
    /// Penalties that change something, by their keys.
    penalties: Vec<(&'static str, Place)>,
}

struct Resolver<'c, 'r, 'o> {
    catalog: &'c dyn Catalog,
    scope: Scope<'c>,
    reports: &'r mut Reports<'o>,
    plugins: Vec<LoadedPlugin>,
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
        let sources = self.models(&models);
        let policies = self.named(file, BlockKind::Policy);
        let resolved_policies = self.policies(&policies, &models);
        let agents = self.named(file, BlockKind::Agent);
        let resolved_agents = self.agents(&agents, &policies);
        for (kind, names) in
            [(BlockKind::Model, &models), (BlockKind::Policy, &policies), (BlockKind::Agent, &agents)]
        {
            if names.blocks.is_empty() && !names.nameless {
                self.missing(kind);
            }
        }
        let environment_block = self.single(file, BlockKind::Environment, true);
        let (environment, facts) = match environment_block {
            Some(block) => self.environment(block),
            None => (None, None),
        };
        let turns_block = self.single(file, BlockKind::Turns, true);
        let turns = turns_block.and_then(|block| {
            let own = settings(block, &Guest::None, &mut self.scope, self.reports);
            let names: Vec<&str> = agents.names().collect();
            let places: Vec<(&str, Place)> =
                agents.blocks.iter().zip(&names).map(|(block, name)| (*name, block.place())).collect();
            let environment = environment_block.and_then(|block| block.name.as_ref());
            let around = Surroundings {
                facts: facts.as_deref(),
                environment: environment.map_or("", |name| &name.text),
                agents: &names,
                at_start: false,
                all_agents: !agents.nameless,
            };
            turns(block, own.integer("max"), &places, &around, &mut self.scope, self.reports)
        });
        let reward = self.single(file, BlockKind::Reward, true).map(|block| self.reward(block));
        let sandbox = self.sandbox(file);
        let inference = self.inference(file);
        let train_block = self.single(file, BlockKind::Train, false);
        let train = train_block.map(|block| self.train(block));
        if train_block.is_some() {
            self.training(&agents, &resolved_agents, &resolved_policies, train_block);
        }
        let evaluations = self.evaluations(file, environment.as_ref());
        self.unused(file, &models, &policies, &resolved_policies, &resolved_agents);
        let agents: Option<Vec<Agent>> = resolved_agents.into_iter().map(|one| one.agent).collect();
        let policies: Option<Vec<Policy>> = resolved_policies.into_iter().collect();
        let layout = match (&agents, &policies) {
            (Some(agents), Some(policies)) => Some(layout::layout(agents, policies)),
            _ => None,
        };
        self.asserted_layout(file, layout);
        // Those of other files count where they are used.
        let counts = |name: &String| !name.contains('.') || self.scope.used.contains(name);
        let params = self.scope.params.iter().filter(|(name, _)| counts(name));
        let params = params
            .map(|(name, value)| match value {
                Param::Known(Some(value)) => Some((name.clone(), value.json())),
                Param::Known(None) | Param::Later => None,
            })
            .collect::<Option<_>>()?;
        Some(Workflow {
            name: name?.name.as_ref()?.text.clone(),
            params,
            plugins: self.plugins.iter().map(|loaded| loaded.plugin.clone()).collect::<Option<_>>()?,
            models: sources.into_iter().collect::<Option<_>>()?,
            policies: policies?,
            agents: agents?,
            scenarios: vec![Scenario { environment: environment?, turns: turns?, reward: reward?? }],
            sandbox: sandbox?,
            inference: inference?,
            train: match train {
                Some(train) => Some(train?),
                None => None,
            },
            evaluations: evaluations.into_iter().collect::<Option<_>>()?,
            layout: layout?,
        })
    }

    fn missing(&mut self, kind: BlockKind) {
        let keyword = kind.keyword();
        self.reports
            .about_file(Code::MissingBlock, format!("the file has no `{keyword}` block"))
            .help(format!("add one: `{}`", kind.form()));
    }

    /// The block of a kind that stands at most once.
    fn single<'f>(&mut self, file: &'f File, kind: BlockKind, required: bool) -> Option<&'f Block> {
        let mut blocks = file.blocks.iter().filter(|block| block.kind == kind);
        let first = blocks.next();
        for other in blocks {
            let message = format!("a second `{}` block", kind.keyword());
            let help = match kind {
                BlockKind::Environment | BlockKind::Reward => {
                    "several scenarios in one file are not supported yet"
                }
                _ => "keep one of them",
            };
            let diagnostic = self.reports.error(Code::Duplicate, other.keyword, message, "a second one");
            if let Some(first) = first {
                diagnostic.also(first.keyword.into(), "the first one");
            }
            diagnostic.help(help);
        }
        if first.is_none() && required {
            self.missing(kind);
        }
        first
    }

    fn named<'f>(&mut self, file: &'f File, kind: BlockKind) -> Named<'f> {
        let mut out = Named { blocks: Vec::new(), index: HashMap::new(), nameless: false };
        for block in file.blocks.iter().filter(|block| block.kind == kind) {
            let Some(name) = &block.name else {
                out.nameless = true;
                continue;
            };
            let reserved: &[&str] = match kind {
                BlockKind::Agent => &["start", "end", "team", "success"],
                BlockKind::Plugin | BlockKind::Use => &[BUILT_IN, "env", "reward"],
                BlockKind::Param => &["turn"],
                _ => &[],
            };
            if reserved.contains(&name.text.as_str()) {
                let why = match (kind, name.text.as_str()) {
                    (_, BUILT_IN) => "the built-in plugin's name",
                    (_, "env" | "reward") => "what conditions look at",
                    (BlockKind::Param, _) => "what conditions call an agent's earlier visits",
                    (_, "start" | "end") => "where turns begin and end",
                    _ => "a part of `reward` in conditions",
                };
                let message = format!("no {} can be called `{}`: that is {why}", kind.keyword(), name.text);
                self.reports.error(Code::Reserved, name.place, message, "").help("choose another name");
            }
            if let Some(first) = out.index.get(name.text.as_str()) {
                let message = format!("a second {} `{}`", kind.keyword(), name.text);
                let first: &Block = out.blocks[*first];
                self.reports
                    .error(Code::Duplicate, name.place, message, "again here")
                    .also(first.place(), "first here")
                    .help("give one of them another name");
                continue;
            }
            out.index.insert(&name.text, out.blocks.len());
            out.blocks.push(block);
        }
        out
    }

    /// The text behind the `=` of a block's head.
    fn in_head(&mut self, block: &Block) -> Option<String> {
        let (own, value) = (table::in_head(block.kind)?, block.value.as_ref()?);
        let found = self.scope.within(block.space, self.reports, |scope, reports| {
            typed(own.key, own.kind, value, scope, reports)
        });
        match found? {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    fn models(&mut self, models: &Named) -> Vec<Option<Model>> {
        (0..models.blocks.len())
            .map(|at| {
                let own = settings(models.blocks[at], &Guest::None, &mut self.scope, self.reports);
                let source = self.in_head(models.blocks[at])?;
                let dtype = match own.text("dtype") {
                    Some("f32") => Some(Dtype::F32),
                    Some("f16") => Some(Dtype::F16),
                    Some("bf16") => Some(Dtype::Bf16),
                    _ => None,
                };
                Some(Model { name: models.name(at).to_owned(), source, dtype })
            })
            .collect()
    }

    /// The position of the block that a setting names.
    fn reference(&mut self, own: &Settings, key: &str, to: &Named, what: &str) -> Option<usize> {
        let name = own.text(key)?;
        if let Some(at) = to.index.get(name) {
            return Some(*at);
        }
        if let (Some(place), false) = (own.place(key), to.nameless) {
            let hint = suggest(name, "the file has", to.names());
            let message = format!("there is no {what} `{name}`");
            self.reports.error(Code::UnknownName, place, message, "").maybe_help(hint);
        }
        None
    }

    fn policies(&mut self, policies: &Named, models: &Named) -> Vec<Option<Policy>> {
        let blocks = policies.blocks.iter().enumerate();
        blocks.map(|(at, block)| self.policy(policies.name(at), block, models)).collect()
    }

    /// The settings of the block inside this one, where it is written.
    fn inner(&mut self, block: &Block) -> Option<Settings> {
        let kind = block.kind.inner()?;
        let (name, inside) = block.body.entries.iter().find_map(|entry| match entry {
            Entry::Nested { name, body } if name.text == kind.keyword() => Some((name, body)),
            _ => None,
        })?;
        let title = format!("`{}` of {}", kind.keyword(), block.title());
        Some(body(kind, &title, name.place, inside, &Guest::None, &mut self.scope, self.reports))
    }

    fn policy(&mut self, name: &str, block: &Block, models: &Named) -> Option<Policy> {
        let own = settings(block, &Guest::None, &mut self.scope, self.reports);
        let model = self.reference(&own, "model", models, "model");
        let lora = match self.inner(block) {
            None => None,
            Some(own) => Some(Lora {
                rank: own.integer("rank")?,
                alpha: own.number("alpha")?,
                targets: own.words("targets")?,
            }),
        };
        Some(Policy {
            name: name.to_owned(),
            model: model?,
            lora,
            train: own.boolean("train")?,
            from: own.text("from").map(str::to_owned),
        })
    }

    fn agents(&mut self, agents: &Named, policies: &Named) -> Vec<Written> {
        let blocks = agents.blocks.iter().enumerate();
        blocks
            .map(|(at, block)| {
                let (item, _, own) = self.with_item(block, ItemKind::Agent);
                let policy = self.reference(&own, "policy", policies, "policy");
                let neutral =
                    [("repetition_penalty", 1.0), ("presence_penalty", 0.0), ("frequency_penalty", 0.0)];
                let changes = |(key, neutral): (&'static str, f64)| {
                    own.number(key).filter(|number| *number != neutral)?;
                    Some((key, own.place(key)?))
                };
                let (temperature, penalties) =
                    (own.place("temperature"), neutral.into_iter().filter_map(changes).collect());
                let agent = || {
                    let (plugin, item) = item?;
                    Some(Agent {
                        name: agents.name(at).to_owned(),
                        plugin,
                        item,
                        policy: policy?,
                        sampling: sampling(&own)?,
                        max_tokens: own.integer("max_tokens")?,
                        stop: own.words("stop").unwrap_or_default(),
                        thinking: own.boolean("thinking"),
                        settings: own.item,
                    })
                };
                Written { agent: agent(), temperature, penalties }
            })
            .collect()
    }

    fn environment(&mut self, block: &Block) -> (Option<Environment>, Option<Vec<crate::catalog::Fact>>) {
        let (at, item, own) = self.with_item(block, ItemKind::Environment);
        let level = own.integer("level");
        let tasks = self.tasks(block, &own, "train", level);
        let environment = || {
            let (plugin, item) = at?;
            Some(Environment {
                name: block.name.as_ref()?.text.clone(),
                plugin,
                item,
                tasks: tasks?,
                settings: own.item,
            })
        };
        (environment(), item.map(|item| item.facts.clone()))
    }

    /// Where tasks come from: a file, or else the generator.
    fn tasks(&mut self, block: &Block, own: &Settings, split: &str, level: Option<u32>) -> Option<Tasks> {
        let (Some(Place::At(tasks)), Some(Place::At(level_at))) = (own.place("tasks"), own.place("level"))
        else {
            // From outside, a file takes the place of the generator and its level.
            return match (own.place("tasks"), own.text("tasks")) {
                (Some(_), Some(path)) => Some(Tasks::File(path.to_owned())),
                (Some(_), None) => None,
                (None, _) => Some(Tasks::Generated { split: split.to_owned(), level: level? }),
            };
        };
        let message = format!("{} has both `tasks` and `level`", block.title());
        self.reports
            .error(Code::BadSetting, level_at, message, "this is for generated tasks")
            .also(tasks.into(), "and here they are read from a file")
            .help("remove one of them");
        None
    }

    fn reward(&mut self, block: &Block) -> Option<Reward> {
        let (at, _, own) = self.with_item(block, ItemKind::Reward);
        let (plugin, item) = at?;
        Some(Reward {
            name: block.name.as_ref()?.text.clone(),
            plugin,
            item,
            team: own.number("team")?,
            local: own.number("local")?,
            settings: own.item,
        })
    }

    fn unused(
        &mut self,
        file: &File,
        models: &Named,
        policies: &Named,
        resolved: &[Option<Policy>],
        agents: &[Written],
    ) {
        // What is amiss may well use what seems unused.
        let mut idle: Vec<&Block> = Vec::new();
        if !resolved.is_empty() && resolved.iter().all(Option::is_some) {
            let used: BTreeSet<usize> = resolved.iter().flatten().map(|policy| policy.model).collect();
            idle.extend((0..models.blocks.len()).filter(|at| !used.contains(at)).map(|at| models.blocks[at]));
        }
        if !agents.is_empty() && agents.iter().all(|one| one.agent.is_some()) {
            let used: BTreeSet<usize> =
                agents.iter().flat_map(|one| &one.agent).map(|agent| agent.policy).collect();
            idle.extend(
                (0..policies.blocks.len()).filter(|at| !used.contains(at)).map(|at| policies.blocks[at]),
            );
        }
        if !self.reports.failed() {
            let is_idle = |block: &&Block| match (&block.kind, &block.name) {
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
            idle.extend(file.blocks.iter().filter(is_idle));
        }
        for block in idle.into_iter().filter(|block| block.sound) {
            let message = format!("{} is never used", block.title());
            self.reports.warning(Code::Unused, block.place(), message, "").help("use it or remove it");
        }
    }

    fn asserted_layout(&mut self, file: &File, layout: Option<Layout>) {
        let mut first: Option<Place> = None;
        for (key, value) in &file.layouts {
            if let Some(first) = first {
                self.reports
                    .error(Code::SettingTwice, key.place, "`layout` stands twice", "again here")
                    .also(first, "first here");
                continue;
            }
            first = Some(key.place);
            let kind = Kind::Choice(table::LAYOUTS);
            let Some(Scalar::Text(word)) = typed("layout", kind, value, &mut self.scope, self.reports) else {
                continue;
            };
            if let Some(layout) = layout.filter(|layout| layout::word(*layout) != word) {
                let (is, why) = (layout::word(layout), layout::meaning(layout));
                let message = format!("the layout is {is}, not {word}: {why}");
                let meant = table::LAYOUTS.iter().find(|choice| choice.word == word);
                let help = meant.map(|choice| format!("{word} means {}", choice.doc));
                self.reports.error(Code::LayoutDiffers, value.place, message, "").maybe_help(help);
            }
        }
    }
}

fn sampling(own: &Settings) -> Option<Sampling> {
    Some(Sampling {
        temperature: own.number("temperature")?,
        top_k: own.integer("top_k")?,
        top_p: own.number("top_p")?,
        min_p: own.number("min_p")?,
        repetition_penalty: own.number("repetition_penalty")?,
        presence_penalty: own.number("presence_penalty")?,
        frequency_penalty: own.number("frequency_penalty")?,
    })
}
