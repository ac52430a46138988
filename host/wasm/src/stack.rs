//! Call stacks of guests that trapped: their own functions, with source lines if the component has debug information.
//!
//! Names come from the component's name section, files and lines from its DWARF sections; a stripped component shows
//! numbers. Frames of the language's runtime above the guest's own code (panic handling) are left out.

use std::fmt;

use wasmtime::{FrameInfo, WasmBacktrace};

/// Maximum number of frames: enough to show the origin of a recursion.
const MAX_FRAMES: usize = 24;

/// A guest's calls at the moment of a fault, innermost first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stack {
    /// Empty if nothing is known.
    pub frames: Vec<StackFrame>,
    /// Number of frames left out.
    pub left_out: usize,
}

/// One function of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackFrame {
    /// Demangled name, or `function 17` without one.
    pub function: String,
    /// File and line (1-based) from the debug information.
    pub location: Option<(String, u32)>,
}

impl Stack {
    pub(crate) fn from_error(error: &wasmtime::Error) -> Self {
        let Some(trace) = error.downcast_ref::<WasmBacktrace>() else { return Self::default() };
        let all: Vec<StackFrame> = trace.frames().iter().flat_map(frames).collect();
        let runtime = all.iter().take_while(|frame| frame.is_runtime()).count();
        // Runtime frames are better than none.
        let skipped = if runtime == all.len() { 0 } else { runtime };
        let left_out = (all.len() - skipped).saturating_sub(MAX_FRAMES);
        Self { frames: all.into_iter().skip(skipped).take(MAX_FRAMES).collect(), left_out }
    }
}

/// Returns the functions of one frame: several if calls were inlined.
fn frames(info: &FrameInfo) -> Vec<StackFrame> {
    let name =
        |mangled: Option<&str>| mangled.map_or_else(|| format!("function {}", info.func_index()), demangle);
    if info.symbols().is_empty() {
        return vec![StackFrame { function: name(info.func_name()), location: None }];
    }
    let symbol = |symbol: &wasmtime::FrameSymbol| StackFrame {
        function: name(symbol.name().or(info.func_name())),
        location: symbol.file().zip(symbol.line()).map(|(file, line)| (file.to_owned(), line)),
    };
    info.symbols().iter().map(symbol).collect()
}

/// Demangles names of Rust and C++.
fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let cpp = cpp_demangle::Symbol::new(name).ok().and_then(|symbol| symbol.demangle().ok());
    cpp.unwrap_or_else(|| name.to_owned())
}

impl StackFrame {
    /// Returns true for functions with which a language's runtime ends a program.
    fn is_runtime(&self) -> bool {
        const PREFIXES: [&str; 5] = ["core::", "std::", "alloc::", "__rust", "rust_"];
        const NAMES: [&str; 4] = ["abort", "__assert_fail", "panic_abort", "_Exit"];
        // Trait methods are written `<core::… as …>`.
        let name = self.function.trim_start_matches('<');
        PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
    }
}

impl fmt::Display for StackFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Some((file, line)) => write!(f, "{} ({file}:{line})", self.function),
            None => f.write_str(&self.function),
        }
    }
}

/// Writes one indented line per frame, with `at` in front.
impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for frame in &self.frames {
            write!(f, "\n  at {frame}")?;
        }
        if self.left_out > 0 {
            write!(f, "\n  and {} more", self.left_out)?;
        }
        Ok(())
    }
}
