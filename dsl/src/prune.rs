//! Of a used file, only what is used counts: the rest is neither checked nor loaded.

use std::collections::HashMap;

use crate::scope::Scope;
use crate::syntax::{Block, BlockKind, Body, Entry, File, SpaceId, Value};
use crate::values::Scalar;

/// Leaves out what other files declare and nothing here leads to.
pub(crate) fn prune(file: &mut File, scope: &mut Scope) {
    if !file.blocks.iter().any(|block| block.imported) {
        return;
    }
    let mut walk =
        Walk { by_name: HashMap::new(), wanted: vec![false; file.blocks.len()], waiting: Vec::new() };
    for (at, block) in file.blocks.iter().enumerate() {
        match (&block.name, block.imported) {
            (Some(name), true) => walk.by_name.entry(name.text.clone()).or_default().push(at),
            _ => walk.want(at),
        }
    }
    while let Some(at) = walk.waiting.pop() {
        if let Some(block) = file.blocks.get(at).filter(|block| block.kind != BlockKind::Template) {
            walk.block(block, scope);
        }
    }
    let mut wanted = walk.wanted.into_iter();
    file.blocks.retain(|block| {
        let wanted = wanted.next().unwrap_or(false);
        if let (true, true, Some(name)) = (wanted, block.imported, &block.name) {
            scope.imports_used.insert(name.text.clone());
        }
        wanted || block.kind == BlockKind::Param
    });
}

struct Walk {
    by_name: HashMap<String, Vec<usize>>,
    wanted: Vec<bool>,
    waiting: Vec<usize>,
}

impl Walk {
    fn want(&mut self, at: usize) {
        if let Some(wanted) = self.wanted.get_mut(at)
            && !std::mem::replace(wanted, true)
        {
            self.waiting.push(at);
        }
    }

    fn name(&mut self, name: &str) {
        for at in self.by_name.get(name).cloned().unwrap_or_default() {
            self.want(at);
        }
    }

    fn block(&mut self, block: &Block, scope: &Scope) {
        if let Some(value) = &block.value {
            self.value(value, block.space, scope);
        }
        self.body(&block.body, scope);
    }

    fn body(&mut self, body: &Body, scope: &Scope) {
        for entry in &body.entries {
            match entry {
                Entry::Setting(setting) => self.value(&setting.value, setting.space, scope),
                Entry::Nested { body, .. } => self.body(body, scope),
                Entry::Edge(line) => {
                    for name in line.stops.iter().flat_map(|stop| &stop.names) {
                        self.name(&name.text);
                    }
                }
            }
        }
    }

    fn value(&mut self, value: &Value, space: SpaceId, scope: &Scope) {
        let mut paths = Vec::new();
        value.paths(&mut |names, _| paths.push(names));
        for names in paths {
            // `team.maths.tool` is an item of the plugin `team.maths`.
            for length in 1..=names.len() {
                self.name(&scope.full_in(space, &names[..length]));
            }
            let local = match names {
                [name] => scope.spaces.get(space).and_then(|space| space.locals.get(name)),
                _ => None,
            };
            if let Some(Some(Scalar::Text(text))) = local {
                self.name(text);
            }
        }
        if let crate::syntax::ValueKind::Raw(raw) = &value.kind {
            self.name(raw);
        }
    }
}
