//! Checks what is played: environments, rewards and turns, as the one unnamed scenario of a file or in its `scenario` blocks,
//! and the weights of `mix`.

use std::collections::{BTreeMap, BTreeSet};

use pl_types::{Fact, ItemKind};

use super::block::{BlockSettings, ItemOfBlock, check_settings};
use super::condition::ConditionContext;
use super::resolver::{NamedBlocks, Resolver};
use super::turns::{CheckedTurns, turns};
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::spelling::{list, suggest};
use crate::eval::scalar::Scalar;
use crate::eval::typed::evaluate_as;
use crate::settings::SettingKind;
use crate::source::Location;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::declared_name::check_not_reserved;
use crate::syntax::tree::{Block, Body, Entry, File};
use crate::workflow::{Curriculum, Environment, Reward, Rise, Scenario, Tasks, Workflow};

/// Scenarios of a file, with the blocks that they are made of.
pub(super) struct ResolvedScenarios<'f> {
    /// In order of writing. An item is `None` if an error in it was reported.
    pub list: Vec<Option<Scenario>>,
    /// The `scenario` blocks. None in a file with one unnamed scenario.
    pub blocks: NamedBlocks<'f>,
    environments: Vec<ResolvedEnvironment<'f>>,
    /// Position of each scenario's environment in `environments`.
    environment_of: Vec<Option<usize>>,
}

/// An environment that scenarios refer to.
struct ResolvedEnvironment<'f> {
    block: &'f Block,
    environment: Option<Environment>,
    /// `None` if its item is unknown.
    facts: Option<Vec<Fact>>,
}

impl ResolvedScenarios<'_> {
    /// Scenarios that are trained.
    pub fn trained(&self) -> impl Iterator<Item = &Scenario> {
        self.list.iter().flatten().filter(|scenario| scenario.weight > 0.0)
    }

    /// Returns the environment of a scenario. Returns `None` if it is unknown or invalid.
    pub fn environment(&self, scenario: usize) -> Option<&Environment> {
        let at = self.environment_of.get(scenario).copied().flatten()?;
        self.environments.get(at)?.environment.as_ref()
    }

    /// True if all scenarios have the same environment.
    pub fn share_environment(&self) -> bool {
        self.environment_of.iter().collect::<BTreeSet<_>>().len() <= 1
    }

    /// Positions of the corpora that environments name. Returns `None` if an environment is invalid.
    pub fn corpora_used(&self) -> Option<BTreeSet<usize>> {
        let of = |one: &ResolvedEnvironment| {
            Some(one.environment.as_ref().filter(|_| one.block.sound)?.corpora.clone())
        };
        let used = self.environments.iter().map(of).collect::<Option<Vec<_>>>()?;
        (!self.environments.is_empty()).then(|| used.into_iter().flatten().collect())
    }
}

impl Resolver<'_, '_, '_> {
    /// Checks environments, turns, rewards, scenarios and their weights.
    pub(super) fn scenarios<'f>(
        &mut self,
        file: &'f File,
        agents: &NamedBlocks,
        corpora: &NamedBlocks,
        designers: &NamedBlocks,
    ) -> ResolvedScenarios<'f> {
        let blocks = self.named(file, BlockKind::Scenario);
        let resolved = match blocks.blocks.is_empty() && !blocks.nameless {
            true => self.unnamed_scenario(file, blocks, agents, corpora),
            false => self.named_scenarios(file, blocks, agents, corpora, designers),
        };
        self.agents_not_reached(agents, &resolved.1);
        resolved.0
    }

    /// Checks the environment, the turns and the reward of a file without `scenario` blocks.
    fn unnamed_scenario<'f>(
        &mut self,
        file: &'f File,
        blocks: NamedBlocks<'f>,
        agents: &NamedBlocks,
        corpora: &NamedBlocks,
    ) -> (ResolvedScenarios<'f>, Vec<CheckedTurns>) {
        let environment = self.single(file, BlockKind::Environment, true);
        let environments: Vec<ResolvedEnvironment> =
            environment.into_iter().map(|block| self.environment(block, corpora)).collect();
        let checked = self.single(file, BlockKind::Turns, true).map(|block| {
            let own = check_settings(block, &ItemOfBlock::None, &mut self.scope, self.reports);
            let keyword = Location::Span(block.keyword);
            self.turns(&block.body, keyword, &own, agents, environments.first())
        });
        let reward = self.single(file, BlockKind::Reward, true).and_then(|block| self.reward(block));
        if let Some(block) = self.single(file, BlockKind::Mix, false) {
            self.reports
                .error(DiagnosticCode::ScenarioForm, block.keyword, "there are no scenarios to mix", "")
                .help("remove `mix`, or write `scenario` blocks");
        }
        let scenario = || {
            Some(Scenario {
                name: None,
                weight: 1.0,
                environment: environments.first()?.environment.clone()?,
                turns: checked.as_ref()?.turns.clone()?,
                reward: reward?,
                designer: None,
            })
        };
        let resolved = ResolvedScenarios {
            list: vec![scenario()],
            blocks,
            environment_of: vec![(!environments.is_empty()).then_some(0)],
            environments,
        };
        (resolved, checked.into_iter().collect())
    }

    /// Checks the `scenario` blocks of a file.
    fn named_scenarios<'f>(
        &mut self,
        file: &'f File,
        blocks: NamedBlocks<'f>,
        agents: &NamedBlocks,
        corpora: &NamedBlocks,
        designers: &NamedBlocks,
    ) -> (ResolvedScenarios<'f>, Vec<CheckedTurns>) {
        for block in file.blocks.iter().filter(|block| block.kind == BlockKind::Turns) {
            let diagnostic = self.reports.error(
                DiagnosticCode::ScenarioForm,
                block.keyword,
                "`turns` is outside of the scenarios",
                "",
            );
            if let Some(first) = blocks.blocks.first() {
                diagnostic.also(first.location(), "a file with scenarios has its turns in them");
            }
            diagnostic.help("move it between the braces of a scenario");
        }
        let environment_blocks = self.named(file, BlockKind::Environment);
        let reward_blocks = self.named(file, BlockKind::Reward);
        for (kind, names) in
            [(BlockKind::Environment, &environment_blocks), (BlockKind::Reward, &reward_blocks)]
        {
            if names.blocks.is_empty() && !names.nameless {
                self.missing(kind);
            }
        }
        let environments: Vec<ResolvedEnvironment> =
            environment_blocks.blocks.iter().map(|block| self.environment(block, corpora)).collect();
        let rewards: Vec<Option<Reward>> =
            reward_blocks.blocks.iter().map(|block| self.reward(block)).collect();
        let weights = self.weights(file, &blocks);
        let (mut list, mut environment_of, mut reward_of) = (Vec::new(), Vec::new(), Vec::new());
        let mut checked = Vec::new();
        for (at, block) in blocks.blocks.iter().enumerate() {
            let own = check_settings(block, &ItemOfBlock::None, &mut self.scope, self.reports);
            let environment = match environment_blocks.blocks.is_empty() {
                true => None,
                false => self.reference(&own, "environment", &environment_blocks, "environment"),
            };
            let reward = match reward_blocks.blocks.is_empty() {
                true => None,
                false => self.reference(&own, "reward", &reward_blocks, "reward"),
            };
            let of_environment = environment.and_then(|at| environments.get(at));
            let designer =
                own.location("designer").map(|_| self.reference(&own, "designer", designers, "designer"));
            let turns = match (block.inner(BlockKind::Turns), designer) {
                (None, Some(_)) => CheckedTurns::to_be_designed(),
                _ => self.turns_of(block, agents, of_environment),
            };
            let scenario = || {
                Some(Scenario {
                    name: Some(blocks.name(at).to_owned()),
                    weight: *weights.as_ref()?.get(at)?,
                    environment: of_environment?.environment.clone()?,
                    turns: turns.turns.clone()?,
                    reward: rewards.get(reward?)?.clone()?,
                    designer: match designer {
                        Some(designer) => Some(designer?),
                        None => None,
                    },
                })
            };
            list.push(scenario());
            environment_of.push(environment);
            reward_of.push(reward);
            checked.push(turns);
        }
        self.unused_parts(&environment_blocks, &environment_of);
        self.unused_parts(&reward_blocks, &reward_of);
        (ResolvedScenarios { list, blocks, environments, environment_of }, checked)
    }

    /// Checks the `turns` of a scenario.
    fn turns_of(
        &mut self,
        block: &Block,
        agents: &NamedBlocks,
        environment: Option<&ResolvedEnvironment>,
    ) -> CheckedTurns {
        let Some((keyword, body)) = block.inner(BlockKind::Turns) else {
            if block.body.complete {
                let message = format!("{} has no `turns`", block.title());
                self.reports
                    .error(DiagnosticCode::MissingSetting, block.location(), message, "")
                    .help("add `turns { start -> NAME -> end }` between its braces, or `designer = NAME`");
            }
            return CheckedTurns::default();
        };
        let Some(own) = self.inner(block, BlockKind::Turns) else { return CheckedTurns::default() };
        self.turns(body, keyword.location, &own, agents, environment)
    }

    fn turns(
        &mut self,
        body: &Body,
        keyword: Location,
        own: &BlockSettings,
        agents: &NamedBlocks,
        environment: Option<&ResolvedEnvironment>,
    ) -> CheckedTurns {
        let names: Vec<&str> = agents.names().collect();
        let name = environment.and_then(|environment| environment.block.name.as_ref());
        let context = ConditionContext {
            facts: environment.and_then(|environment| environment.facts.as_deref()),
            environment: name.map_or("", |name| &name.text),
            agents: &names,
            at_start: false,
            all_agents: !agents.nameless,
        };
        turns(body, keyword, own.integer("max"), &names, &context, &mut self.scope, self.reports)
    }

    /// Reports the agents that no edge of any scenario reaches.
    fn agents_not_reached(&mut self, agents: &NamedBlocks, checked: &[CheckedTurns]) {
        let reached = checked.iter().map(|turns| turns.agents.as_ref()).collect::<Option<Vec<_>>>();
        let Some(reached) = reached.filter(|turns| !turns.is_empty()) else { return };
        for (at, block) in agents.blocks.iter().enumerate() {
            let name = agents.name(at);
            // An agent with a reserved name was already reported.
            let reserved = check_not_reserved(BlockKind::Agent, name).is_err();
            if !reserved && !reached.iter().any(|turns| turns.contains(&at)) {
                let message = format!("no edge reaches agent `{name}`");
                self.reports
                    .error(DiagnosticCode::AgentNotReached, block.location(), message, "")
                    .help("add it to `turns`, or remove it");
            }
        }
    }

    /// Reports environments or rewards that no scenario names.
    fn unused_parts(&mut self, blocks: &NamedBlocks, used: &[Option<usize>]) {
        // An invalid scenario may name any of them.
        if used.iter().any(Option::is_none) {
            return;
        }
        for (at, block) in blocks.blocks.iter().enumerate() {
            if block.sound && !used.contains(&Some(at)) {
                let message = format!("{} is never used", block.title());
                self.reports
                    .warning(DiagnosticCode::Unused, block.location(), message, "")
                    .help("name it in a scenario, or remove it");
            }
        }
    }

    /// Warns of trained policies that only scenarios without a weight use.
    pub(super) fn trained_without_episodes(&mut self, policies: &NamedBlocks, workflow: &Workflow) {
        let used = |in_training: bool| -> BTreeSet<usize> {
            let scenarios = workflow.scenarios.iter().filter(|one| (one.weight > 0.0) == in_training);
            scenarios.flat_map(|scenario| workflow.policies_of(scenario)).collect()
        };
        let (in_training, elsewhere) = (used(true), used(false));
        for at in elsewhere.difference(&in_training) {
            if workflow.policies[*at].training.is_some() {
                let block = policies.blocks[*at];
                let message =
                    format!("{} is trained, but only scenarios with weight 0 use it", block.title());
                self.reports
                    .warning(DiagnosticCode::Unused, block.location(), message, "")
                    .help("set `train = false`, or give one of the scenarios a weight in `mix`");
            }
        }
    }

    /// Returns the weight of each scenario: that of `mix`, or the same for all. Returns `None` if an error was reported.
    fn weights(&mut self, file: &File, scenarios: &NamedBlocks) -> Option<Vec<f64>> {
        let Some(block) = self.single(file, BlockKind::Mix, false) else {
            return Some(vec![1.0; scenarios.blocks.len()]);
        };
        let weights = self.mix(block, scenarios);
        if !block.body.complete || scenarios.nameless {
            return None;
        }
        let missing: Vec<&str> = scenarios.names().filter(|name| !weights.contains_key(name)).collect();
        if !missing.is_empty() {
            let message = format!("`mix` has no weight of {}", list(&missing));
            self.reports
                .error(DiagnosticCode::BadMix, block.keyword, message, "")
                .help(format!("add `{} = 0` to leave it to evaluations", missing[0]));
            return None;
        }
        let weights = weights.into_values().map(|(at, weight)| Some((at, weight?)));
        let weights: BTreeMap<usize, f64> = weights.collect::<Option<_>>()?;
        if weights.values().all(|weight| *weight == 0.0) {
            self.reports
                .error(DiagnosticCode::BadMix, block.keyword, "all weights of `mix` are 0", "")
                .help("give the scenarios that are trained a weight above 0");
            return None;
        }
        Some(weights.into_values().collect())
    }

    /// Returns the positions and weights of the scenarios that `mix` names. A weight is `None` if an error in it was
    /// reported.
    fn mix<'b>(
        &mut self,
        block: &'b Block,
        scenarios: &NamedBlocks,
    ) -> BTreeMap<&'b str, (usize, Option<f64>)> {
        let mut seen: BTreeMap<&str, Location> = BTreeMap::new();
        let mut weights = BTreeMap::new();
        for entry in &block.body.entries {
            let setting = match entry {
                Entry::Setting(setting) => setting,
                Entry::Nested { name, .. } => {
                    self.reports
                        .error(DiagnosticCode::WrongType, name.location, "`mix` has no blocks", "")
                        .help(format!("write `{} = WEIGHT`", name.text));
                    continue;
                }
                Entry::Edge(_) => continue,
            };
            let key = &setting.key;
            if let Some(first) = seen.insert(&key.text, key.location) {
                let message = format!("`{}` is set twice in `mix`", key.text);
                self.reports
                    .error(DiagnosticCode::SettingTwice, key.location, message, "again here")
                    .also(first, "first here")
                    .help("remove one of them");
                continue;
            }
            let kind = SettingKind::Number { min: 0.0, max: 1e9, above: false };
            let weight = self.scope.in_namespace(setting.namespace, self.reports, |scope, reports| {
                evaluate_as(&key.text, kind, &setting.value, scope, reports)
            });
            let weight = match weight {
                Some(Scalar::Number(weight)) => Some(weight),
                _ => None,
            };
            match scenarios.index.get(key.text.as_str()) {
                Some(at) => {
                    weights.insert(key.text.as_str(), (*at, weight));
                }
                None if scenarios.nameless => {}
                None => {
                    let hint = suggest(&key.text, "the scenarios are", scenarios.names());
                    let message = format!("there is no scenario `{}`", key.text);
                    self.reports
                        .error(DiagnosticCode::UnknownName, key.location, message, "")
                        .maybe_help(hint);
                }
            }
        }
        weights
    }

    fn environment<'f>(&mut self, block: &'f Block, corpora: &NamedBlocks) -> ResolvedEnvironment<'f> {
        let (at, item, own) = self.with_item(block, ItemKind::Environment);
        let curriculum = self.curriculum(block, &own);
        let level = match &curriculum {
            Some(Some(curriculum)) => Some(curriculum.from),
            Some(None) => None,
            None => own.integer("level"),
        };
        let tasks = self.tasks(block, &own, "train", level);
        let searched = self.references(&own, "corpus", corpora, "corpus");
        let environment = || {
            let (plugin, item) = at?;
            Some(Environment {
                name: block.name.as_ref()?.text.clone(),
                plugin,
                item,
                tasks: tasks?,
                curriculum: match curriculum {
                    Some(curriculum) => Some(curriculum?),
                    None => None,
                },
                corpora: searched?,
                drawings: own.boolean("drawings")?,
                settings: own.item,
            })
        };
        let environment = environment();
        ResolvedEnvironment { block, environment, facts: item.map(|item| item.facts.clone()) }
    }

    /// Checks `curriculum { … }`. Returns `None` if the environment has none, and `Some(None)` if an error was reported.
    fn curriculum(&mut self, block: &Block, environment: &BlockSettings) -> Option<Option<Curriculum>> {
        let own = self.inner(block, BlockKind::Curriculum)?;
        let (keyword, _) = block.inner(BlockKind::Curriculum)?;
        for (key, why) in
            [("tasks", "they have no levels"), ("level", "the curriculum sets the level of the tasks")]
        {
            if let Some(location) = environment.location(key) {
                let message = format!("{} has both `{key}` and a curriculum", block.title());
                self.reports
                    .error(DiagnosticCode::BadSetting, location, message, why)
                    .also(keyword.location, "the curriculum")
                    .help("remove one of them");
                return Some(None);
            }
        }
        if let Some(every) = own.location("every") {
            for key in ["raise_at", "window"] {
                if let Some(location) = own.location(key) {
                    let message = format!("`{key}` has no effect beside `every`");
                    self.reports
                        .error(DiagnosticCode::BadSetting, location, message, "the level rises by success")
                        .also(every, "the level rises by steps")
                        .help("remove one of them");
                    return Some(None);
                }
            }
        }
        let rise = match own.location("every") {
            Some(_) => own.integer("every").map(Rise::Steps),
            None => own
                .number("raise_at")
                .zip(own.integer("window"))
                .map(|(at, window)| Rise::Success { at, window }),
        };
        let (Some(from), Some(to), Some(rise)) = (own.integer::<u32>("from"), own.integer::<u32>("to"), rise)
        else {
            return Some(None);
        };
        if from >= to {
            let location = own.location("to").unwrap_or(keyword.location);
            let message = format!("the curriculum goes from level {from} to level {to}");
            self.reports
                .error(DiagnosticCode::BadCurriculum, location, message, "not above `from`")
                .help("write a higher level, or `level` in place of the curriculum");
            return Some(None);
        }
        Some(Some(Curriculum { from, to, rise }))
    }

    fn reward(&mut self, block: &Block) -> Option<Reward> {
        let (at, described, own) = self.with_item(block, ItemKind::Reward);
        let (plugin, item) = at?;
        Some(Reward {
            name: block.name.as_ref()?.text.clone(),
            plugin,
            item,
            team: own.number("team")?,
            local: own.number("local")?,
            scores_end: described.is_some_and(|item| item.scores_end()),
            settings: own.item,
        })
    }
}

impl Environment {
    /// Level of evaluations that have none of their own. `None` if the tasks are not generated.
    pub(super) fn level_of_evaluations(&self) -> Option<u32> {
        match (&self.curriculum, &self.tasks) {
            (Some(curriculum), _) => Some(curriculum.to),
            (None, Tasks::Generated { level, .. }) => Some(*level),
            (None, _) => None,
        }
    }
}
