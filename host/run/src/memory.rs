//! Memory that a workflow will need, estimated before anything is loaded.
//!
//! [`pl_trainer::memory`] has the formulas. The number of copies of each set of weights follows from the
//! policies in the same way as the trainer and the engine create them.

mod machine;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use pl_dsl::workflow::objective::{Critic, CriticBase};
use pl_dsl::workflow::{Policy, Workflow};
use pl_dsl::{Diagnostic, DiagnosticCode, Severity};
use pl_kernels::cpu::GroupFormat;
use pl_kernels::cuda;
use pl_model::{Checkpointing, Config, Model, Projection, UNPACKED_BYTES};
use pl_trainer::memory::{self as formulas, PassShape};
use pl_trainer::plan::token_budget;
use pl_types::{Dtype, ModelDtype, SourcePath};
use tch::Device;

use crate::dtype::model_dtype;
use crate::error::Error;
use crate::kv_cache::kv_cache;
use crate::sandbox::most_memory;

pub use machine::MachineMemory;
pub(crate) use machine::ProcessMemory;

/// Bytes of the process without its models: the code of libtorch and of plugins, tokenizers, buffers of
/// generation. Measured: 230 MiB, and 330 MiB with the embedded Python at work. The memory of sandboxed
/// programs is counted apart.
const PROGRAM: u64 = 384 << 20;

/// Bytes that CUDA takes on a GPU before anything is computed: its context with the code of libtorch's kernels (512 MiB),
/// and the workspaces of cuBLAS, 32 MiB for each of the threads of generation and training, and 64 MiB of cuBLASLt. From
/// their documentation; not measured yet.
const CUDA: u64 = (512 + 2 * 32 + 64) << 20;

/// Share of the memory that comes and goes, as a divisor, that allocators keep in addition. Libtorch's on a GPU rounds sizes
/// up and keeps blocks of each size apart (not measured yet); glibc's keeps what threads have freed (measured: up to an
/// eighth of the whole process with all weights in training).
const ALLOCATOR_GPU: u64 = 8;
const ALLOCATOR_CPU: u64 = 4;

/// Estimate of the memory that a workflow needs, in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryEstimate {
    device: Device,
    parts: Vec<(&'static str, u64)>,
    /// Most memory of sandboxed programs, which few come close to. 0 on a GPU, where the parts are memory of the GPU.
    sandbox: u64,
    /// `None` on a GPU, and if the system does not report its memory.
    machine: Option<MachineMemory>,
    /// Memory of the GPU. `None` on a CPU, and if there is no such GPU.
    gpu: Option<u64>,
}

impl MemoryEstimate {
    /// Estimates from the configurations of the workflow's models, which are at `models`, in the workflow's
    /// order.
    ///
    /// # Errors
    /// [`Error::Model`] if a model's configuration can't be read.
    pub fn new(
        workflow: &Workflow,
        folder: &Path,
        models: &[SourcePath],
        device: Device,
    ) -> Result<MemoryEstimate, Error> {
        let mut sum = Sum::default();
        for (index, (model, source)) in workflow.models.iter().zip(models).enumerate() {
            let failed = Error::model(&model.name);
            let base =
                BaseModel::read(source, model_dtype(workflow, index, device), device).map_err(failed)?;
            let policies: Vec<&Policy> = workflow.policies.iter().filter(|p| p.model == index).collect();
            let (generation, graphs) = (sum.generation, sum.graphs);
            sum.add_base(workflow, folder, &base, &policies);
            if policies.iter().all(|policy| policy.server.is_some()) {
                // The embedded engine doesn't load it.
                (sum.generation, sum.graphs) = (generation, graphs);
            }
            sum.add_critics(workflow, index, &base);
        }
        let staleness = u64::from(workflow.largest_staleness());
        let embedded = workflow.policies.iter().any(|policy| policy.server.is_none());
        let mut parts = vec![
            ("weights, training", sum.training),
            ("weights, generation", sum.generation),
            ("adapters", sum.adapters),
            ("gradients and optimiser", sum.optimiser),
            ("KV cache", if embedded { kv_cache(workflow.inference.kv_cache, device) } else { 0 }),
            ("activations", sum.activations),
            ("weight transfer", sum.publishing),
            ("weights of stale rollouts", staleness * sum.versions),
        ];
        let (mut machine, mut gpu, mut sandbox) = (None, None, 0);
        match device {
            Device::Cuda(ordinal) => {
                parts.push(("CUDA and its workspaces", CUDA));
                let graphs = if workflow.inference.enforce_eager { 0 } else { sum.graphs };
                parts.push(("CUDA graphs", graphs));
                parts.push(("allocator's reserve", sum.transient() / ALLOCATOR_GPU));
                gpu = cuda::device_memory(ordinal);
            }
            _ => {
                // The memory of the program itself is not on a GPU.
                parts.push(("program and plugins", PROGRAM));
                parts.push(("allocator's reserve", sum.transient() / ALLOCATOR_CPU));
                machine = MachineMemory::read();
                sandbox = most_memory(&workflow.sandbox, folder);
            }
        }
        Ok(MemoryEstimate { device, parts, sandbox, machine, gpu })
    }

    /// Returns the parts of the estimate, in bytes.
    pub fn parts(&self) -> &[(&'static str, u64)] {
        &self.parts
    }

    /// Returns the sum of all parts, in bytes.
    pub fn total(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Returns the memory in bytes that sandboxed programs may take at most, besides the parts. It is 0 on a GPU, where
    /// the parts are memory of the GPU, and if they run on other machines.
    pub fn sandbox(&self) -> u64 {
        self.sandbox
    }

    /// Returns the memory of the machine. Returns `None` on a GPU, and if the system does not report its
    /// memory.
    pub fn machine(&self) -> Option<MachineMemory> {
        self.machine
    }

    /// Returns a warning if the machine has less memory than the workflow needs.
    pub fn warnings(&self) -> Vec<Diagnostic> {
        let (what, total) = match (self.machine, self.gpu) {
            (Some(machine), _) => ("machine", machine.total),
            (None, Some(total)) => ("GPU", total),
            (None, None) => return Vec::new(),
        };
        if total >= self.total() {
            return Vec::new();
        }
        let (needs, has) = (Bytes(self.total()), Bytes(total));
        let message = format!("the workflow will take about {needs} of memory, and the {what} has {has}");
        let help = "to save memory, lower `inference.kv_cache` or `train.token_budget`, train with `lora` instead of a \
                    whole model, set `train.gradient_checkpointing`, or set `dtype = q8` in `model`";
        let (code, severity) = (DiagnosticCode::Memory, Severity::Warning);
        vec![Diagnostic::about_file(code, severity, message, help)]
    }
}

impl fmt::Display for MemoryEstimate {
    /// Writes a short table with a line for each part.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, bytes)) in self.parts.iter().filter(|(_, bytes)| *bytes > 0).enumerate() {
            let title = if index == 0 { "memory" } else { "" };
            writeln!(f, "  {title:<9} {name:<24} {:>9}", Bytes(*bytes).to_string())?;
        }
        write!(f, "  {:<9} {:<24} {:>9}", "", "in all, about", Bytes(self.total()).to_string())?;
        match (self.machine, self.gpu) {
            (Some(MachineMemory { free, .. }), _) => writeln!(f, " of {} free", Bytes(free))?,
            (None, Some(total)) => writeln!(f, " of the {} of {:?}", Bytes(total), self.device)?,
            (None, None) => writeln!(f, " on {:?}", self.device)?,
        }
        if self.sandbox > 0 {
            let most = Bytes(self.sandbox).to_string();
            writeln!(f, "  {:<9} {:<24} {most:>9} more", "", "sandbox, at most")?;
        }
        Ok(())
    }
}

/// A size in bytes, shown in MiB or GiB.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..0x4000_0000 => write!(f, "{} MiB", self.0.div_ceil(1 << 20)),
            more => write!(f, "{:.1} GiB", more as f64 / f64::from(1 << 30)),
        }
    }
}

/// Model that policies are based on.
struct BaseModel {
    config: Config,
    /// Number format of matrices that are tensors.
    dtype: Dtype,
    /// Size in bytes of packed weights. `None` if the matrices are tensors.
    packed: Option<u64>,
    device: Device,
}

impl BaseModel {
    fn read(source: &SourcePath, dtype: ModelDtype, device: Device) -> Result<BaseModel, pl_model::Error> {
        let config = Config::read(source)?;
        let packed = match dtype {
            ModelDtype::File => Some(Model::packed_bytes(source)?),
            ModelDtype::Q8 => {
                let numbers = formulas::weight_numbers(&config) as usize;
                Some(GroupFormat::Q8.bytes(1, numbers) as u64)
            }
            ModelDtype::F32 | ModelDtype::F16 | ModelDtype::Bf16 => None,
        };
        Ok(BaseModel { config, dtype: dtype.tensors().unwrap_or_default(), packed, device })
    }

    /// Returns the number format that training computes in. The CPU stores rounded values as f32.
    fn training_dtype(&self) -> Dtype {
        if self.device == Device::Cpu { Dtype::F32 } else { self.dtype }
    }

    /// Returns the size in bytes of the weights that training computes with.
    fn training_bytes(&self) -> u64 {
        self.packed.unwrap_or_else(|| formulas::weights_bytes(&self.config, self.training_dtype()))
    }

    /// Returns the size in bytes of another copy of the weights for generation.
    fn generation_bytes(&self) -> u64 {
        // Packed weights are shared.
        if self.packed.is_some() { 0 } else { formulas::weights_bytes(&self.config, self.dtype) }
    }
}

/// Sums over all base models, in bytes.
#[derive(Default)]
struct Sum {
    training: u64,
    generation: u64,
    adapters: u64,
    optimiser: u64,
    /// Those of the largest pass of any learner, because learners take turns.
    activations: u64,
    /// New weights that generation packs while it still has the old ones.
    publishing: u64,
    /// Recorded steps of generation on a GPU, with copies of the adapters that they read.
    graphs: u64,
    /// One version of all trained weights, which waits for the rollouts that use it.
    versions: u64,
}

impl Sum {
    /// Adds a base model with its policies.
    fn add_base(&mut self, workflow: &Workflow, folder: &Path, base: &BaseModel, policies: &[&Policy]) {
        let BaseModel { config, dtype, .. } = base;
        let trains = |policy: &Policy| policy.train && workflow.train.is_some();
        let numbers = formulas::weight_numbers(config);
        // Copies of the weights: one for each policy that trains them or has its own, and one for all others.
        let (mut trained, mut loaded) = (0, 0);
        // Engines that have the copy for all others.
        let mut pools = BTreeSet::new();
        let mut adapted = Vec::new();
        // Of a policy that only servers run, the tokenizer is loaded alone.
        for policy in policies.iter().filter(|policy| policy.server.is_none() || trains(policy)) {
            let from = policy.from.as_ref().map(|from| folder.join(from));
            let is_adapter = |path: &PathBuf| path.join(pl_trainer::ADAPTER_CONFIG).is_file();
            match (from, &policy.lora) {
                (_, None) if trains(policy) => {
                    trained += 1;
                }
                (Some(path), None) if !is_adapter(&path) => loaded += 1,
                (Some(path), None) => {
                    pools.insert(&policy.devices.rollout);
                    // Converted to f32, whatever its stored format is.
                    let stored =
                        path.join("adapter_model.safetensors").metadata().map_or(0, |file| file.len());
                    self.adapters += 2 * 2 * stored;
                }
                (from, Some(lora)) if trains(policy) || from.is_some() => {
                    pools.insert(&policy.devices.rollout);
                    let targets: Vec<Projection> =
                        lora.targets.iter().filter_map(|target| target.parse().ok()).collect();
                    let rank = lora.rank as usize;
                    // Once for training and once for generation.
                    self.adapters += 2 * formulas::adapter_bytes(config, rank, &targets);
                    // Two versions, while completions finish with the earlier one.
                    let numbers = formulas::adapter_numbers(config, rank, &targets);
                    self.graphs += 2 * numbers * dtype.bytes() as u64;
                    if trains(policy) {
                        self.versions += formulas::adapter_bytes(config, rank, &targets);
                        if from.is_some() && has_reference(policy) {
                            self.adapters += formulas::adapter_bytes(config, rank, &targets);
                        }
                        self.optimiser += training_state(workflow, numbers, Dtype::F32);
                        adapted.push(rank * targets.len());
                    }
                }
                _ => {
                    pools.insert(&policy.devices.rollout);
                }
            }
        }
        let copies = trained + loaded + u64::from(!pools.is_empty());
        let is_copied = |policy: &&&Policy| trains(policy) && policy.lora.is_none() && has_reference(policy);
        let references = policies.iter().filter(is_copied).count() as u64;
        self.training += (copies + references) * base.training_bytes();
        // Generation on libtorch shares the weights until they change.
        let copies = trained + loaded + pools.len() as u64;
        let generating = if base.device == Device::Cpu { copies } else { trained };
        self.generation += generating * base.generation_bytes();
        self.graphs += copies * pl_inference::graph_bytes(config, workflow.inference.slots as usize);
        self.versions += trained * formulas::weights_bytes(config, base.training_dtype());
        self.optimiser += trained * training_state(workflow, numbers, *dtype);
        if let Some(ranks) = adapted.into_iter().max() {
            self.activations = self.activations.max(activations(workflow, base, ranks));
        }
        if trained > 0 {
            // While masters are rounded, the new working weights exist next to the old ones, but no
            // activations do.
            let rounded = match dtype {
                Dtype::F32 => 0,
                Dtype::F16 | Dtype::Bf16 => formulas::weights_bytes(config, base.training_dtype()),
            };
            self.activations = self.activations.max(activations(workflow, base, 0)).max(rounded);
            // The allocator may not return memory that training has freed to generation's thread, so this is
            // added.
            self.publishing = self.publishing.max(formulas::weights_bytes(config, *dtype));
        }
    }

    /// Adds the critics on a model: value heads, and adapters and whole models of their own.
    fn add_critics(&mut self, workflow: &Workflow, model: usize, base: &BaseModel) {
        let BaseModel { config, dtype, .. } = base;
        let mut frozen = false;
        for (policy, critic) in critics_on(workflow, model) {
            self.optimiser += formulas::value_head_bytes(config);
            if let Some(lora) = &critic.lora {
                let targets: Vec<Projection> =
                    lora.targets.iter().filter_map(|target| target.parse().ok()).collect();
                let rank = lora.rank as usize;
                self.adapters += formulas::adapter_bytes(config, rank, &targets);
                let numbers = formulas::adapter_numbers(config, rank, &targets);
                self.optimiser += training_state(workflow, numbers, Dtype::F32);
                self.activations = self.activations.max(activations(workflow, base, rank * targets.len()));
                frozen |= policy.model != model;
            }
            if critic.on == CriticBase::Model {
                let without_head = Config { tied: true, ..config.clone() };
                self.training += formulas::weights_bytes(&without_head, base.training_dtype());
                self.optimiser += training_state(workflow, formulas::critic_model_numbers(config), *dtype);
                self.activations = self.activations.max(activations(workflow, base, 0));
            }
        }
        // Adapters of critics share the weights with each other and with those of policies.
        if frozen && !workflow.policies.iter().any(|policy| policy.model == model && policy.lora.is_some()) {
            self.training += base.training_bytes();
        }
    }

    /// Returns the bytes of memory that comes and goes.
    fn transient(&self) -> u64 {
        self.activations + self.publishing
    }
}

/// Returns the critics whose hidden states are those of a model, with their policies.
fn critics_on(workflow: &Workflow, model: usize) -> impl Iterator<Item = (&Policy, &Critic)> {
    let trained = workflow.policies.iter().filter(|policy| policy.train && workflow.train.is_some());
    let critics = trained
        .filter_map(|policy| Some((policy, policy.training.as_ref().and_then(|own| own.critic.as_ref())?)));
    critics.filter(move |(policy, critic)| critic.model.unwrap_or(policy.model) == model)
}

/// Returns true if training keeps the weights that the policy starts with, to measure a divergence from them.
fn has_reference(policy: &Policy) -> bool {
    policy.training.as_ref().is_some_and(|training| training.objective.kl != 0.0)
}

/// Returns the bytes of the training state of some weights. Where this process does the shares of several ranks, it keeps their
/// sums beside the gradients.
fn training_state(workflow: &Workflow, numbers: u64, dtype: Dtype) -> u64 {
    let has_sums = workflow.train.as_ref().is_some_and(|train| train.data_parallel > 1);
    formulas::optimizer_bytes(numbers, dtype) + if has_sums { numbers * 4 } else { 0 }
}

/// Returns the activations of the largest packed batch, in bytes. A sequence longer than the budget is not
/// included.
fn activations(workflow: &Workflow, base: &BaseModel, ranks: usize) -> u64 {
    let Some(train) = &workflow.train else { return 0 };
    let tokens = token_budget(train, &base.config, base.device);
    let row = PassShape { tokens, targets: tokens, ranks };
    let checkpointing = if train.gradient_checkpointing { Checkpointing::On } else { Checkpointing::Off };
    // A part of a packed matrix at a time.
    let unpacked = if base.packed.is_some() { UNPACKED_BYTES as u64 } else { 0 };
    formulas::activation_bytes(&base.config, &row, checkpointing, base.training_dtype()) + unpacked
}
