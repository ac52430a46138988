//! Functions of the module.
//!
//! The host writes the argument to where `allocate` says, calls `parse` or `render`, and reads the result: the upper half of
//! what these return is its address, the lower half its length. The first byte of a result says what the rest is.

use std::cell::RefCell;

use crate::template::{Failure, Template};

/// First byte of a result.
#[repr(u8)]
enum ResultKind {
    /// The rest is the rendered text; of `parse`, it is empty.
    Text = 0,
    /// The rest is the reason for which the template refuses the conversation, or does not parse.
    Refused = 1,
    /// The rest is the limit that the template ran into.
    Limit = 2,
}

#[derive(Default)]
struct Module {
    template: Option<Template>,
    argument: Vec<u8>,
    result: Vec<u8>,
}

thread_local! {
    static MODULE: RefCell<Module> = RefCell::default();
}

/// Makes room for an argument and returns its address.
#[unsafe(no_mangle)]
extern "C" fn allocate(length: usize) -> *mut u8 {
    MODULE.with_borrow_mut(|module| {
        module.result = Vec::new();
        module.argument = vec![0; length];
        module.argument.as_mut_ptr()
    })
}

/// Parses the template of all renderings.
#[unsafe(no_mangle)]
extern "C" fn parse() -> u64 {
    answer(|module, source| {
        let source = String::from_utf8_lossy(&source).into_owned();
        module.template = Some(Template::parse(source).map_err(Failure::Refused)?);
        Ok(String::new())
    })
}

/// Renders a conversation.
#[unsafe(no_mangle)]
extern "C" fn render() -> u64 {
    answer(|module, context| match &module.template {
        Some(template) => template.render(&context),
        None => Err(Failure::Refused("no template was parsed".to_owned())),
    })
}

fn answer(work: impl FnOnce(&mut Module, Vec<u8>) -> Result<String, Failure>) -> u64 {
    MODULE.with_borrow_mut(|module| {
        let argument = std::mem::take(&mut module.argument);
        let (kind, text) = match work(module, argument) {
            Ok(text) => (ResultKind::Text, text),
            Err(Failure::Refused(reason)) => (ResultKind::Refused, reason),
            Err(Failure::Limit(limit)) => (ResultKind::Limit, limit),
        };
        module.result = Vec::with_capacity(text.len() + 1);
        module.result.push(kind as u8);
        module.result.extend_from_slice(text.as_bytes());
        (module.result.as_ptr() as u64) << 32 | module.result.len() as u64
    })
}
