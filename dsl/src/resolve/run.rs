//! The blocks that say how a workflow is run: `sandbox`, `inference`, `train`, `evaluate`.

use super::{Named, Resolver, Written};
use crate::block::{Guest, Settings, body, settings};
use crate::diagnostic::{Code, Place};
use crate::settings as table;
use crate::source::Span;
use crate::syntax::{Block, BlockKind, Body, File};
use crate::workflow::{
    Agent, Algorithm, Docker, Environment, Evaluation, Inference, LrSchedule, Policy, Resampling, Rollout,
    Sandbox, SandboxBackend, Schedule, Tasks, Train,
};

impl Resolver<'_, '_, '_> {
    /// The settings of a block that is there whether or not it is written.
    fn implied(&mut self, file: &File, kind: BlockKind) -> Settings {
        if let Some(block) = self.single(file, kind, false) {
            return settings(block, &Guest::None, &mut self.scope, self.reports);
        }
        let nothing = Body::empty();
        let (title, place) = (format!("`{}`", kind.keyword()), Place::At(Span::new(0, 0)));
        body(kind, &title, place, &nothing, &Guest::None, &mut self.scope, self.reports)
    }

    pub(super) fn sandbox(&mut self, file: &File) -> Option<Sandbox> {
        let own = self.implied(file, BlockKind::Sandbox);
        let backend = match own.text("backend")? {
            "wasm" => SandboxBackend::Wasm,
            "docker" => SandboxBackend::Docker,
            _ => return None,
        };
        let docker = match backend {
            SandboxBackend::Wasm => None,
            SandboxBackend::Docker => Some(Docker {
                image: own.text("image").map(str::to_owned),
                pids: own.integer("pids")?,
                cpus: own.number("cpus")?,
                endpoints: own.words("endpoints").unwrap_or_default(),
                certificates: own.text("certificates").map(str::to_owned),
                jobs_per_worker: own.integer("jobs_per_worker")?,
                run: own.words("run").unwrap_or_default(),
                fallback: own.text("fallback").is_some(),
            }),
        };
        Some(Sandbox {
            backend,
            docker,
            timeout: own.duration("timeout")?,
            memory: own.bytes("memory")?,
            output: own.bytes("output")?,
            workers: own.integer("workers")?,
        })
    }

    pub(super) fn inference(&mut self, file: &File) -> Option<Inference> {
        let own = self.implied(file, BlockKind::Inference);
        Some(Inference {
            kv_cache: own.bytes("kv_cache")?,
            slots: own.integer("slots")?,
            threads: own.integer("threads"),
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
        let (tasks, parts): (u32, u32) = (own.integer("tasks_per_step")?, own.integer("mini_batches")?);
        // Every task is played, and every turn of it brings one completion a sample: so many there are at least.
        let least = u64::from(tasks) * u64::from(samples);
        if u64::from(parts) > least {
            let place = own.place("mini_batches").unwrap_or(block.place());
            let message =
                format!("`mini_batches` is {parts}, and a step may bring no more than {least} completions");
            self.reports
                .error(Code::Uneven, place, message, format!("can't be divided into {parts}"))
                .help("make it smaller, or play more tasks or samples in a step");
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
        agents: &[Written],
        policies: &[Option<Policy>],
        train: Option<&Block>,
    ) {
        let policy = |agent: &Agent| policies.get(agent.policy).and_then(Option::as_ref);
        let own: Vec<Option<&Policy>> =
            agents.iter().map(|one| one.agent.as_ref().and_then(policy)).collect();
        let fixed = |policy: &Option<&Policy>| policy.is_some_and(|policy| !policy.train);
        if let (false, true, Some(train)) = (own.is_empty(), own.iter().all(fixed), train) {
            self.reports
                .error(
                    Code::NothingToTrain,
                    train.keyword,
                    "no agent's policy is trained",
                    "nothing to train",
                )
                .help("remove `train = false` from a policy, or the `train` block");
        }
        for (at, (written, policy)) in agents.iter().zip(own).enumerate() {
            let Some(policy) = policy.filter(|policy| policy.train) else { continue };
            let greedy = written.agent.as_ref().is_some_and(|agent| agent.sampling.temperature == 0.0);
            if let (true, Some(place)) = (greedy, written.temperature) {
                let message = format!(
                    "agent `{}` always takes the likeliest token: its groups teach nothing",
                    names.name(at)
                );
                self.reports
                    .warning(Code::GreedyTraining, place, message, "")
                    .help("train with a temperature above 0");
            }
            for (key, place) in &written.penalties {
                let message = format!(
                    "agent `{}` samples with `{key}`, and its policy `{}` is trained: training would work with \
                     other probabilities than those that its tokens were drawn by",
                    names.name(at),
                    policy.name
                );
                self.reports.error(Code::UntrainableSampling, *place, message, "").help(format!(
                    "leave it out (`top_k`, `top_p` and `min_p` are trained on as they are), give `{key}` to \
                     `evaluate` blocks alone, or say `train = false` in policy `{}`",
                    policy.name
                ));
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
                sampling: Resampling {
                    temperature: own.number("temperature"),
                    top_k: own.integer("top_k"),
                    top_p: own.number("top_p"),
                    min_p: own.number("min_p"),
                    repetition_penalty: own.number("repetition_penalty"),
                    presence_penalty: own.number("presence_penalty"),
                    frequency_penalty: own.number("frequency_penalty"),
                },
            })
        })
        .collect()
    }
}
