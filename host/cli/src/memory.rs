//! What a workflow will take in memory, said before anything is loaded.
//!
//! The sums are [`pl_trainer::memory`]'s; which weights exist how often follows from the policies as the trainer and
//! the engine deal them out.

use std::fmt;
use std::path::{Path, PathBuf};

use pl_dsl::workflow::{Policy, Workflow};
use pl_dsl::{Code, Diagnostic, Severity};
use pl_model::{Config, Dtype, Keep, Projection};
use pl_trainer::memory::{self as sums, Row};
use tch::Device;

use crate::machine::Memory;
use crate::{places, session};

/// The process apart from its models: libtorch's and the plugins' code, tokenizers, what generation computes in.
/// Measured: 230 MiB, and 330 MiB with the embedded Python at work. What sandboxed programs allocate comes on top.
const PROGRAM: u64 = 384 << 20;

/// What a workflow takes, in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    device: Device,
    parts: Vec<(&'static str, u64)>,
    /// What there is. None where it is not known.
    machine: Option<Memory>,
}

impl Estimate {
    /// Reads the measures of the workflow's models, each at its place in `models`.
    ///
    /// # Errors
    /// When a model's files are not what they should be.
    pub fn new(
        workflow: &Workflow,
        folder: &Path,
        models: &[PathBuf],
        device: Device,
    ) -> Result<Estimate, pl_model::Error> {
        let mut sum = Sum::default();
        for (index, (model, path)) in workflow.models.iter().zip(models).enumerate() {
            let base = Base { config: Config::read(path)?, dtype: session::dtype(model, device), device };
            let policies: Vec<&Policy> = workflow.policies.iter().filter(|p| p.model == index).collect();
            sum.base(workflow, folder, &base, &policies);
        }
        let parts = vec![
            ("weights, training", sum.training),
            ("weights, generation", sum.generation),
            ("adapters", sum.adapters),
            ("gradients and optimiser", sum.optimiser),
            ("keys and values", workflow.inference.kv_cache),
            ("activations", sum.activations),
            ("handing weights over", sum.handing_over),
        ];
        Ok(match device {
            Device::Cpu => {
                let parts = parts.into_iter().chain([("program and plugins", PROGRAM)]).collect();
                Estimate { device, parts, machine: Memory::here() }
            }
            // What the program itself takes is not on the device.
            _ => Estimate { device, parts, machine: None },
        })
    }

    /// What a checked workflow will take, as far as its models are here; nothing is fetched.
    ///
    /// # Errors
    /// Why it can't be known, in words that fit behind `unknown: `.
    pub fn here(workflow: &Workflow, folder: &Path, device: Device) -> Result<Estimate, String> {
        let paths = workflow
            .models
            .iter()
            .map(|model| {
                places::model_here(folder, &model.source)
                    .map_err(|why| format!("model {}: {why}", model.name))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Estimate::new(workflow, folder, &paths, device).map_err(|e| e.to_string())
    }

    /// What it is made of, in bytes.
    pub fn parts(&self) -> &[(&'static str, u64)] {
        &self.parts
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes).sum()
    }

    /// A warning where the machine is too small.
    pub fn doubts(&self) -> Vec<Diagnostic> {
        let Some(machine) = self.machine.filter(|machine| machine.total < self.total()) else {
            return Vec::new();
        };
        let (needs, has) = (Bytes(self.total()), Bytes(machine.total));
        let message = format!("the workflow will take about {needs} of memory, and the machine has {has}");
        let help = "fewer bytes go to `inference.kv_cache`, `train.token_budget`, `lora` instead of a whole model, \
                    `train.gradient_checkpointing`, or `dtype = f16` in `model`";
        let (code, severity) = (Code::Memory, Severity::Warning);
        vec![Diagnostic::about_file(code, severity, message, help)]
    }
}

impl fmt::Display for Estimate {
    /// A short table, a part to a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, bytes)) in self.parts.iter().filter(|(_, bytes)| *bytes > 0).enumerate() {
            let title = if index == 0 { "memory" } else { "" };
            writeln!(f, "  {title:<9} {name:<24} {:>9}", Bytes(*bytes).to_string())?;
        }
        write!(f, "  {:<9} {:<24} {:>9}", "", "in all, about", Bytes(self.total()).to_string())?;
        match self.machine {
            Some(Memory { free, .. }) => writeln!(f, " of {} free", Bytes(free)),
            None => writeln!(f, " on {:?}", self.device),
        }
    }
}

/// A size for people.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..0x4000_0000 => write!(f, "{} MiB", self.0.div_ceil(1 << 20)),
            more => write!(f, "{:.1} GiB", more as f64 / f64::from(1 << 30)),
        }
    }
}

/// A model that policies stand on.
struct Base {
    config: Config,
    dtype: Dtype,
    device: Device,
}

impl Base {
    /// The format that training computes in: a processor keeps rounded values as f32.
    fn computes(&self) -> Dtype {
        if self.device == Device::Cpu { Dtype::F32 } else { self.dtype }
    }
}

#[derive(Default)]
struct Sum {
    training: u64,
    generation: u64,
    adapters: u64,
    optimiser: u64,
    /// Of the largest pass of any learner: they take turns.
    activations: u64,
    /// New weights that generation packs beside the old ones.
    handing_over: u64,
}

impl Sum {
    /// Adds a model with the policies on it.
    fn base(&mut self, workflow: &Workflow, folder: &Path, base: &Base, policies: &[&Policy]) {
        let Base { config, dtype, .. } = base;
        let trains = |policy: &Policy| policy.train && workflow.train.is_some();
        let numbers = sums::weight_numbers(config);
        // Copies of the weights: one for each policy that changes its own or brings its own, one for all others.
        let (mut changed, mut brought, mut shared) = (0, 0, 0);
        let mut adapted = Vec::new();
        for policy in policies {
            let from = policy.from.as_ref().map(|from| folder.join(from));
            let is_adapter = |path: &PathBuf| path.join(pl_trainer::ADAPTER_CONFIG).is_file();
            match (from, &policy.lora) {
                (_, None) if trains(policy) => changed += 1,
                (Some(path), None) if !is_adapter(&path) => brought += 1,
                (Some(path), None) => {
                    shared = 1;
                    // Read into f32, whatever it is stored in.
                    let stored =
                        path.join("adapter_model.safetensors").metadata().map_or(0, |file| file.len());
                    self.adapters += 2 * 2 * stored;
                }
                (from, Some(lora)) if trains(policy) || from.is_some() => {
                    shared = 1;
                    let targets: Vec<Projection> =
                        lora.targets.iter().filter_map(|target| target.parse().ok()).collect();
                    let rank = lora.rank as usize;
                    // Once for training and once for generation.
                    self.adapters += 2 * sums::adapter_bytes(config, rank, &targets);
                    if trains(policy) {
                        let numbers = sums::adapter_numbers(config, rank, &targets);
                        self.optimiser += sums::optimizer_bytes(numbers, Dtype::F32);
                        adapted.push(rank * targets.len());
                    }
                }
                _ => shared = 1,
            }
        }
        let copies = changed + brought + shared;
        self.training += copies * sums::weights_bytes(config, base.computes());
        // Where generation runs on libtorch it shares weights until they change.
        let generating = if base.device == Device::Cpu { copies } else { changed };
        self.generation += generating * sums::weights_bytes(config, *dtype);
        self.optimiser += changed * sums::optimizer_bytes(numbers, *dtype);
        if let Some(ranks) = adapted.into_iter().max() {
            self.activations = self.activations.max(activations(workflow, base, ranks));
        }
        if changed > 0 {
            // Where masters are rounded, the new working weights are there beside the old ones, but no activations.
            let rounded = match dtype {
                Dtype::F32 => 0,
                Dtype::F16 | Dtype::Bf16 => sums::weights_bytes(config, base.computes()),
            };
            self.activations = self.activations.max(activations(workflow, base, 0)).max(rounded);
            // Memory that training has freed is not always there for generation's thread, so this comes on top.
            self.handing_over = self.handing_over.max(sums::weights_bytes(config, *dtype));
        }
    }
}

/// Activations of the largest packed batch. A single sequence that is longer than the budget is not foreseen.
fn activations(workflow: &Workflow, base: &Base, ranks: usize) -> u64 {
    let Some(train) = &workflow.train else { return 0 };
    let tokens = train.token_budget as usize;
    // At most, each sample of a group goes on from a beginning that fills the batch.
    let row = Row { tokens, targets: tokens, seen_again: tokens * train.samples as usize, ranks };
    let keep = if train.gradient_checkpointing { Keep::Inputs } else { Keep::Activations };
    sums::activation_bytes(&base.config, &row, keep, base.computes())
}
