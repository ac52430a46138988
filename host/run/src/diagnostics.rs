//! Diagnostics of a workflow with the texts that they refer to.

use std::fmt;

use pl_dsl::{Diagnostic, Sources};

use crate::permissions::PermissionRequest;

/// Messages of a check with the texts that they refer to. [`pl_dsl::render`] renders them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diagnostics {
    /// Messages in order of position.
    pub list: Vec<Diagnostic>,
    /// The file and what it includes.
    pub sources: Sources,
    /// Files beyond its own folder that the workflow is written in or loads, and that were not read without permission.
    pub refused: Vec<PermissionRequest>,
}

impl Diagnostics {
    /// Returns messages about files that were read.
    pub fn new(list: Vec<Diagnostic>, sources: Sources) -> Diagnostics {
        Diagnostics { list, sources, refused: Vec::new() }
    }

    /// Adds messages at their positions.
    pub(crate) fn add(&mut self, more: Vec<Diagnostic>) {
        self.list.extend(more);
        self.list.sort_by_key(|one| one.labels.first().map(|label| label.span));
    }
}

impl fmt::Display for Diagnostics {
    /// Writes a line for each message, without its source text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(pl_dsl::render::short(&self.list, &self.sources).trim_end())
    }
}
