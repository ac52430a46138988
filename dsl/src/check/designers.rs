//! Checks `designer` blocks and their palettes.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use pl_types::ItemKind;

use super::block::{ItemOfBlock, check_settings};
use super::resolve::sampling;
use super::resolver::{BUILT_IN, NamedBlocks, ResolvedPolicy, Resolver};
use super::scenarios::ResolvedScenarios;
use crate::diagnostic::DiagnosticCode;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{Block, ValueKind};
use crate::workflow::objective::{Correction, Objective, OldLogprobs, Ratio};
use crate::workflow::{BatchOrder, Designer, ExecutorGroups, Palette, Rollout, Scenario, Train};

/// Item that designers are made of.
const ITEM: &str = "designer";

impl Resolver<'_, '_, '_> {
    pub(super) fn designers(
        &mut self,
        designers: &NamedBlocks,
        policies: &NamedBlocks,
    ) -> Vec<Option<Designer>> {
        let blocks = designers.blocks.iter().enumerate();
        blocks.map(|(at, block)| self.designer(designers.name(at), block, policies)).collect()
    }

    fn designer(&mut self, name: &str, block: &Block, policies: &NamedBlocks) -> Option<Designer> {
        let own = check_settings(block, &ItemOfBlock::None, &mut self.scope, self.reports);
        let is_built_in = self.is_built_in(block);
        let policy = self.reference(&own, "policy", policies, "policy");
        self.low_temperature(&own);
        let palette = self.palette(block, policies);
        is_built_in?;
        Some(Designer {
            name: name.to_owned(),
            policy: policy?,
            designs: own.integer("designs")?,
            executions: own.integer("executions")?,
            executor_groups: match own.text("executor_groups")? {
                "role" => ExecutorGroups::Role,
                _ => ExecutorGroups::Design,
            },
            alternate: NonZeroU32::new(own.integer("alternate")?),
            patterns: own.words("patterns")?,
            instructions: own.text("instructions").map(str::to_owned),
            constrained: own.boolean("constrained")?,
            guided: own.integer("guided")?,
            sampling: sampling(&own)?,
            max_tokens: own.integer("max_tokens")?,
            palette: palette?,
        })
    }

    /// Checks that the block is made of `std.designer`. Returns `None` if an error was reported.
    fn is_built_in(&mut self, block: &Block) -> Option<()> {
        let value = block.value.as_ref()?;
        let found = matches!(&value.kind, ValueKind::Path(names) if *names == [BUILT_IN, ITEM]);
        if !found {
            let message = format!("{} is not made of `{BUILT_IN}.{ITEM}`", block.title());
            self.reports
                .error(DiagnosticCode::UnknownItem, value.location, message, "")
                .help(format!("write `{}`", block.kind.form()));
        }
        found.then_some(())
    }

    fn palette(&mut self, block: &Block, policies: &NamedBlocks) -> Option<Palette> {
        let Some(own) = self.inner(block, BlockKind::Palette) else {
            if block.body.complete {
                let message = format!("{} has no `palette`", block.title());
                self.reports
                    .error(DiagnosticCode::MissingSetting, block.location(), message, "")
                    .help(format!("add `{}` between its braces", BlockKind::Palette.form()));
            }
            return None;
        };
        let named = self.references(&own, "policies", policies, "policy");
        let agents = own.words("agents");
        let mut known = true;
        if let (Some(agents), Some(location)) = (&agents, own.location("agents")) {
            for agent in agents {
                let Some((plugin, item)) = agent.rsplit_once('.') else { continue };
                // An item of a plugin that can't be loaded is unknown, which was reported.
                known &= self.find_item(plugin, item, location, ItemKind::Agent).1.is_some();
            }
        }
        Some(Palette {
            agents: agents.filter(|_| known)?,
            policies: named?.into_iter().map(|at| policies.name(at).to_owned()).collect(),
            max_agents: own.integer("max_agents")?,
            max_visits: own.integer("max_visits")?,
            max_tokens: own.integer("max_tokens")?,
        })
    }

    /// Reports settings of a run that its designers can't be trained with, and turns in which nothing learns. `block` is that
    /// of `train`.
    pub(super) fn trained_designers(
        &mut self,
        block: &Block,
        train: &Train,
        designers: (&NamedBlocks, &[Option<Designer>]),
        scenarios: &[Option<Scenario>],
        policies: &[ResolvedPolicy],
    ) {
        let trained = scenarios.iter().flatten().filter(|scenario| scenario.weight > 0.0);
        let used: BTreeSet<usize> = trained.filter_map(|scenario| scenario.designer).collect();
        let Some(first) = used.first() else { return };
        let name = designers.0.name(*first);
        if train.rollout == Rollout::Tree {
            let message = format!("designer `{name}` can't be trained with `rollout = tree`");
            self.reports
                .error(
                    DiagnosticCode::BadSetting,
                    block.setting_location("rollout"),
                    message,
                    "a tree goes on with one of its candidates, but all designs of a task are played to the end",
                )
                .help("set `rollout = flat`");
        }
        if train.max_refills > 0 {
            let message = format!("designer `{name}` can't be trained with `max_refills`");
            let label =
                "tasks without a spread of returns can't be replaced once designs were written for them";
            self.reports
                .error(DiagnosticCode::BadSetting, block.setting_location("max_refills"), message, label)
                .help("set `max_refills = 0`, or `flat_groups = keep`");
        }
        if train.order == BatchOrder::Arrival {
            let message = format!("designer `{name}` can't be trained with `order = arrival`");
            let label = "a step's designs are played when all of them are written, so no task ends early";
            self.reports
                .error(DiagnosticCode::BadSetting, block.setting_location("order"), message, label)
                .help("set `order = keys`; `schedule = async` stays");
        }
        for at in used {
            if let Some(Some(designer)) = designers.1.get(at) {
                self.turns_of_learning(designers.0.blocks[at], designer, train, policies);
                self.guided(designers.0.blocks[at], designer, policies);
            }
        }
    }

    /// Reports turns of learning that change nothing.
    fn turns_of_learning(
        &mut self,
        block: &Block,
        designer: &Designer,
        train: &Train,
        policies: &[ResolvedPolicy],
    ) {
        let Some(alternate) = designer.alternate else { return };
        let location = block.setting_location("alternate");
        let trained = policies.iter().map(|one| one.policy.as_ref().filter(|policy| policy.train));
        let trained: Vec<Option<&str>> = trained.map(|one| one.map(|policy| policy.name.as_str())).collect();
        let writes = trained.get(designer.policy).is_some_and(Option::is_some);
        let plays =
            trained.iter().flatten().any(|name| designer.palette.policies.iter().any(|own| own == name));
        if !(writes && plays) {
            let frozen = if writes { "no policy of the palette is" } else { "the designer's policy is not" };
            let message = format!("`alternate` has no effect: {frozen} trained");
            self.reports
                .error(DiagnosticCode::NoEffect, location, message, "")
                .help("remove it, or remove `train = false` from the policy");
        } else if alternate.get() >= train.steps {
            let message = format!(
                "designer `{}` never learns: `alternate` is {alternate}, but there are {} steps",
                designer.name, train.steps
            );
            self.reports
                .error(DiagnosticCode::NothingToTrain, location, message, "")
                .help("reduce it, increase `steps`, or set `train = false` in the designer's policy");
        }
    }

    /// Reports guided designs that the designer can't learn from.
    fn guided(&mut self, block: &Block, designer: &Designer, policies: &[ResolvedPolicy]) {
        let Designer { guided, designs, constrained, .. } = *designer;
        let Some(policy) = policies.get(designer.policy).and_then(|one| one.policy.as_ref()) else { return };
        if guided == 0 {
            return;
        }
        let name = &policy.name;
        // Their log-probs were recorded under the grammar, so they say nothing about the policy's own distribution.
        let learns = policy.training.as_ref().is_some_and(|training| {
            let Objective { ratio, old_logprobs, correction, .. } = training.objective;
            ratio == Ratio::None || (old_logprobs == OldLogprobs::Recompute && correction == Correction::None)
        });
        let (code, message, help) = if constrained {
            (
                DiagnosticCode::NoEffect,
                "`guided` has no effect: all designs are sampled from the grammar".to_owned(),
                "remove it, or set `constrained = false`".to_owned(),
            )
        } else if policy.training.is_none() {
            (
                DiagnosticCode::NoEffect,
                format!("`guided` has no effect: policy `{name}` is not trained"),
                "remove it, or train the policy".to_owned(),
            )
        } else if policy.server.is_some() {
            (
                DiagnosticCode::BadSetting,
                format!("`guided` needs the engine of this machine, but policy `{name}` is on a server"),
                "remove it, or `server` from the policy".to_owned(),
            )
        } else if guided > designs {
            (
                DiagnosticCode::BadSetting,
                format!("`guided` is {guided}, but a task has {designs} designs"),
                "reduce it, or increase `designs`".to_owned(),
            )
        } else if !learns {
            (
                DiagnosticCode::BadSetting,
                format!(
                    "policy `{name}` can't learn from guided designs: it compares with the sampler's log-probs, which are those of the grammar"
                ),
                format!("add `train {{ old_logprobs = recompute; correction = none }}` to policy `{name}`"),
            )
        } else {
            return;
        };
        self.reports.error(code, block.setting_location("guided"), message, "").help(help);
    }

    pub(super) fn unused_designers(&mut self, designers: &NamedBlocks, scenarios: &ResolvedScenarios) {
        // An invalid scenario may name any of them.
        if scenarios.list.iter().any(Option::is_none) {
            return;
        }
        let used: BTreeSet<usize> = scenarios.list.iter().flatten().filter_map(|one| one.designer).collect();
        let unused = |(at, block): &(usize, &&Block)| block.sound && !used.contains(at);
        for (_, block) in designers.blocks.iter().enumerate().filter(unused) {
            let message = format!("{} is never used", block.title());
            self.reports
                .warning(DiagnosticCode::Unused, block.location(), message, "")
                .help("write `designer = NAME` in a scenario, or remove it");
        }
    }
}
