//! Removes the unused blocks of used files, which are neither checked nor loaded.

use std::collections::HashMap;

use crate::eval::scalar::Scalar;
use crate::eval::scope::Scope;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{Block, Body, Entry, File, NamespaceId, Value, ValueKind};

/// Removes the blocks of used files that nothing refers to.
pub(crate) fn prune(file: &mut File, scope: &mut Scope) {
    if !file.blocks.iter().any(|block| block.imported) {
        return;
    }
    let mut walk =
        Walk { by_name: HashMap::new(), needed: vec![false; file.blocks.len()], waiting: Vec::new() };
    for (at, block) in file.blocks.iter().enumerate() {
        match (&block.name, block.imported) {
            (Some(name), true) => walk.by_name.entry(name.text.clone()).or_default().push(at),
            _ => walk.mark(at),
        }
    }
    while let Some(at) = walk.waiting.pop() {
        if let Some(block) = file.blocks.get(at).filter(|block| block.kind != BlockKind::Template) {
            walk.block(block, scope);
        }
    }
    let mut needed = walk.needed.into_iter();
    file.blocks.retain(|block| {
        let needed = needed.next().unwrap_or(false);
        if let (true, true, Some(name)) = (needed, block.imported, &block.name) {
            scope.imports_used.insert(name.text.clone());
        }
        needed || block.kind == BlockKind::Param
    });
}

struct Walk {
    by_name: HashMap<String, Vec<usize>>,
    needed: Vec<bool>,
    waiting: Vec<usize>,
}

impl Walk {
    fn mark(&mut self, at: usize) {
        if let Some(needed) = self.needed.get_mut(at)
            && !std::mem::replace(needed, true)
        {
            self.waiting.push(at);
        }
    }

    fn name(&mut self, name: &str) {
        for at in self.by_name.get(name).cloned().unwrap_or_default() {
            self.mark(at);
        }
    }

    fn block(&mut self, block: &Block, scope: &Scope) {
        if let Some(value) = &block.value {
            self.value(value, block.namespace, scope);
        }
        self.body(&block.body, scope);
    }

    fn body(&mut self, body: &Body, scope: &Scope) {
        for entry in &body.entries {
            match entry {
                Entry::Setting(setting) => self.value(&setting.value, setting.namespace, scope),
                Entry::Nested { body, .. } => self.body(body, scope),
                Entry::Edge(line) => {
                    for name in line.nodes.iter().flat_map(|stop| &stop.names) {
                        self.name(&name.text);
                    }
                }
            }
        }
    }

    fn value(&mut self, value: &Value, namespace: NamespaceId, scope: &Scope) {
        let mut paths = Vec::new();
        value.paths(&mut |names, _| paths.push(names));
        for names in paths {
            // `team.maths.tool` is an item of the plugin `team.maths`.
            for length in 1..=names.len() {
                self.name(&scope.full_name_in(namespace, &names[..length]));
            }
            let local = match names {
                [name] => scope.namespaces.get(namespace).and_then(|namespace| namespace.locals.get(name)),
                _ => None,
            };
            if let Some(Some(Scalar::Text(text))) = local {
                self.name(text);
            }
        }
        if let ValueKind::Raw(raw) = &value.kind {
            self.name(raw);
        }
    }
}
