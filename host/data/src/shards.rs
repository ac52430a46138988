//! Files of one split together: shards, and the forms that they are in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::error::Error;
use crate::form::form;

/// Largest number of missing shards that an error names.
const MOST_NAMED: usize = 3;

/// Name of a shard: `NAME-00000-of-00002.parquet`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shard<'n> {
    /// Text before the number, with its folders.
    pub name: &'n str,
    number: u32,
    total: u32,
    /// Text after the number of shards, with its dot.
    rest: &'n str,
}

impl<'n> Shard<'n> {
    /// Reads the name of a file. Returns `None` if it is not that of a shard.
    pub fn of(file: &'n str) -> Option<Shard<'n>> {
        let number = |text: &str| {
            let is_number = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse().ok())?
        };
        let start = file.rfind('/').map_or(0, |slash| slash + 1);
        let dot = start + file.get(start..)?.find('.')?;
        let (stem, rest) = file.split_at(dot);
        let (before, total) = stem.rsplit_once("-of-")?;
        let (name, own) = before.rsplit_once('-')?;
        Some(Shard { name, number: number(own)?, total: number(total)?, rest })
    }
}

/// Checks that the files of a split are of one form, and that no shard is missing. `names` are relative to `folder`.
///
/// # Errors
/// [`Error::SeveralForms`], [`Error::MissingShards`].
pub(crate) fn check<'n>(folder: &Path, names: impl Iterator<Item = &'n str> + Clone) -> Result<(), Error> {
    let mut forms: BTreeMap<Option<&str>, &str> = BTreeMap::new();
    for name in names.clone() {
        forms.entry(form(Path::new(name))).or_insert(name);
    }
    if forms.len() > 1 {
        let files = forms.into_values().map(str::to_owned).collect();
        return Err(Error::SeveralForms { path: folder.to_path_buf(), files });
    }
    let mut sets: BTreeMap<(&str, u32, &str), BTreeSet<u32>> = BTreeMap::new();
    for Shard { name, number, total, rest } in names.filter_map(Shard::of) {
        sets.entry((name, total, rest)).or_default().insert(number);
    }
    for ((name, total, rest), numbers) in sets {
        let mut missing = (0..total).filter(|number| !numbers.contains(number)).peekable();
        if missing.peek().is_some() {
            let shard = |number: u32| format!("{name}-{number:05}-of-{total:05}{rest}");
            let named = missing.by_ref().take(MOST_NAMED).map(shard).collect();
            return Err(Error::MissingShards {
                path: folder.to_path_buf(),
                missing: named,
                more: missing.count(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(names: &[&str]) -> Option<String> {
        check(Path::new("set"), names.iter().copied()).err().map(|error| error.to_string())
    }

    #[test]
    fn files_of_several_forms_are_named() {
        assert_eq!(message(&["train-0.jsonl", "train-1.jsonl"]), None);
        let error = message(&["train.json", "train.jsonl"]).unwrap();
        assert!(
            error.starts_with("set has files of one split in several forms: train.json, train.jsonl;"),
            "{error}"
        );
    }

    #[test]
    fn missing_shards_are_named() {
        let whole = ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"];
        assert_eq!(message(&whole), None);
        let error = message(&whole[..1]).unwrap();
        assert!(error.starts_with("set lacks data/train-00001-of-00002.parquet:"), "{error}");
        let error = message(&["x-00002-of-00007.jsonl.gz"]).unwrap();
        assert!(error.contains("x-00003-of-00007.jsonl.gz and 3 more:"), "{error}");
        // Numbers of another kind are no shards.
        assert_eq!(message(&["train-0-of-2.jsonl", "train-00000.jsonl", "state-of-art.jsonl"]), None);
    }
}
