//! Where a guest stood when it trapped: its own functions, with source lines where the component carries them.
//!
//! Names come from the component's name section, files and lines from its DWARF sections; one that was stripped
//! shows numbers. What the language's runtime puts on top of the guest's own code (a panic's machinery) is left out.

use std::fmt;

use wasmtime::{FrameInfo, WasmBacktrace};

/// Most frames that are kept: enough to see where a recursion came from.
const MOST: usize = 24;

/// A guest's calls at the moment of a fault, innermost first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stack {
    /// Empty where nothing is known.
    pub frames: Vec<Frame>,
    /// How many more there were.
    pub left_out: usize,
}

/// One function of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Demangled; `function 17` where it has no name.
    pub function: String,
    /// File and line (1-based) as the compiler wrote them.
    pub place: Option<(String, u32)>,
}

impl Stack {
    pub(crate) fn of(error: &wasmtime::Error) -> Self {
        let Some(trace) = error.downcast_ref::<WasmBacktrace>() else { return Self::default() };
        let all: Vec<Frame> = trace.frames().iter().flat_map(frames).collect();
        let machinery = all.iter().take_while(|frame| frame.is_machinery()).count();
        // Where nothing else is known, the machinery is better than nothing.
        let skipped = if machinery == all.len() { 0 } else { machinery };
        let left_out = (all.len() - skipped).saturating_sub(MOST);
        Self { frames: all.into_iter().skip(skipped).take(MOST).collect(), left_out }
    }
}

/// The functions of one frame: several where calls were inlined.
fn frames(info: &FrameInfo) -> Vec<Frame> {
    let name =
        |mangled: Option<&str>| mangled.map_or_else(|| format!("function {}", info.func_index()), demangled);
    if info.symbols().is_empty() {
        return vec![Frame { function: name(info.func_name()), place: None }];
    }
    let symbol = |symbol: &wasmtime::FrameSymbol| Frame {
        function: name(symbol.name().or(info.func_name())),
        place: symbol.file().zip(symbol.line()).map(|(file, line)| (file.to_owned(), line)),
    };
    info.symbols().iter().map(symbol).collect()
}

/// Rust's and C++'s names as their programmers know them.
fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let cpp = cpp_demangle::Symbol::new(name).ok().and_then(|symbol| symbol.demangle().ok());
    cpp.unwrap_or_else(|| name.to_owned())
}

impl Frame {
    /// Whether it belongs to how a language ends a program.
    fn is_machinery(&self) -> bool {
        const LEADS: [&str; 5] = ["core::", "std::", "alloc::", "__rust", "rust_"];
        const NAMES: [&str; 4] = ["abort", "__assert_fail", "panic_abort", "_Exit"];
        // A method of a trait reads `<core::… as …>`.
        let name = self.function.trim_start_matches('<');
        LEADS.iter().any(|lead| name.starts_with(lead)) || NAMES.contains(&name)
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some((file, line)) => write!(f, "{} ({file}:{line})", self.function),
            None => f.write_str(&self.function),
        }
    }
}

/// A line per frame, each set in and with `at` in front.
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
