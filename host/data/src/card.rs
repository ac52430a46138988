//! Data cards: the front matter of a data set's `README.md`, which says what configurations and splits its files are.

use std::io::Read;

use pl_types::SourcePath;
use serde::Deserialize;

use crate::error::Error;

/// Largest part of a card that is read, in bytes. The front matter of the largest sets takes a few megabytes.
const LARGEST_CARD: u64 = 16 << 20;

/// Configuration of a card.
#[derive(Debug)]
pub(crate) struct CardConfig {
    pub name: String,
    pub is_default: bool,
    /// Folder that its paths are relative to, with a slash at its end. Empty for the folder of the card.
    pub prefix: String,
    /// Splits with the patterns of their files. `None` if the names of files say them.
    pub splits: Option<Vec<(String, Vec<String>)>>,
}

#[derive(Deserialize)]
struct FrontMatter {
    #[serde(default)]
    configs: Vec<WrittenConfig>,
}

#[derive(Deserialize)]
struct WrittenConfig {
    config_name: Option<String>,
    data_files: Option<DataFiles>,
    data_dir: Option<String>,
    #[serde(default)]
    default: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum DataFiles {
    Paths(OneOrMany),
    Splits(Vec<SplitFiles>),
}

#[derive(Deserialize)]
struct SplitFiles {
    split: String,
    path: OneOrMany,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Reads the configurations of a card. Empty if it has none.
///
/// # Errors
/// If the card can't be read, its front matter has another form, or a path in it leads out of the folder.
pub(crate) fn read_configs(card: &SourcePath) -> Result<Vec<CardConfig>, Error> {
    let path = || card.path().to_path_buf();
    let mut bytes = Vec::new();
    card.open()
        .and_then(|file| file.take(LARGEST_CARD).read_to_end(&mut bytes))
        .map_err(|source| Error::Read { path: path(), source })?;
    let text = String::from_utf8_lossy(&bytes);
    let Some(yaml) = front_matter(&text).filter(|yaml| !yaml.trim().is_empty()) else {
        return Ok(Vec::new());
    };
    let options = serde_saphyr::options! { with_snippet: false };
    let card: FrontMatter = serde_saphyr::from_str_with_options(yaml, options)
        .map_err(|error| Error::Card { path: path(), reason: error.to_string() })?;
    let configs = card.configs.into_iter().map(WrittenConfig::normalized);
    configs.map(|config| config.map_err(|Outside(named)| Error::CardPath { path: path(), named })).collect()
}

/// Returns the text between the two lines of dashes that a card begins with.
fn front_matter(text: &str) -> Option<&str> {
    let text = text.trim_start_matches('\u{feff}');
    let inside = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n"))?;
    inside.find("\n---").and_then(|end| inside.get(..=end))
}

/// Path of a card that leads out of its folder.
struct Outside(String);

impl WrittenConfig {
    /// Returns the configuration with paths relative to the card's folder.
    fn normalized(self) -> Result<CardConfig, Outside> {
        let prefix = match self.data_dir {
            Some(folder) => format!("{}/", inside(folder)?.trim_end_matches('/')),
            None => String::new(),
        };
        let prefix = if prefix == "/" || prefix == "./" { String::new() } else { prefix };
        let patterns = |paths: OneOrMany| -> Result<Vec<String>, Outside> {
            let paths = match paths {
                OneOrMany::One(path) => vec![path],
                OneOrMany::Many(paths) => paths,
            };
            paths.into_iter().map(|path| inside(path).map(|path| format!("{prefix}{path}"))).collect()
        };
        let splits = match self.data_files {
            Some(DataFiles::Paths(paths)) => Some(vec![("train".to_owned(), patterns(paths)?)]),
            Some(DataFiles::Splits(splits)) => {
                let splits = splits.into_iter();
                let splits = splits.map(|own| patterns(own.path).map(|paths| (own.split, paths)));
                Some(splits.collect::<Result<_, _>>()?)
            }
            None => None,
        };
        let name = self.config_name.unwrap_or_else(|| "default".to_owned());
        Ok(CardConfig { name, is_default: self.default, prefix, splits })
    }
}

/// Returns a path of the card's folder without `./` at its beginning.
fn inside(path: String) -> Result<String, Outside> {
    let is_outside =
        path.starts_with('/') || path.contains("://") || path.split('/').any(|name| name == "..");
    if is_outside { Err(Outside(path)) } else { Ok(path.trim_start_matches("./").to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<CardConfig>, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("README.md");
        std::fs::write(&path, text).unwrap();
        read_configs(&SourcePath::from(&path))
    }

    #[test]
    fn files_are_lists_or_texts_with_or_without_splits() {
        let configs = read(
            "---\nlicense: mit\nsize_categories:\n- n<1K\nconfigs:\n- config_name: main\n  default: true\n  data_files:\n\
             \x20 - split: train\n    path: main/train-*\n  - split: test\n    path:\n    - ./a.jsonl\n    - b.jsonl\n\
             - config_name: one\n  data_files: all.jsonl\n- config_name: two\n  data_dir: ./more/\n  data_files:\n\
             \x20 - x.json\n- config_name: three\n  data_dir: years\n---\n# Title\n",
        )
        .unwrap();
        let shown: Vec<_> = configs
            .iter()
            .map(|config| (config.name.as_str(), config.is_default, config.prefix.as_str(), &config.splits))
            .collect();
        let split = |name: &str, patterns: &[&str]| {
            (name.to_owned(), patterns.iter().map(|one| (*one).to_owned()).collect::<Vec<String>>())
        };
        let main = Some(vec![split("train", &["main/train-*"]), split("test", &["a.jsonl", "b.jsonl"])]);
        let one = Some(vec![split("train", &["all.jsonl"])]);
        let two = Some(vec![split("train", &["more/x.json"])]);
        let expected = [
            ("main", true, "", &main),
            ("one", false, "", &one),
            ("two", false, "more/", &two),
            ("three", false, "years/", &None),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn cards_without_front_matter_have_no_configurations() {
        for text in ["", "# Title\n", "---\nlicense: mit\n---\n", "---\nconfigs: [\n"] {
            assert!(read(text).unwrap().is_empty(), "{text}");
        }
    }

    #[test]
    fn another_form_and_paths_out_of_the_folder_are_errors() {
        let message = |text: &str| read(text).unwrap_err().to_string();
        let other = message("---\nconfigs:\n- data_files:\n  - split: train\n---\n");
        assert!(other.contains("README.md") && other.contains("front matter"), "{other}");
        for path in ["../x.jsonl", "/etc/x.jsonl", "https://example.org/x.jsonl", "a/../../x.jsonl"] {
            let message = message(&format!("---\nconfigs:\n- data_files: {path}\n---\n"));
            assert!(message.contains(path) && message.contains("out of the folder"), "{message}");
        }
    }
}
