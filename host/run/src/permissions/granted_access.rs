//! Resources that a workflow may use without a question: its own folder, those on the command line, and those that the start
//! of its run was allowed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pl_data::FolderSplit;
use pl_dsl::Override;
use pl_dsl::settings::{self, SettingKind};

use super::Permissions;
use super::access::Access;
use super::path::{lexical, resolve};

/// Values from the command line and permissions of one workflow.
#[derive(Debug, Clone)]
pub(crate) struct GrantedAccess {
    /// The workflow's own folder, resolved.
    root: PathBuf,
    texts: BTreeSet<String>,
    paths: BTreeSet<PathBuf>,
    allowed: Permissions,
}

impl GrantedAccess {
    /// Collects the values of overrides for a workflow in `folder`. Paths resolve against `folder` or the working folder. A
    /// value may be a list.
    pub fn new<'a>(overrides: impl IntoIterator<Item = &'a Override>, folder: &Path) -> GrantedAccess {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let root = resolve(folder);
        let of_list = |value: &'a str| {
            value.split(['[', ']', ',']).map(|part| part.trim().trim_matches('"')).chain([value])
        };
        let texts: BTreeSet<String> = overrides
            .into_iter()
            .filter(|given| may_name_access(&given.path))
            .flat_map(|given| of_list(given.value.trim().trim_matches('"')))
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect();
        // The user has not chosen what a link in the workflow's folder leads to.
        let chosen = |path: PathBuf| {
            let (named, resolved) = (lexical(&path), resolve(&path));
            let is_inside = named.starts_with(lexical(folder)) || named.starts_with(&root);
            let is_chosen = resolve(&named) == resolved && (!is_inside || resolved.starts_with(&root));
            is_chosen.then_some(resolved)
        };
        // A folder of tasks may have a split after its path.
        let named = texts.iter().flat_map(|text| FolderSplit::readings(text)).map(|(path, _)| path);
        let paths = named.flat_map(|path| [folder.join(path), PathBuf::from(path)]);
        let paths = paths.filter_map(chosen).collect();
        GrantedAccess { root, texts, paths, allowed: Permissions::default() }
    }

    /// Adds files.
    pub fn with_files<'a>(mut self, files: impl IntoIterator<Item = &'a PathBuf>) -> GrantedAccess {
        self.paths.extend(files.into_iter().map(|file| resolve(file)));
        self
    }

    /// Makes `folder` the workflow's own instead of the one that its paths are relative to.
    pub fn in_folder(mut self, folder: &Path) -> GrantedAccess {
        self.root = resolve(folder);
        self
    }

    /// Allows access for this workflow alone.
    pub fn allow(&mut self, more: impl IntoIterator<Item = Access>) {
        more.into_iter().for_each(|access| self.allowed.allow(access));
    }

    /// Returns the workflow's own folder, resolved.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns true if an access was allowed for this workflow.
    pub fn allows(&self, access: &Access) -> bool {
        self.allowed.allows(access)
    }

    /// Returns true if the command line has an access, as it is written in the file or below a folder. The folders above
    /// the workflow's don't count: no value for one means all that is below.
    pub fn has(&self, access: &Access, written: &str) -> bool {
        match access {
            Access::Read(path) => self
                .paths
                .iter()
                .any(|given| path == given || (path.starts_with(given) && !self.root.starts_with(given))),
            Access::Net(text) | Access::Env(text) => {
                self.texts.contains(text) || self.texts.contains(written)
            }
        }
    }
}

/// Returns true if the setting of a `BLOCK.SETTING` may be a path, an address or a variable. A param may be used as any.
fn may_name_access(path: &str) -> bool {
    let Some((_, key)) = path.rsplit_once('.') else { return true };
    settings::all().filter(|setting| setting.key == key).any(|setting| {
        matches!(
            setting.kind,
            SettingKind::Text
                | SettingKind::Texts
                | SettingKind::Addresses
                | SettingKind::Corpus
                | SettingKind::Path
                | SettingKind::Tasks
                | SettingKind::Source
        )
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn overrides(texts: &[&str]) -> Vec<Override> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn values_of_overrides_are_the_users_own() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("project");
        std::fs::create_dir(&root).unwrap();
        let overrides = overrides(&[
            "problems.tasks=/data/gsm8k.jsonl",
            "data=../sets",
            "fleet.addresses=[\"http://10.0.0.1:8000\", \"http://10.0.0.2:8000\"]",
            "samples=8",
            "where=..",
            "held_out.tasks=/sets/math:main:test",
        ]);
        let given = GrantedAccess::new(&overrides, &root);
        let reads = |path: &Path| given.has(&Access::read(path), "as in the file");
        assert!(reads(Path::new("/data/gsm8k.jsonl")) && reads(&root.join("../sets/test.jsonl")));
        assert!(!reads(Path::new("/data/other.jsonl")) && !reads(&root.join("../other")));
        assert!(reads(Path::new("/sets/math/data/test.parquet")) && !reads(Path::new("/sets/other")));
        let sends = |address: &str| given.has(&Access::net(address), address);
        assert!(sends("http://10.0.0.2:8000") && !sends("http://10.0.0.3:8000"));
    }

    #[test]
    fn a_value_is_no_permission_for_what_a_link_of_the_workflow_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("project");
        std::fs::create_dir_all(root.join("a")).unwrap();
        for (link, target) in [("8", "/etc"), ("a/own", "../../outside"), ("cosine", "/etc")] {
            symlink(target, root.join(link)).unwrap();
        }
        let given = GrantedAccess::new(
            &overrides(&["samples=8", "base.source=a/own", "data=a/own/../x", "train.lr_schedule=cosine"]),
            &root,
        );
        for outside in ["/etc/passwd", "/etc"] {
            assert!(!given.has(&Access::read(Path::new(outside)), "8"), "{outside}");
        }
        for through in ["a/own/x", "a/own/../x"] {
            assert!(!given.has(&Access::read(&root.join(through)), through), "{through}");
        }
    }

    #[test]
    fn only_settings_of_paths_addresses_and_variables_name_access() {
        for named in ["samples", "base.source", "problems.tasks", "fleet.key_variable", "docs.source"] {
            assert!(may_name_access(named), "{named}");
        }
        for other in ["train.steps", "one.train.lr_schedule", "problems.anything", "train.seed"] {
            assert!(!may_name_access(other), "{other}");
        }
    }
}
