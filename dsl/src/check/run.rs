//! Checks the blocks that configure a run: `sandbox`, `inference` and `evaluate`.

use pl_types::SamplingOverrides;

use super::block::{BlockSettings, ItemOfBlock, check_settings};
use super::resolver::{NamedBlocks, Resolver};
use crate::diagnostic::DiagnosticCode;
use crate::settings as table;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::File;
use crate::workflow::{
    Docker, Environment, Evaluation, Inference, Sandbox, SandboxBackend, Tasks, WorkerProcesses,
};

impl Resolver<'_, '_, '_> {
    /// Checks a block that has its defaults if it is not written.
    fn implied(&mut self, file: &File, kind: BlockKind) -> BlockSettings {
        if let Some(block) = self.single(file, kind, false) {
            return check_settings(block, &ItemOfBlock::None, &mut self.scope, self.reports);
        }
        self.without_block(kind)
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
                runtime: own.text("runtime").map(str::to_owned),
                pids: own.integer("pids")?,
                cpus: own.number("cpus")?,
                endpoints: own.words("endpoints").unwrap_or_default(),
                certificates: own.text("certificates").map(str::to_owned),
                jobs_per_worker: own.integer("jobs_per_worker")?,
                run: own.words("run").unwrap_or_default(),
                fallback: own.text("fallback").is_some(),
            }),
        };
        let processes = match own.text("isolation")? {
            "process" => Some(WorkerProcesses { jobs_per_worker: own.integer("jobs_per_worker")? }),
            _ => None,
        };
        Some(Sandbox {
            backend,
            processes,
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

    pub(super) fn evaluations(
        &mut self,
        file: &File,
        environment: Option<&Environment>,
        agents: &NamedBlocks,
        policies: &NamedBlocks,
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
            let roles = self.roles(block, agents, policies);
            Some(Evaluation {
                name: blocks.name(at).to_owned(),
                roles: roles?,
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
