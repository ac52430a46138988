//! Instances of the WebAssembly module that renders chat templates.
//!
//! A template may add texts to themselves, repeat them or nest lists in each other: its engine counts instructions, not what
//! one of them does. In an instance all of that stays within the limits, and ends in an error. Instances are created per
//! template, keep it parsed, and serve one rendering at a time.

use std::sync::OnceLock;
use std::thread::available_parallelism;

use parking_lot::Mutex;
use pl_toolchain::cache;
use pl_types::erased::Erased;
use pl_wasm::{FUEL_PER_SECOND, GuestFault, Limits, Module, ModuleInstance};

/// The module. Its source is the crate in `jinja`.
const MODULE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/jinja.wasm"));

/// Memory of one rendering, in bytes: several copies of the longest conversation, which has 16 MiB.
const MEMORY: u64 = 128 << 20;

/// Fuel of one rendering, about a second. The Jinja engine's own limit is about half a second.
const FUEL: u64 = FUEL_PER_SECOND;

/// Memory in bytes from which an instance is not kept: a conversation of a few hundred kilobytes stays below.
const MOST_KEPT: u64 = 8 << 20;

/// Answer of the module: the rendered text, or the reason why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Text(String),
    /// The template doesn't parse, or refuses the conversation.
    Refused(String),
    /// It exceeds a limit.
    Limit(String),
}

/// A template in instances of the module.
pub(crate) struct TemplateInstances {
    source: String,
    /// Instances that no rendering uses.
    idle: Erased<Mutex<Vec<ModuleInstance>>>,
}

impl TemplateInstances {
    /// Parses a template in a first instance.
    ///
    /// # Errors
    /// The reason why it doesn't parse.
    pub(crate) fn new(source: String) -> Result<Self, String> {
        let instance = start(&source)?;
        Ok(Self { source, idle: Erased::new(Mutex::new(vec![instance])) })
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation: the variables of the template, as JSON.
    ///
    /// # Errors
    /// The reason why the template can't be parsed again.
    pub(crate) fn render(&self, context: &[u8]) -> Result<Answer, String> {
        let idle = self.idle.lock().pop();
        let mut instance = idle.map_or_else(|| start(&self.source), Ok)?;
        let (answer, is_usable) = call(&mut instance, "render", context);
        // Memory doesn't shrink. An instance that has grown would begin its next rendering otherwise than a new one.
        if is_usable && instance.memory() <= MOST_KEPT {
            let mut idle = self.idle.lock();
            if idle.len() < available_parallelism().map_or(1, usize::from) {
                idle.push(instance);
            }
        }
        Ok(answer)
    }
}

/// Creates an instance with a parsed template.
fn start(source: &str) -> Result<ModuleInstance, String> {
    static COMPILED: OnceLock<Result<Module, String>> = OnceLock::new();
    let limits = Limits { memory: MEMORY, fuel: FUEL, returned: MEMORY, ..Limits::default() };
    let load = || {
        // Without a cache, each process compiles the module, in seconds.
        let cache = cache::private("compiled").ok();
        Module::load("the renderer of chat templates", MODULE, cache.as_deref(), limits)
    };
    let module = COMPILED.get_or_init(|| load().map_err(|error| error.to_string()));
    let module = module.as_ref().map_err(Clone::clone)?;
    let mut instance = module.instantiate().map_err(|fault| fault.to_string())?;
    match call(&mut instance, "parse", source.as_bytes()).0 {
        Answer::Text(_) => Ok(instance),
        Answer::Refused(reason) | Answer::Limit(reason) => Err(reason),
    }
}

/// Calls a function of the module. Returns its answer, and true if the instance can be used again.
fn call(instance: &mut ModuleInstance, function: &str, argument: &[u8]) -> (Answer, bool) {
    let result = match instance.call(function, argument) {
        Ok(result) => result,
        Err(fault) => return (Answer::Limit(describe(&fault)), false),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let answer = match result.split_first() {
        Some((0, rest)) => Answer::Text(text(rest)),
        Some((1, rest)) => Answer::Refused(text(rest)),
        Some((_, rest)) => Answer::Limit(text(rest)),
        None => Answer::Refused("the module gave no answer".to_owned()),
    };
    (answer, true)
}

fn describe(fault: &GuestFault) -> String {
    match fault {
        GuestFault::Memory { limit } => format!("it takes more than {} MiB of memory", limit >> 20),
        GuestFault::OutOfFuel { .. } => "it does not end".to_owned(),
        GuestFault::Stack => "its values or macros nest too deeply".to_owned(),
        other => format!("its rendering failed: {other}"),
    }
}
