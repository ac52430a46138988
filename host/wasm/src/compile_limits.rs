//! Limits on what is compiled, checked before the compiler starts. A compilation can't be interrupted, and a component
//! of a few kilobytes can be one that takes minutes and gigabytes.
//!
//! The compiler's time and memory grow with the code, and with the values that a branch may pass on: all locals of its
//! function, and the parameters of its block. A function of D nested blocks and L locals is D + L instructions long and
//! makes the compiler keep D × L values. So those are counted, and not bytes alone. Components that instantiate
//! components multiply in the same way.
//!
//! The limits leave room for the largest guests known: CPython with its libraries has 13,400 functions with 6.6 MB of
//! code, the longest of them with 430 kB, and at most 0.2 million values in a function; the squares of all are 0.14 × 10¹². A
//! JavaScript engine has 0.5 million values in a function, and 0.8 × 10¹² in squares.

use wasmparser::{
    BlockType, ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentTypeRef,
    CompositeInnerType, FunctionBody, Operator, Parser, Payload, TypeRef,
};

use crate::Error;

/// Maximum number of functions in all modules.
const MAX_FUNCTIONS: u64 = 100_000;

/// Maximum size of the code of all functions, in bytes.
const MAX_CODE: u64 = 32 << 20;

/// Maximum size of the code of one function, in bytes: the compiler needs up to a kilobyte for each.
const MAX_FUNCTION_CODE: u64 = 1 << 20;

/// Maximum size of all sections without code, data and custom ones, in bytes. The compiler keeps some ten times as
/// much.
const MAX_DECLARATIONS: u64 = 16 << 20;

/// Maximum number of values that branches and calls of one function pass. The compiler needs up to a kilobyte for each, and works
/// on a function per core at the same time.
const MAX_FUNCTION_VALUES: u64 = 1 << 20;

/// Maximum sum of the squares of these numbers over all functions: at worst, the compiler's time grows with them, by 9 s of one core
/// for the 160,000² of one function (measured with Cranelift of wasmtime 48).
const MAX_SQUARES: u64 = 1 << 40;

/// Maximum number of instances and of functions between components, after all nested components are instantiated.
const MAX_PARTS: u64 = 10_000;

/// Maximum depth of components and modules within each other. Tools nest two or three.
const MAX_DEPTH: u64 = 16;

/// A component that is not compiled.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Damaged(#[from] wasmparser::Error),
    #[error("{what}: {found}, and at most {most} are compiled")]
    TooMuch { what: &'static str, found: u64, most: u64 },
    #[error("it passes components as arguments to components")]
    ComponentArgument,
}

/// Checks that compiling a component takes a bounded amount of memory and time.
///
/// # Errors
/// [`Error::TooMuchToCompile`]; [`Error::Damaged`] if it can't be read to its end.
pub(crate) fn check(name: &str, component: &[u8]) -> Result<(), Error> {
    Totals::default().add(component).map_err(|refusal| match refusal {
        Refusal::Damaged(error) => Error::Damaged { name: name.to_owned(), reason: error.to_string() },
        refusal => Error::TooMuchToCompile { name: name.to_owned(), reason: refusal.to_string() },
    })
}

/// Sums over the sections that were read of a component.
#[derive(Debug, Default)]
struct Totals {
    functions: u64,
    code: u64,
    declarations: u64,
    /// Sum of the squares of the numbers of values that the branches and calls of each function pass.
    squares: u64,
    /// Modules and components that are open, the outermost first.
    open: Vec<Open>,
    /// Parts of the largest component that is complete. Any later one may instantiate it.
    largest: u64,
}

/// A module or component whose end has not been read.
#[derive(Debug, Default)]
struct Open {
    /// Parts of a component.
    parts: u64,
    /// Parameters and results of each type of a module, in number.
    types: Vec<u64>,
    /// The same of each function, imported ones first.
    functions: Vec<u64>,
    /// Number of functions without a body so far: imported ones, and those whose body has been read.
    bodies: usize,
}

impl Totals {
    fn add(&mut self, component: &[u8]) -> Result<(), Refusal> {
        self.open.push(Open::default());
        for payload in Parser::new(0).parse_all(component) {
            let payload = payload?;
            self.declarations += declarations(&payload);
            at_most("bytes of types, imports, exports and tables", self.declarations, MAX_DECLARATIONS)?;
            match &payload {
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => {
                    self.open.push(Open::default());
                    at_most("components within each other", self.open.len() as u64, MAX_DEPTH)?;
                }
                Payload::End(_) => {
                    let parts = self.open.pop().map_or(0, |closed| closed.parts);
                    self.largest = self.largest.max(parts);
                }
                Payload::FunctionSection(section) => {
                    self.functions += u64::from(section.count());
                    at_most("functions", self.functions, MAX_FUNCTIONS)?;
                }
                Payload::CodeSectionEntry(body) => {
                    let length = body.as_bytes().len() as u64;
                    at_most("bytes of code in one function", length, MAX_FUNCTION_CODE)?;
                    self.code += length;
                    at_most("bytes of code", self.code, MAX_CODE)?;
                }
                _ => {}
            }
            let Some(open) = self.open.last_mut() else { return Ok(()) };
            let values = open.read(payload, self.largest)?;
            self.squares += values * values;
            at_most("squares of values that branches and calls pass", self.squares, MAX_SQUARES)?;
        }
        Ok(())
    }
}

/// Returns the size of a section that is kept as a whole, in bytes.
fn declarations(payload: &Payload<'_>) -> u64 {
    match payload {
        Payload::CustomSection(_)
        | Payload::DataSection(_)
        | Payload::CodeSectionStart { .. }
        | Payload::ModuleSection { .. }
        | Payload::ComponentSection { .. } => 0,
        section => section.as_section().map_or(0, |(_, range)| range.len() as u64),
    }
}

impl Open {
    /// Reads a section or a function, and returns the values that the function passes. `largest` is the number of parts
    /// of the largest component that may be instantiated.
    fn read(&mut self, payload: Payload<'_>, largest: u64) -> Result<u64, Refusal> {
        match payload {
            Payload::TypeSection(groups) => {
                for group in groups {
                    self.types.extend(group?.into_types().map(|ty| match ty.composite_type.inner {
                        CompositeInnerType::Func(ty) => (ty.params().len() + ty.results().len()) as u64,
                        _ => 0,
                    }));
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    if let TypeRef::Func(index) | TypeRef::FuncExact(index) = import?.ty {
                        self.functions.push(arity(&self.types, index));
                        self.bodies += 1;
                    }
                }
            }
            Payload::FunctionSection(functions) => {
                for index in functions {
                    self.functions.push(arity(&self.types, index?));
                }
            }
            Payload::CodeSectionEntry(body) => {
                let own = self.functions.get(self.bodies).copied().unwrap_or(0);
                self.bodies += 1;
                let values = self.values(&body, own)?;
                at_most("values that branches and calls of one function pass", values, MAX_FUNCTION_VALUES)?;
                return Ok(values);
            }
            Payload::InstanceSection(instances) => self.parts += u64::from(instances.count()),
            Payload::ComponentCanonicalSection(functions) => self.parts += u64::from(functions.count()),
            Payload::ComponentInstanceSection(instances) => {
                for instance in instances {
                    self.parts += match instance? {
                        ComponentInstance::Instantiate { .. } => 1 + largest,
                        ComponentInstance::FromExports(_) => 1,
                    };
                }
            }
            // A component could be defined after the one that instantiates it.
            Payload::ComponentImportSection(imports) => {
                for import in imports {
                    if matches!(import?.ty, ComponentTypeRef::Component(_)) {
                        return Err(Refusal::ComponentArgument);
                    }
                }
            }
            Payload::ComponentAliasSection(aliases) => {
                for alias in aliases {
                    if let ComponentAlias::InstanceExport { kind: ComponentExternalKind::Component, .. } =
                        alias?
                    {
                        return Err(Refusal::ComponentArgument);
                    }
                }
            }
            _ => {}
        }
        at_most("instances and functions between components", self.parts, MAX_PARTS)?;
        Ok(0)
    }

    /// Returns the number of values that the branches and calls of a function pass, of which `own` is the number of
    /// parameters and results.
    fn values(&self, body: &FunctionBody<'_>, own: u64) -> Result<u64, Refusal> {
        let mut locals = own;
        for group in body.get_locals_reader()? {
            locals = locals.saturating_add(group?.0.into());
        }
        let (mut branches, mut calls, mut widest) = (0_u64, 0, 0);
        for operator in body.get_operators_reader()? {
            match operator? {
                Operator::Block { blockty } | Operator::Loop { blockty } | Operator::If { blockty } => {
                    branches += 1;
                    widest = self.block(blockty).max(widest);
                }
                Operator::TryTable { try_table } => {
                    branches += 1 + try_table.catches.len() as u64;
                    widest = self.block(try_table.ty).max(widest);
                }
                Operator::BrTable { targets } => branches += 1 + u64::from(targets.len()),
                Operator::Else
                | Operator::Br { .. }
                | Operator::BrIf { .. }
                | Operator::BrOnNull { .. }
                | Operator::BrOnNonNull { .. }
                | Operator::Return => branches += 1,
                Operator::Call { function_index } | Operator::ReturnCall { function_index } => {
                    calls += arity(&self.functions, function_index);
                }
                Operator::CallIndirect { type_index, .. }
                | Operator::ReturnCallIndirect { type_index, .. }
                | Operator::CallRef { type_index }
                | Operator::ReturnCallRef { type_index } => calls += arity(&self.types, type_index),
                _ => {}
            }
        }
        Ok(branches.saturating_mul(locals.saturating_add(widest)).saturating_add(calls))
    }

    /// Returns the number of parameters and results of a block.
    fn block(&self, ty: BlockType) -> u64 {
        match ty {
            BlockType::Empty => 0,
            BlockType::Type(_) => 1,
            BlockType::FuncType(index) => arity(&self.types, index),
        }
    }
}

/// Returns the number of parameters and results at an index. Of one that does not exist, the compiler reports it.
fn arity(signatures: &[u64], index: u32) -> u64 {
    signatures.get(index as usize).copied().unwrap_or(0)
}

fn at_most(what: &'static str, found: u64, most: u64) -> Result<(), Refusal> {
    if found > most { Err(Refusal::TooMuch { what, found, most }) } else { Ok(()) }
}
