//! Checks the blocks that configure a run: `sandbox`, `inference`, `train` and `evaluate`.

use pl_types::SamplingOverrides;

use super::block::{BlockSettings, ItemOfBlock, check_body, check_settings};
use super::resolver::{NamedBlocks, ResolvedAgent, Resolver};
use crate::diagnostic::DiagnosticCode;
use crate::settings as table;
use crate::source::Location;
use crate::source::Span;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{Block, Body, File};
use crate::workflow::{
    Agent, Algorithm, Docker, Environment, Evaluation, Inference, LrSchedule, Policy, Rollout, Sandbox,
    SandboxBackend, Schedule, Tasks, Train,
};

impl Resolver<'_, '_, '_> {
    /// Checks a block that has its defaults if it is not written.
    fn implied(&mut self, file: &File, kind: BlockKind) -> BlockSettings {
        if let Some(block) = self.single(file, kind, false) {
            return check_settings(block, &ItemOfBlock::None, &mut self.scope, self.reports);
        }
        let nothing = Body::empty();
        let (title, location) = (format!("`{}`", kind.keyword()), Location::Span(Span::new(0, 0)));
        check_body(kind, &title, location, &nothing, &ItemOfBlock::None, &mut self.scope, self.reports)
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
        let own = check_settings(block, &ItemOfBlock::None, &mut self.scope, self.reports);
        let algorithm = match own.text("algorithm")? {
            "at_grpo" => Algorithm::AtGrpo,
            _ => return None,
        };
        let samples: u32 = own.integer("samples")?;
        if samples < 2 {
            let location = own.location("samples").unwrap_or(block.location());
            let message = format!("at_grpo compares the completions of a group, but `samples` is {samples}");
            self.reports
                .error(DiagnosticCode::TooFewSamples, location, message, "must be at least 2")
                .help("start with 4");
        }
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

    /// Checks the agents and policies for training.
    pub(super) fn training(
        &mut self,
        names: &NamedBlocks,
        agents: &[ResolvedAgent],
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
                    DiagnosticCode::NothingToTrain,
                    train.keyword,
                    "no agent's policy is trained",
                    "nothing to train",
                )
                .help("remove `train = false` from a policy, or the `train` block");
        }
        for (at, (written, policy)) in agents.iter().zip(own).enumerate() {
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

    pub(super) fn evaluations(
        &mut self,
        file: &File,
        environment: Option<&Environment>,
    ) -> Vec<Option<Evaluation>> {
        let blocks = self.named(file, BlockKind::Evaluate);
        let all = blocks.blocks.iter().enumerate();
        all.map(|(at, block)| {
            let own = check_settings(block, &ItemOfBlock::None, &mut self.scope, self.reports);
            let inherited = match environment.map(|environment| &environment.tasks) {
                Some(Tasks::Generated { level, .. }) => Some(*level),
                _ => match table::find(BlockKind::Environment, "level").map(|own| own.default) {
                    Some(table::DefaultValue::Integer(level)) => u32::try_from(level).ok(),
                    _ => None,
                },
            };
            let level = if own.location("level").is_some() { own.integer("level") } else { inherited };
            let tasks = self.tasks(block, &own, "test", level);
            if let (Some(Environment { name, tasks: Tasks::File(path), .. }), Some(Tasks::Generated { .. })) =
                (environment, &tasks)
            {
                let message = format!("{} uses generated tasks, but `{name}` reads {path}", block.title());
                self.reports
                    .warning(DiagnosticCode::OtherTasks, block.location(), message, "")
                    .help(format!("set `tasks`, or use `--set {}.tasks=FILE`", blocks.name(at)));
            }
            Some(Evaluation {
                name: blocks.name(at).to_owned(),
                every: own.integer("every")?,
                tasks: tasks?,
                limit: own.integer("limit")?,
                samples: own.integer("samples")?,
                sampling: SamplingOverrides {
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
