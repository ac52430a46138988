//! The best designs as whole workflow files.

use std::path::{Component, Path, PathBuf};

use pl_dsl::{DiagnosticCode, Frame, Source, Span, with_paths};

use super::record::{Archive, DesignRecord, Outcome};
use crate::error::Error;
use crate::session::absolute;
use crate::workflow::CheckedWorkflow;

/// Number of the best designs that are written as files.
const KEPT: usize = 3;

/// Folder of the files, within that of the search.
const FOLDER: &str = "best";

pub(super) struct DesignFiles<'s> {
    pub checked: &'s CheckedWorkflow,
    pub frame: &'s Frame,
    /// Folder of the search.
    pub folder: &'s Path,
}

impl DesignFiles<'_> {
    /// Writes the best designs that solved a task or were at least played, by their hashes, and the best one as `best.mas`
    /// too. Files of designs that are no longer among them stay.
    pub fn write_best(&self, archive: &Archive) -> Result<(), Error> {
        let played = |one: &&DesignRecord| matches!(one.outcome, Outcome::Played { .. });
        let best: Vec<&DesignRecord> =
            archive.before(u32::MAX).into_iter().filter(played).take(KEPT).collect();
        for record in &best {
            let path = self.folder.join(FOLDER).join(format!("{}.mas", record.hash));
            if !path.exists() {
                self.write(record, &path)?;
            }
        }
        match best.first() {
            Some(record) => self.write(record, &self.folder.join("best.mas")),
            None => Ok(()),
        }
    }

    fn write(&self, record: &DesignRecord, path: &Path) -> Result<(), Error> {
        let failed = |source| Error::Designs { path: path.to_path_buf(), source };
        let folder = path.parent().unwrap_or(self.folder);
        std::fs::create_dir_all(folder).map_err(failed)?;
        let text = self.frame.file(&record.design, &|text| self.unused(text));
        let (from, base) = (absolute(folder), absolute(&self.checked.folder));
        let text = with_paths(&text, &|path| {
            let is_own = Path::new(path).is_relative() && base.join(path).exists();
            is_own.then(|| relative(&from, &base.join(path)).display().to_string())
        });
        let text = format!("{}{text}", self.header(record));
        let beside = path.with_extension("mas.new");
        std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path)).map_err(failed)
    }

    /// Comment at the beginning of a file.
    fn header(&self, record: &DesignRecord) -> String {
        let mut out = format!("# Design {} ({}, round {})", record.hash, record.origin, record.round);
        if let Outcome::Played { success, tokens, episodes, .. } = &record.outcome {
            out.push_str(&format!(
                ": solved {:.1} % of {episodes} tasks with {tokens:.0} tokens each",
                100.0 * success
            ));
        }
        out.push_str(".\n");
        for one in self.frame.overrides() {
            out.push_str(&format!("# Found with {one}\n"));
        }
        out.push('\n');
        out
    }

    /// Spans of the blocks that a file doesn't use.
    fn unused(&self, text: &str) -> Vec<Span> {
        let source = Source { name: "design.mas".to_owned(), text: text.to_owned() };
        let checked = pl_dsl::check(&source, self.frame.overrides(), &self.checked.plugins);
        let unused = checked.diagnostics.iter().filter(|one| one.code == DiagnosticCode::Unused);
        unused.filter_map(|one| one.labels.first().map(|label| label.span)).collect()
    }
}

/// Returns the path that leads from a folder to a file, both absolute.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let (from, to) = (tidy(from), tidy(to));
    let shared = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    let down: Vec<Component> = to.components().skip(shared).collect();
    up.chain(down).collect()
}

/// Removes `.` and `..` of an absolute path.
fn tidy(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_from_the_folder_of_the_file() {
        for (from, to, path) in [
            ("/a/designs/x/best", "/a/./data/t.jsonl", "../../../data/t.jsonl"),
            ("/a", "/a/b/../t.jsonl", "t.jsonl"),
            ("/a/b", "/c/t", "../../c/t"),
        ] {
            assert_eq!(relative(Path::new(from), Path::new(to)), Path::new(path));
        }
    }
}
