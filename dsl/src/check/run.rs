//! Checks the blocks that configure a run: `sandbox`, `inference` and `evaluate`.

use pl_types::SamplingOverrides;

use super::block::{BlockSettings, ItemOfBlock, check_settings};
use super::resolver::{NamedBlocks, Resolver};
use super::scenarios::ResolvedScenarios;
use crate::diagnostic::DiagnosticCode;
use crate::settings as table;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{Block, File};
use crate::workflow::{
    Docker, Environment, Evaluation, Inference, Sandbox, SandboxBackend, Tasks, WorkerProcesses,
};

impl Resolver<'_, '_, '_> {
    /// Checks a block that has its defaults if it is not written.
    pub(super) fn implied(&mut self, file: &File, kind: BlockKind) -> BlockSettings {
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
            kv_cache: own.bytes("kv_cache"),
            slots: own.integer("slots")?,
            threads: own.integer("threads"),
            enforce_eager: own.boolean("enforce_eager")?,
        })
    }

    /// Checks `evaluate` blocks. A block without `scenario` in a file of several becomes one evaluation of each.
    pub(super) fn evaluations(
        &mut self,
        file: &File,
        scenarios: &ResolvedScenarios,
        agents: &NamedBlocks,
        policies: &NamedBlocks,
    ) -> Vec<Option<Evaluation>> {
        let blocks = self.named(file, BlockKind::Evaluate);
        let all = blocks.blocks.iter().enumerate();
        all.flat_map(|(at, block)| self.evaluation(blocks.name(at), block, scenarios, agents, policies))
            .collect()
    }

    fn evaluation(
        &mut self,
        name: &str,
        block: &Block,
        scenarios: &ResolvedScenarios,
        agents: &NamedBlocks,
        policies: &NamedBlocks,
    ) -> Vec<Option<Evaluation>> {
        let own = check_settings(block, &ItemOfBlock::None, &mut self.scope, self.reports);
        self.low_temperature(&own);
        let played: Vec<usize> = match own.location("scenario") {
            Some(location) if scenarios.blocks.blocks.is_empty() => {
                let message = "the file has no scenarios";
                self.reports
                    .error(DiagnosticCode::ScenarioForm, location, message, "")
                    .help("remove `scenario`: there is one environment");
                return vec![None];
            }
            Some(_) => match self.reference(&own, "scenario", &scenarios.blocks, "scenario") {
                Some(scenario) => vec![scenario],
                None => return vec![None],
            },
            None => (0..scenarios.list.len()).collect(),
        };
        let several = played.len() > 1;
        if let (Some(location), true, false) = (own.location("tasks"), several, scenarios.share_environment())
        {
            let message =
                format!("the tasks of {} fit one environment, but it evaluates several", block.title());
            self.reports
                .error(DiagnosticCode::BadSetting, location, message, "")
                .help("add `scenario = NAME`");
            return vec![None];
        }
        let roles = self.roles(block, agents, policies);
        let mut evaluations = Vec::new();
        for scenario in played {
            let tasks = self.tasks_of_evaluation(name, block, &own, scenarios.environment(scenario));
            let suffix = scenarios.blocks.blocks.get(scenario).filter(|_| several);
            let name = match suffix.and_then(|block| block.name.as_ref()) {
                Some(scenario) => format!("{name}.{}", scenario.text),
                None => name.to_owned(),
            };
            let evaluation = || {
                Some(Evaluation {
                    name,
                    scenario,
                    roles: roles.clone()?,
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
            };
            evaluations.push(evaluation());
            if evaluations.last().is_some_and(Option::is_none) {
                // The same settings would be reported again.
                break;
            }
        }
        evaluations
    }

    /// Returns the tasks of an evaluation in an environment.
    fn tasks_of_evaluation(
        &mut self,
        name: &str,
        block: &Block,
        own: &BlockSettings,
        environment: Option<&Environment>,
    ) -> Option<Tasks> {
        let inherited =
            environment.and_then(Environment::level_of_evaluations).or_else(|| {
                match table::find(BlockKind::Environment, "level").map(|own| own.default) {
                    Some(table::DefaultValue::Integer(level)) => u32::try_from(level).ok(),
                    _ => None,
                }
            });
        let level = if own.location("level").is_some() { own.integer("level") } else { inherited };
        let tasks = self.tasks(block, own, "test", level);
        let given = environment.and_then(|environment| match &environment.tasks {
            Tasks::File(path) => Some((&environment.name, path.clone())),
            Tasks::Named(data) => Some((&environment.name, data.to_string())),
            Tasks::Generated { .. } => None,
        });
        if let (Some((environment, read)), Some(Tasks::Generated { .. })) = (given, &tasks) {
            let message = format!("{} uses generated tasks, but `{environment}` reads {read}", block.title());
            self.reports
                .warning(DiagnosticCode::OtherTasks, block.location(), message, "")
                .help(format!("set `tasks`, or use `--set {name}.tasks=FILE`"));
        }
        tasks
    }
}
