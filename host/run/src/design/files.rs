//! The best designs as whole workflow files.

use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use pl_dsl::workflow::Palette;
use pl_dsl::{Catalog, DiagnosticCode, Override, Source, Span, WorkflowSkeleton, check_design, with_paths};
use pl_record::write_atomically;

use super::record::{Archive, DesignRecord, Outcome};
use crate::error::Error;
use crate::host::Host;
use crate::permissions::{lexical, one_line};
use crate::progress::Notice;
use crate::session::absolute;

/// Number of the best designs that are written as files.
const KEPT: usize = 3;

/// Folder of the files, within that of the search.
const FOLDER: &str = "best";

pub(super) struct DesignFiles<'s> {
    pub skeleton: &'s WorkflowSkeleton,
    pub palette: &'s Palette,
    pub catalog: &'s dyn Catalog,
    /// Folder that paths in the workflow are relative to.
    pub workflow_folder: &'s Path,
    /// Folder of the search or the run.
    pub folder: &'s Path,
}

impl DesignFiles<'_> {
    /// Writes the best designs that were played, by their hashes, and the best one as `best.mas` too. Files of designs that
    /// are no longer among them stay, and so does a `best.mas` that a person has changed, which is then reported.
    pub fn write_best(&self, host: &Host, archive: &mut Archive) -> Result<(), Error> {
        let Some(record) = self.write_by_hash(&archive.before(u32::MAX))? else { return Ok(()) };
        let path = self.folder.join("best.mas");
        let text = self.text(&record, self.folder);
        match std::fs::read_to_string(&path) {
            Ok(found) if found == text => return Ok(()),
            Ok(found) if !archive.has_written(&found) => {
                let best = self.folder.join(FOLDER).join(format!("{}.mas", record.hash));
                host.notify(Notice::BestDesignChanged { path, best });
                return Ok(());
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(source) => return Err(Error::Designs { path, source }),
        }
        archive.will_write(&text)?;
        Ok(write_atomically(&path, text.as_bytes())?)
    }

    /// Writes the best of some designs that were played, by their hashes. `records` has the best first. Returns the best.
    pub fn write_by_hash(&self, records: &[&DesignRecord]) -> Result<Option<DesignRecord>, Error> {
        let played = |one: &&&DesignRecord| matches!(one.outcome, Outcome::Played { .. });
        // A record that somebody has changed may have any text.
        let is_design = |one: &&&DesignRecord| {
            check_design(self.skeleton, self.palette, &one.design, self.catalog).is_ok()
        };
        let best: Vec<&DesignRecord> =
            records.iter().filter(played).filter(is_design).take(KEPT).copied().collect();
        let folder = self.folder.join(FOLDER);
        std::fs::create_dir_all(&folder).map_err(|source| Error::Designs { path: folder.clone(), source })?;
        for record in &best {
            let path = folder.join(format!("{}.mas", record.hash));
            if !path.exists() {
                write_atomically(&path, self.text(record, &folder).as_bytes())?;
            }
        }
        Ok(best.first().map(|record| DesignRecord::clone(record)))
    }

    /// Returns the whole workflow of a design, for a file in `folder`.
    fn text(&self, record: &DesignRecord, folder: &Path) -> String {
        let text = self.skeleton.file(&record.design, &|text| self.unused(text));
        let (from, base) = (absolute(folder), absolute(self.workflow_folder));
        let text = with_paths(&text, &|path| {
            let is_own = Path::new(path).is_relative() && base.join(path).exists();
            is_own.then(|| relative(&from, &base.join(path)).display().to_string())
        });
        format!("{}{text}", header(record, self.skeleton.overrides()))
    }

    /// Spans of the blocks that a file doesn't use.
    fn unused(&self, text: &str) -> Vec<Span> {
        let source = Source { name: "design.mas".to_owned(), text: text.to_owned() };
        let checked = pl_dsl::check(&source, self.skeleton.overrides(), self.catalog);
        // The `train` block too, if no policy of the team is trained.
        let codes = [DiagnosticCode::Unused, DiagnosticCode::NothingToTrain];
        let unused = checked.diagnostics.iter().filter(|one| codes.contains(&one.code));
        unused.filter_map(|one| one.labels.first().map(|label| label.span)).collect()
    }
}

/// Returns the comment at the beginning of a file. A record that somebody has changed may have any text.
fn header(record: &DesignRecord, overrides: &[Override]) -> String {
    let origin = one_line(&record.origin);
    let mut out = format!("# Design {} ({origin}, round {})", record.hash, record.round);
    if let Outcome::Played { success, tokens, episodes, .. } = &record.outcome {
        out.push_str(&format!(
            ": solved {:.1} % of {episodes} tasks with {tokens:.0} tokens each",
            100.0 * success
        ));
    }
    out.push_str(".\n");
    for one in overrides {
        out.push_str(&format!("# Found with {}\n", one_line(&one.to_string())));
    }
    out.push('\n');
    out
}

/// Returns the path that leads from a folder to a file, both absolute.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let (from, to) = (lexical(from), lexical(to));
    let shared = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    let down: Vec<Component> = to.components().skip(shared).collect();
    up.chain(down).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_one_comment() {
        let record = DesignRecord {
            round: 2,
            index: 0,
            hash: "0123456789ab".to_owned(),
            origin: "own\nplugin x = \"y\"\r".to_owned(),
            parents: Vec::new(),
            outcome: Outcome::Costly { bound: 2, most: 1 },
            designer_tokens: 0,
            execution_tokens: 0,
            task: None,
            design: String::new(),
        };
        let shown = "--set a=b\nplugin z = \"y\"".to_owned();
        let given = Override { path: "a".to_owned(), value: "b".to_owned(), shown, optional: false };
        assert_eq!(
            header(&record, &[given]),
            "# Design 0123456789ab (own␊plugin x = \"y\"␍, round 2).\n\
             # Found with --set a=b␊plugin z = \"y\"\n\n"
        );
    }

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
