//! Checks the `train` block and the training of each policy.

use std::collections::HashSet;

use super::block::{BlockSettings, ItemOfBlock, check_settings};
use super::objective::{TrainingSettings, algorithm_word, critic as critic_of, objective, optimizer};
use super::objective_rules::{TrainedCase, check_objectives};
use super::resolver::{CriticBlock, NamedBlocks, PolicyBlocks, ResolvedAgent, ResolvedPolicy, Resolver};
use super::update_steps::{UpdateSettings, update_settings};
use crate::diagnostic::DiagnosticCode;
use crate::source::Location;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::Block;
use crate::workflow::objective::{Advantage, Critic, CriticBase, FlatGroups, Objective};
use crate::workflow::{
    Agent, BatchOrder, Designer, Faults, InFlight, Policy, PolicyTraining, Rise, Rollout, Scenario, Schedule,
    Train,
};

/// Staleness of `async` if the file has none.
const DEFAULT_STALENESS: u32 = 2;

impl Resolver<'_, '_, '_> {
    /// Checks `train { … }` and fills in the training of each policy.
    pub(super) fn train(
        &mut self,
        block: &Block,
        names: &NamedBlocks,
        agents: &[ResolvedAgent],
        designers: &[Option<Designer>],
        policies: &mut [ResolvedPolicy],
    ) -> Option<Train> {
        let file = check_settings(block, &ItemOfBlock::None, &mut self.scope, self.reports);
        let mut train = self.run_wide(block, &file);
        // Designs of a task are compared too, however many samples there are.
        let samples = file.integer::<u32>("samples").filter(|_| designers.is_empty());
        let objectives = self.policy_training(&file, agents, policies, samples);
        if let Some(train) = &train {
            self.staleness_of_policies(train, policies);
            self.in_flight_of_policies(train, policies, &file);
        }
        self.samples(block, &file, &objectives);
        let drops = self.drops_groups(&file, &objectives);
        if let Some(train) = &mut train {
            self.refills(train, drops, &file);
        }
        self.nothing_to_train(block, agents, designers, policies);
        self.sampling_of_trained(names, agents, policies);
        train
    }

    /// Checks the settings that all policies share.
    fn run_wide(&mut self, block: &Block, own: &BlockSettings) -> Option<Train> {
        let samples: u32 = own.integer("samples")?;
        let (tasks, parts): (u32, u32) = (own.integer("tasks_per_step")?, own.integer("mini_batches")?);
        // Each task has at least one turn, and each turn yields one completion per sample.
        let least = u64::from(tasks) * u64::from(samples);
        if u64::from(parts) > least {
            let location = own.location("mini_batches").unwrap_or(block.location());
            let message = format!("`mini_batches` is {parts}, but a step may yield only {least} completions");
            self.reports
                .error(DiagnosticCode::Uneven, location, message, format!("can't be divided into {parts}"))
                .help("reduce it, or increase `tasks_per_step` or `samples`");
        }
        let schedule = match own.text("schedule")? {
            "sync" => Schedule::Sync,
            "one_step_off" => Schedule::OneStepOff,
            "async" => Schedule::Async,
            _ => return None,
        };
        let staleness = self.staleness(schedule, own)?;
        Some(Train {
            rollout: match own.text("rollout")? {
                "tree" => Rollout::Tree,
                "flat" => Rollout::Flat,
                _ => return None,
            },
            samples,
            tasks_per_step: own.integer("tasks_per_step")?,
            max_refills: own.integer("max_refills")?,
            faults: self.faults(own)?,
            fault_penalty: own.number("fault_penalty")?,
            steps: own.integer("steps")?,
            schedule,
            staleness,
            order: self.order(staleness, own)?,
            in_flight: self.in_flight(staleness, own)?,
            epochs: own.integer("epochs")?,
            mini_batches: own.integer("mini_batches")?,
            shuffle_rewards: own.boolean("shuffle_rewards")?,
            token_budget: own.integer("token_budget"),
            data_parallel: own.integer("data_parallel")?,
            gradient_checkpointing: own.boolean("gradient_checkpointing")?,
            deterministic: own.boolean("deterministic")?,
            record_tokens: own.boolean("record_tokens")?,
            checkpoint_every: own.integer("checkpoint_every")?,
            keep_checkpoints: own.integer("keep_checkpoints")?,
            episodes: own.integer("episodes")?,
        })
    }

    /// Returns the treatment of completions that make a plugin fail.
    fn faults(&mut self, own: &BlockSettings) -> Option<Faults> {
        let faults = match own.text("faults")? {
            "redraw" => Faults::Redraw,
            "penalize" => Faults::Penalize,
            _ => return None,
        };
        if let (Faults::Redraw, Some(location)) = (faults, own.location("fault_penalty")) {
            let message = "`fault_penalty` has no effect without `faults = penalize`";
            self.reports
                .error(DiagnosticCode::NoEffect, location, message, "")
                .help("remove it, or set `faults = penalize`");
        }
        Some(faults)
    }

    /// Returns true if groups without a spread of returns are left out.
    fn drops_groups(&mut self, file: &BlockSettings, objectives: &[Objective]) -> bool {
        let drops = objectives.iter().any(|one| one.flat_groups == FlatGroups::Drop);
        if let (false, Some(location)) = (drops || objectives.is_empty(), file.location("max_refills")) {
            let message = "`max_refills` has no effect without `flat_groups = drop`";
            self.reports
                .error(DiagnosticCode::NoEffect, location, message, "")
                .help("remove it, or set `flat_groups = drop`");
        }
        drops
    }

    /// Sets the number of refills to 0 where steps have none.
    fn refills(&mut self, train: &mut Train, drops: bool, file: &BlockSettings) {
        let by_arrival = train.order == BatchOrder::Arrival;
        if let (true, true, Some(location)) =
            (by_arrival, train.max_refills > 0, file.location("max_refills"))
        {
            let message =
                "`order = arrival` closes a step before all of its tasks have ended, so it can't be refilled";
            self.reports
                .error(DiagnosticCode::BadSetting, location, message, "")
                .help("remove `max_refills`, or set `order = keys`");
        }
        if !drops || by_arrival {
            train.max_refills = 0;
        }
    }

    /// Reports a level that rises by the success of steps, if the tasks of a step end in several updates.
    pub(super) fn levels_by_arrival(&mut self, block: &Block, train: &Train, scenarios: &[Option<Scenario>]) {
        let rises = |scenario: &Scenario| {
            let curriculum = scenario.environment.curriculum.as_ref();
            curriculum.is_some_and(|curriculum| matches!(curriculum.rise, Rise::Success { .. }))
        };
        if train.order == BatchOrder::Arrival && scenarios.iter().flatten().any(rises) {
            let message =
                "with `order = arrival`, the level of a curriculum can't rise by the success of a step";
            self.reports
                .error(DiagnosticCode::BadSetting, block.location(), message, "")
                .help("set `every` in the curriculum, or `order = keys`");
        }
    }

    /// Returns the staleness of a schedule. Only that of `async` can be chosen.
    fn staleness(&mut self, schedule: Schedule, own: &BlockSettings) -> Option<u32> {
        let (word, fixed) = match schedule {
            Schedule::Async => {
                let written = own.location("staleness").is_some();
                return if written { own.integer("staleness") } else { Some(DEFAULT_STALENESS) };
            }
            Schedule::Sync => ("sync", 0),
            Schedule::OneStepOff => ("one_step_off", 1),
        };
        if let (Some(location), Some(written)) = (own.location("staleness"), own.integer::<u32>("staleness"))
            && written != fixed
        {
            let message =
                format!("`schedule = {word}` has a staleness of {fixed}, but `staleness` is {written}");
            self.reports
                .error(DiagnosticCode::BadSetting, location, message, "")
                .help("set `schedule = async`, or remove `staleness`");
        }
        Some(fixed)
    }

    /// Returns the tasks that an update trains on. Only a staleness leaves a choice.
    fn order(&mut self, staleness: u32, own: &BlockSettings) -> Option<BatchOrder> {
        let order = match own.text("order")? {
            "keys" => BatchOrder::Keys,
            "arrival" => BatchOrder::Arrival,
            _ => return None,
        };
        if let (BatchOrder::Arrival, 0 | 1, Some(location)) = (order, staleness, own.location("order")) {
            let message = format!(
                "`order = arrival` has no effect with a staleness of {staleness}: every update has to wait for all of its \
                 tasks"
            );
            self.reports
                .error(DiagnosticCode::NoEffect, location, message, "")
                .help("set `schedule = async` with a `staleness` of 2 or more, or remove `order`");
        }
        Some(order)
    }

    /// Returns the weights of episodes in progress. Without a staleness, no policy is updated meanwhile.
    fn in_flight(&mut self, staleness: u32, own: &BlockSettings) -> Option<InFlight> {
        let in_flight = match own.text("in_flight")? {
            "off" => InFlight::Off,
            "recompute" => InFlight::Recompute,
            "keep" => InFlight::Keep,
            _ => return None,
        };
        if let (true, 0, Some(location)) = (in_flight != InFlight::Off, staleness, own.location("in_flight"))
        {
            let message =
                "`in_flight` has no effect with a staleness of 0: no policy is updated while episodes play";
            self.reports
                .error(DiagnosticCode::NoEffect, location, message, "")
                .help("set `schedule = one_step_off` or `async`, or remove `in_flight`");
        }
        Some(in_flight)
    }

    /// Reports weights that can't take over in the middle of completions.
    fn in_flight_of_policies(&mut self, train: &Train, policies: &[ResolvedPolicy], own: &BlockSettings) {
        let Some(location) = own.location("in_flight").filter(|_| train.in_flight != InFlight::Off) else {
            return;
        };
        let policies = policies.iter().filter_map(|one| one.policy.as_ref());
        let served = policies.filter(|policy| policy.train).find(|policy| policy.server.is_some());
        if let Some(policy) = served {
            let message = format!(
                "a server generates for policy `{}`, and does not tell which weights it samples a token with",
                policy.name
            );
            self.reports
                .error(DiagnosticCode::BadSetting, location, message, "")
                .help("remove `in_flight`, or generate for trained policies on this machine");
        }
    }

    /// Checks the staleness of policies that have their own.
    fn staleness_of_policies(&mut self, train: &Train, policies: &[ResolvedPolicy]) {
        let mut trained = Vec::new();
        for ResolvedPolicy { policy, blocks, .. } in policies {
            let Some(policy) = policy else { continue };
            let Some(training) = &policy.training else { continue };
            let location = blocks.train.as_ref().and_then(|(_, own)| own.location("staleness"));
            trained.push((policy, training.staleness.unwrap_or(train.staleness), location));
        }
        let own =
            trained.iter().find_map(|(policy, staleness, location)| Some((policy, staleness, (*location)?)));
        let Some((_, _, location)) = own else { return };
        if train.schedule != Schedule::Async {
            let message = "a policy has a staleness of its own only with `schedule = async`";
            self.reports
                .error(DiagnosticCode::BadSetting, location, message, "")
                .help("set `schedule = async` in `train`, or remove `staleness`");
            return;
        }
        for (index, (policy, staleness, location)) in trained.iter().enumerate() {
            let shares = |(other, ..): &&(&Policy, u32, Option<Location>)| {
                other.model == policy.model && other.lora.is_some() && policy.lora.is_some()
            };
            let different = trained[..index].iter().filter(shares).find(|(_, own, _)| own != staleness);
            if let Some((other, theirs, place)) = different
                && let Some(location) = location.or(*place)
            {
                let message = format!(
                    "policies `{}` and `{}` are adapters on one model and are updated together, but their staleness is \
                     {theirs} and {staleness}",
                    other.name, policy.name
                );
                self.reports
                    .error(DiagnosticCode::BadSetting, location, message, "")
                    .help("give both the same, or load the model a second time under another name");
                return;
            }
        }
        let differs = trained.iter().any(|(_, staleness, _)| *staleness != trained[0].1);
        if differs && train.order == BatchOrder::Arrival {
            let message = "with `order = arrival`, all policies have the same staleness";
            self.reports
                .error(DiagnosticCode::BadSetting, location, message, "")
                .help("remove `staleness` from the policies, or set `order = keys`");
            return;
        }
        let replaced = trained.iter().find(|(policy, ..)| policy.lora.is_none() || policy.server.is_some());
        if let (true, Some((policy, ..))) = (differs, replaced) {
            let what =
                if policy.lora.is_none() { "trains a whole model" } else { "is generated for by a server" };
            let message = format!(
                "policy `{}` {what}, so its versions replace each other and the staleness of all policies is the same",
                policy.name
            );
            self.reports.error(DiagnosticCode::BadSetting, location, message, "").help(
                "remove `staleness` from the policies, or give every trained policy `lora` and generate on this machine",
            );
        }
    }

    /// Resolves and checks the training of each policy, with `samples` completions of an agent's turn. Returns the objectives of the
    /// trained ones.
    fn policy_training(
        &mut self,
        file: &BlockSettings,
        agents: &[ResolvedAgent],
        policies: &mut [ResolvedPolicy],
        samples: Option<u32>,
    ) -> Vec<Objective> {
        let steps: Option<u32> = file.integer("steps");
        let mut users: Vec<Vec<&Agent>> = policies.iter().map(|_| Vec::new()).collect();
        for agent in agents.iter().filter_map(|one| one.agent.as_ref()) {
            if let Some(users) = users.get_mut(agent.policy) {
                users.push(agent);
            }
        }
        let (mut cases, mut reported) = (Vec::new(), HashSet::new());
        for (resolved, users) in policies.iter_mut().zip(users) {
            let ResolvedPolicy { policy, blocks: PolicyBlocks { train, critic }, .. } = resolved;
            let Some(policy) = policy.as_mut().filter(|policy| policy.train) else { continue };
            let settings = TrainingSettings { file, own: train.as_ref().map(|(_, own)| own) };
            let Some(objective) = objective(&settings, &users) else { continue };
            let max_tokens = users.iter().map(|agent| agent.max_tokens).min();
            cases.push(TrainedCase { settings, objective, max_tokens, samples });
            self.update_steps(&policy.name, &settings, steps, &mut reported);
            let critic = self.critic(policy, &settings, &objective, critic.as_ref());
            policy.training = (|| {
                let UpdateSettings { freeze, update_every, steps_per_update } = update_settings(&settings)?;
                let optimizer = optimizer(&settings)?;
                let staleness =
                    settings.own.and_then(|own| own.location("staleness").map(|_| own.integer("staleness")));
                // One that is written and wrong was reported.
                let staleness = staleness.map_or(Some(None), |written| written.map(Some))?;
                Some(PolicyTraining {
                    objective,
                    optimizer,
                    freeze,
                    update_every,
                    steps_per_update,
                    staleness,
                    critic: critic?,
                })
            })();
        }
        check_objectives(&cases, self.reports);
        cases.into_iter().map(|case| case.objective).collect()
    }

    /// Returns the critic of a policy: that of its `critic` block, or the default one if the advantage needs one.
    fn critic(
        &mut self,
        policy: &Policy,
        settings: &TrainingSettings,
        objective: &Objective,
        own: Option<&CriticBlock>,
    ) -> Option<Option<Critic>> {
        let needed = objective.advantage == Advantage::Gae;
        match own {
            None if !needed => Some(None),
            None => Some(Some(critic_of(&self.without_block(BlockKind::Critic), None)?)),
            Some(own) if needed => {
                let mut critic = critic_of(&own.settings, own.model)?;
                self.critic_settings(policy, own, &critic);
                self.critic_warm_up(&policy.name, settings, own);
                // Adapters on one base share passes, whatever they are for.
                if critic.on == CriticBase::Adapter && critic.model == Some(policy.model) {
                    critic.model = None;
                }
                if matches!(critic.on, CriticBase::Policy | CriticBase::Shared) {
                    critic.model = None;
                }
                Some(Some(critic))
            }
            Some(own) => {
                // An override may choose another advantage for a file that has a critic.
                let from_outside = ["algorithm", "advantage"]
                    .into_iter()
                    .filter_map(|key| settings.written(key))
                    .any(|one| matches!(one.location, Location::Override(_)));
                if !from_outside {
                    let message = format!(
                        "policy `{}` has a critic, but its advantage (`{}`) needs none",
                        policy.name,
                        objective.value_of("advantage").unwrap_or_default()
                    );
                    self.reports
                        .warning(DiagnosticCode::CriticUnused, own.location, message, "")
                        .help("remove it, or set `advantage = gae`");
                }
                Some(None)
            }
        }
    }

    /// Reports settings of a critic that exclude each other or have no effect.
    fn critic_settings(&mut self, policy: &Policy, own: &CriticBlock, critic: &Critic) {
        let CriticBlock { settings, model, .. } = own;
        // An override may choose other hidden states for a file that has settings of its own choice.
        let from_outside = matches!(settings.location("on"), Some(Location::Override(_)));
        if from_outside && critic.on != CriticBase::Adapter {
            return;
        }
        let mut without_effect = |key: &str, word: &str| {
            if let Some(location) = settings.location(key) {
                let message = format!("`{key}` has no effect without `on = {word}`");
                self.reports
                    .error(DiagnosticCode::NoEffect, location, message, "")
                    .help(format!("remove it, or set `on = {word}`"));
            }
        };
        if critic.on != CriticBase::Shared {
            without_effect("weight", "shared");
        }
        if critic.on != CriticBase::Adapter {
            ["rank", "alpha", "targets"].into_iter().for_each(|key| without_effect(key, "adapter"));
        }
        let Some(location) = settings.location("model") else { return };
        let on = settings.location("on").unwrap_or(own.location);
        match critic.on {
            CriticBase::Policy | CriticBase::Shared => {
                let word = settings.text("on").unwrap_or_default();
                let message =
                    format!("`on = {word}` reads the hidden states of the policy, not those of `model`");
                self.reports
                    .error(DiagnosticCode::BadSetting, location, message, "")
                    .also(on, "the value head is on the policy")
                    .help(
                        "remove one of them; `on = adapter` and `on = model` have hidden states of their own",
                    );
            }
            CriticBase::Adapter if *model == Some(policy.model) && policy.lora.is_none() => {
                let message = format!(
                    "policy `{}` trains this model itself, so an adapter on it would be on weights that change",
                    policy.name
                );
                self.reports
                    .error(DiagnosticCode::BadSetting, location, message, "")
                    .also(on, "an adapter on this model")
                    .help(
                        "remove `model` to put the adapter on the policy's weights as they are trained, set \
                         `on = model`, or load the model a second time under another name",
                    );
            }
            CriticBase::Adapter | CriticBase::Model => {}
        }
    }

    /// Checks that groups have something to compare.
    fn samples(&mut self, block: &Block, file: &BlockSettings, objectives: &[Objective]) {
        let (Some(samples @ ..2), Some(first)) =
            (file.integer::<u32>("samples"), objectives.iter().find(|one| one.is_relative_to_group()))
        else {
            return;
        };
        let location = file.location("samples").unwrap_or(block.location());
        let word = algorithm_word(first.algorithm);
        let message = format!("{word} compares the completions of a group, but `samples` is {samples}");
        self.reports
            .error(DiagnosticCode::TooFewSamples, location, message, "must be at least 2")
            .help("start with 4");
    }

    /// Reports a `train` block without a trained policy among those of agents, of designers and of what these are made of.
    fn nothing_to_train(
        &mut self,
        train: &Block,
        agents: &[ResolvedAgent],
        designers: &[Option<Designer>],
        policies: &[ResolvedPolicy],
    ) {
        let policy = |at: usize| policies.get(at).and_then(|one| one.policy.as_ref());
        let named = |name: &String| {
            policies.iter().filter_map(|one| one.policy.as_ref()).find(|policy| policy.name == *name)
        };
        let of_agents = agents.iter().map(|one| one.agent.as_ref().and_then(|agent| policy(agent.policy)));
        let of_designers = designers.iter().flat_map(|designer| match designer {
            Some(designer) => {
                let of_palette = designer.palette.policies.iter().map(named);
                std::iter::once(policy(designer.policy)).chain(of_palette).collect()
            }
            None => vec![None],
        });
        // Invalid ones may be meant to be trained.
        let mut all = of_agents.chain(of_designers).peekable();
        if all.peek().is_some() && all.all(|policy| policy.is_some_and(|policy| !policy.train)) {
            self.reports
                .error(
                    DiagnosticCode::NothingToTrain,
                    train.keyword,
                    "no agent's policy is trained",
                    "nothing to train",
                )
                .help("remove `train = false` from a policy, or the `train` block");
        }
    }

    /// Checks the agents of trained policies.
    fn sampling_of_trained(
        &mut self,
        names: &NamedBlocks,
        agents: &[ResolvedAgent],
        policies: &[ResolvedPolicy],
    ) {
        let policy = |agent: &Agent| policies.get(agent.policy).and_then(|one| one.policy.as_ref());
        for (at, written) in agents.iter().enumerate() {
            let policy = written.agent.as_ref().and_then(policy);
            let Some(policy) = policy.filter(|policy| policy.train) else { continue };
            let greedy = written.agent.as_ref().is_some_and(|agent| agent.sampling.temperature == 0.0);
            if let (true, Some(location)) = (greedy, written.temperature) {
                let message = format!(
                    "agent `{}` samples greedily: the completions of its groups are equal and give no training signal",
                    names.name(at)
                );
                self.reports
                    .warning(DiagnosticCode::GreedyTraining, location, message, "")
                    .help("train with a temperature above 0");
            }
            for (key, location) in &written.penalties {
                let message = format!(
                    "agent `{}` samples with `{key}`, but its policy `{}` is trained: training would use \
                     probabilities other than those that its tokens were sampled with",
                    names.name(at),
                    policy.name
                );
                self.reports.error(DiagnosticCode::UntrainableSampling, *location, message, "").help(format!(
                    "remove it (training supports `top_k`, `top_p` and `min_p`), set `{key}` only in `evaluate` \
                     blocks, or set `train = false` in policy `{}`",
                    policy.name
                ));
            }
        }
    }

    /// Checks the inner blocks of a policy's training. `train = false` excludes them.
    pub(super) fn policy_blocks(
        &mut self,
        block: &Block,
        own: &BlockSettings,
        models: &NamedBlocks,
    ) -> PolicyBlocks {
        let [train, critic] = [BlockKind::PolicyTrain, BlockKind::Critic].map(|kind| {
            let settings = self.inner(block, kind)?;
            Some((block.inner(kind)?.0.location, settings))
        });
        // `--set POLICY.train=false` may switch off what the file prepares.
        if let (Some(false), Some(off @ Location::Span(_))) = (own.boolean("train"), own.location("train")) {
            for (kind, found) in [(BlockKind::PolicyTrain, &train), (BlockKind::Critic, &critic)] {
                let Some((location, _)) = found else { continue };
                let message = format!("{} has `train = false` and `{}`", block.title(), kind.form());
                self.reports
                    .error(DiagnosticCode::BadSetting, *location, message, "")
                    .also(off, "it is not trained")
                    .help("remove one of them");
            }
        }
        let critic = critic.map(|(location, settings)| {
            let model = self.reference(&settings, "model", models, "model");
            CriticBlock { location, settings, model }
        });
        PolicyBlocks { train, critic }
    }
}
