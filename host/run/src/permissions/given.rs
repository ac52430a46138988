//! Paths, addresses and names that stand on the command line: the user has named them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pl_dsl::Override;

use super::access::Access;
use super::path::resolve;

/// Values from the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    texts: BTreeSet<String>,
    paths: BTreeSet<PathBuf>,
}

impl Given {
    /// Collects the values of overrides for a workflow in `folder`, which paths are relative to; or else they are to the
    /// working folder. A value may be a list.
    pub fn new<'a>(overrides: impl IntoIterator<Item = &'a Override>, folder: &Path) -> Given {
        let of_list = |value: &'a str| {
            value.split(['[', ']', ',']).map(|part| part.trim().trim_matches('"')).chain([value])
        };
        let texts: BTreeSet<String> = overrides
            .into_iter()
            .flat_map(|given| of_list(given.value.trim().trim_matches('"')))
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect();
        let paths = texts.iter().flat_map(|text| [resolve(&folder.join(text)), resolve(Path::new(text))]);
        Given { paths: paths.collect(), texts }
    }

    /// Adds files.
    pub fn with_files<'a>(mut self, files: impl IntoIterator<Item = &'a PathBuf>) -> Given {
        self.paths.extend(files.into_iter().map(|file| resolve(file)));
        self
    }

    /// Returns true if the command line has an access of a workflow in `root`, as it is written in the file or below a
    /// folder. The folders above the workflow's don't count: no value for one means all that is below.
    pub fn has(&self, access: &Access, written: &str, root: &Path) -> bool {
        if self.texts.contains(written) {
            return true;
        }
        match access {
            Access::Read(path) => self
                .paths
                .iter()
                .any(|given| path == given || (path.starts_with(given) && !root.starts_with(given))),
            Access::Net(text) | Access::Env(text) => self.texts.contains(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_overrides_are_the_users_own() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("project");
        std::fs::create_dir(&root).unwrap();
        let overrides: Vec<Override> = [
            "problems.tasks=/data/gsm8k.jsonl",
            "data=../sets",
            "server.fleet=[\"http://10.0.0.1:8000\", \"http://10.0.0.2:8000\"]",
            "samples=8",
            "where=..",
        ]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
        let given = Given::new(&overrides, &root);
        let reads = |path: &Path| given.has(&Access::read(path), "as in the file", &root);
        assert!(reads(Path::new("/data/gsm8k.jsonl")) && reads(&root.join("../sets/test.jsonl")));
        assert!(!reads(Path::new("/data/other.jsonl")) && !reads(&root.join("../other")));
        let sends = |address: &str| given.has(&Access::net(address), address, &root);
        assert!(sends("http://10.0.0.2:8000") && !sends("http://10.0.0.3:8000"));
    }
}
