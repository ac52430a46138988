//! The blocks that say how a workflow is run: `sandbox`, `train`, `evaluate`.

use super::{Named, Resolver};
use crate::block::{Guest, body, settings};
use crate::diagnostic::{Code, Place};
use crate::settings as table;
use crate::source::Span;
use crate::syntax::{Block, BlockKind, Body, File};
use crate::workflow::{
    Agent, Algorithm, Environment, Evaluation, LrSchedule, Policy, Rollout, Sandbox, SandboxBackend,
    Schedule, Tasks, Train,
};

impl Resolver<'_, '_, '_> {
    pub(super) fn sandbox(&mut self, file: &File) -> Option<Sandbox> {
        let nothing = Body { entries: Vec::new(), complete: true };
        let own = match self.single(file, BlockKind::Sandbox, false) {
            Some(block) => settings(block, &Guest::None, &mut self.scope, self.reports),
            None => {
                let (kind, place) = (BlockKind::Sandbox, Place::At(Span::new(0, 0)));
                body(kind, "`sandbox`", place, &nothing, &Guest::None, &mut self.scope, self.reports)
            }
        };
        let backend = match own.text("backend")? {
            "wasm" => SandboxBackend::Wasm,
            _ => return None,
        };
        Some(Sandbox {
            backend,
            timeout: own.duration("timeout")?,
            memory: own.bytes("memory")?,
            output: own.bytes("output")?,
            workers: own.integer("workers")?,
        })
    }

    pub(super) fn train(&mut self, block: &Block) -> Option<Train> {
        let own = settings(block, &Guest::None, &mut self.scope, self.reports);
        let algorithm = match own.text("algorithm")? {
            "at_grpo" => Algorithm::AtGrpo,
            _ => return None,
        };
        let samples: u32 = own.integer("samples")?;
        if samples < 2 {
            let place = own.place("samples").unwrap_or(block.place());
            let message = format!("at_grpo compares the completions of a group, and `samples` is {samples}");
            self.reports
                .error(Code::TooFewSamples, place, message, "must be at least 2")
                .help("4 is a good start");
        }
        Some(Train {
            algorithm,
            rollout: match own.text("rollout")? {
                "tree" => Rollout::Tree,
                "flat" => Rollout::Flat,
                _ => return None,
            },
            samples,
            tasks_per_step: own.integer("tasks_per_step")?,
            steps: own.integer("steps")?,
            schedule: match own.text("schedule")? {
                "sync" => Schedule::Sync,
                _ => return None,
            },
            learning_rate: own.number("learning_rate")?,
            lr_schedule: match own.text("lr_schedule")? {
                "constant" => LrSchedule::Constant,
                "cosine" => LrSchedule::Cosine,
                _ => return None,
            },
            warmup: own.integer("warmup")?,
            weight_decay: own.number("weight_decay")?,
            max_grad_norm: own.number("max_grad_norm")?,
            epochs: own.integer("epochs")?,
            mini_batches: own.integer("mini_batches")?,
            clip_low: own.number("clip_low")?,
            clip_high: own.number("clip_high")?,
            dual_clip: own.number("dual_clip")?,
            normalize: own.boolean("normalize")?,
            shuffle_rewards: own.boolean("shuffle_rewards")?,
            token_budget: own.integer("token_budget")?,
            gradient_checkpointing: own.boolean("gradient_checkpointing")?,
            checkpoint_every: own.integer("checkpoint_every")?,
            keep_checkpoints: own.integer("keep_checkpoints")?,
            episodes: own.integer("episodes")?,
        })
    }

    /// What training needs of agents and policies.
    pub(super) fn training(
        &mut self,
        names: &Named,
        agents: &[(Option<Agent>, Option<Place>)],
        policies: &[Option<Policy>],
        train: Option<&Block>,
    ) {
        let trained = |agent: &Agent| policies.get(agent.policy).map(|one| one.as_ref().map(|one| one.train));
        let states: Vec<Option<bool>> =
            agents.iter().map(|(agent, _)| agent.as_ref().and_then(trained).flatten()).collect();
        if let (false, true, Some(train)) =
            (states.is_empty(), states.iter().all(|state| *state == Some(false)), train)
        {
            self.reports
                .error(
                    Code::NothingToTrain,
                    train.keyword,
                    "no agent's policy is trained",
                    "nothing to train",
                )
                .help("remove `train = false` from a policy, or the `train` block");
        }
        for (at, (agent, place)) in agents.iter().enumerate() {
            let greedy = agent.as_ref().is_some_and(|agent| agent.temperature == 0.0);
            if let (true, Some(true), Some(place)) = (greedy, states[at], place) {
                let message = format!(
                    "agent `{}` always takes the likeliest token: its groups teach nothing",
                    names.name(at)
                );
                self.reports
                    .warning(Code::GreedyTraining, *place, message, "")
                    .help("train with a temperature above 0");
            }
        }
    }

    pub(super) fn evaluations(
        &mut self,
        file: &File,
        environment: Option<&Environment>,
    ) -> Vec<Option<Evaluation>> {
        let blocks = self.named(file, BlockKind::Evaluate);
        let all = blocks.blocks.iter().enumerate();
        all.map(|(at, block)| {
            let own = settings(block, &Guest::None, &mut self.scope, self.reports);
            let inherited = match environment.map(|environment| &environment.tasks) {
                Some(Tasks::Generated { level, .. }) => Some(*level),
                _ => match table::find(BlockKind::Environment, "level").map(|own| own.default) {
                    Some(table::Default::Integer(level)) => u32::try_from(level).ok(),
                    _ => None,
                },
            };
            let level = if own.place("level").is_some() { own.integer("level") } else { inherited };
            let tasks = self.tasks(block, &own, "test", level);
            if let (Some(Environment { name, tasks: Tasks::File(path), .. }), Some(Tasks::Generated { .. })) =
                (environment, &tasks)
            {
                let message = format!("{} plays generated tasks, but `{name}` reads {path}", block.title());
                self.reports
                    .warning(Code::OtherTasks, block.place(), message, "")
                    .help(format!("give it `tasks`, or `--set {}.tasks=FILE`", blocks.name(at)));
            }
            Some(Evaluation {
                name: blocks.name(at).to_owned(),
                every: own.integer("every")?,
                tasks: tasks?,
                limit: own.integer("limit")?,
                samples: own.integer("samples")?,
                temperature: own.number("temperature"),
            })
        })
        .collect()
    }
}
