use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

use parquet::data_type::Int64Type;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::json;

use super::*;
use crate::files::read_files;
use crate::fixtures::folder;

/// A file with a number per row.
fn parquet(numbers: &[i64]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type("message m { required int64 answer; }").unwrap());
    let mut out = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut out, schema, Arc::default()).unwrap();
    let mut rows = writer.next_row_group().unwrap();
    let mut column = rows.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(numbers, None, None).unwrap();
    column.close().unwrap();
    rows.close().unwrap();
    writer.close().unwrap();
    out
}

/// Returns the split that a text names after the path of a folder.
fn split(text: &str) -> FolderSplit {
    let readings = FolderSplit::readings(text);
    readings.into_iter().find(|(path, _)| *path == "f").map(|(_, split)| split).unwrap()
}

/// Returns the paths below the folder of the split's files.
fn files(folder: &Path, text: &str) -> Result<Vec<String>, Error> {
    let files = split(text).files(&SourcePath::from(folder))?;
    let below = |path: &Path| path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
    Ok(files.iter().map(|file| below(file.path())).collect())
}

#[test]
fn a_text_may_name_a_configuration_and_a_split_after_its_path() {
    let readings = |text: &str| -> Vec<(String, Option<String>, Option<String>)> {
        let readings = FolderSplit::readings(text).into_iter();
        readings.map(|(path, own)| (path.to_owned(), own.config, own.split)).collect()
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(readings("./a"), [("./a".to_owned(), None, None)]);
    assert_eq!(
        readings("./a:main:test"),
        [
            ("./a:main:test".to_owned(), None, None),
            ("./a:main".to_owned(), None, some("test")),
            ("./a".to_owned(), some("main"), some("test")),
        ]
    );
    // Neither a path below a folder nor a file's suffix is a split, and no split stands alone.
    for text in ["./a:b/c", "./a:b.jsonl", ":test"] {
        assert_eq!(readings(text), [(text.to_owned(), None, None)]);
    }
}

#[test]
fn the_card_says_configurations_splits_and_files() {
    let card = "---\nconfigs:\n- config_name: main\n  default: true\n  data_files:\n  - split: train\n    path: main/part-*\n\
                \x20 - split: held_out\n    path:\n    - main/b.jsonl\n    - main/a.jsonl\n\
                - config_name: other\n  data_dir: other\n- config_name: gone\n  data_files: gone/*.json\n---\n";
    let folder = folder(&[
        ("README.md", card.as_bytes()),
        ("main/part-1.jsonl", b"{\"n\": 2}\n"),
        ("main/part-0.jsonl", b"{\"n\": 1}\n"),
        ("main/part-0.md", b"a note"),
        ("main/a.jsonl", b"{}\n"),
        ("main/b.jsonl", b"{}\n"),
        ("other/dev.json", b"[]"),
    ]);
    let files = |text: &str| files(folder.path(), text);
    assert_eq!(files("f:train").unwrap(), ["main/part-0.jsonl", "main/part-1.jsonl"]);
    assert_eq!(files("f:main:held_out").unwrap(), ["main/a.jsonl", "main/b.jsonl"]);
    assert_eq!(files("f:other:validation").unwrap(), ["other/dev.json"]);
    let records = read_files(&split("f:train").files(&SourcePath::from(folder.path())).unwrap()).unwrap();
    assert_eq!(json!(records), json!([{ "n": 1 }, { "n": 2 }]));
    let message = |text: &str| files(text).unwrap_err().to_string();
    assert!(message("f").ends_with("it has train, held_out"), "{}", message("f"));
    let wrong = message("f:test");
    assert!(wrong.ends_with("has no split test; it has train, held_out"), "{wrong}");
    let none = message("f:more:test");
    assert!(none.ends_with("has no configuration more; it has main, other, gone"), "{none}");
    let gone = message("f:gone:train");
    assert!(gone.ends_with("lacks the files of the split train that its README.md names"), "{gone}");
}

#[test]
fn shards_are_found_by_their_names_and_read_in_order() {
    let folder = folder(&[
        ("README.md", b"# No front matter\n"),
        ("data/train-00001-of-00002.parquet", &parquet(&[3])),
        ("data/train-00000-of-00002.parquet", &parquet(&[1, 2])),
        ("data/test_hard-00000-of-00001.parquet", &parquet(&[4])),
        ("dataset_infos.json", b"{}"),
    ]);
    let source = SourcePath::from(folder.path());
    let read = |text: &str| read_files(&split(text).files(&source).unwrap()).unwrap();
    assert_eq!(json!(read("f:train")), json!([{ "answer": 1 }, { "answer": 2 }, { "answer": 3 }]));
    assert_eq!(json!(read("f:test_hard")), json!([{ "answer": 4 }]));
    let names = |wanted: &FolderSplit| -> Vec<(String, usize)> {
        let splits = wanted.splits(&source).unwrap();
        splits.into_iter().map(|(name, files)| (name, files.len())).collect()
    };
    assert_eq!(names(&FolderSplit::default()), [("test_hard".to_owned(), 1), ("train".to_owned(), 2)]);
    assert_eq!(names(&split("f:train")), [("train".to_owned(), 2)]);
}

/// Neither is told from the names of the files alone: the same records twice, and a part of the records.
#[test]
fn a_split_in_two_forms_or_without_all_shards_is_refused() {
    let folder = folder(&[
        ("train.jsonl", b"{}"),
        ("train.json", b"[]"),
        ("test.jsonl", b"{}"),
        ("test-notes.txt", b"a note"),
        ("data/dev-00000-of-00002.jsonl", b"{}"),
    ]);
    let files = |text: &str| files(folder.path(), text);
    assert_eq!(files("f:test").unwrap(), ["test.jsonl"]);
    let twice = files("f:train").unwrap_err().to_string();
    assert!(twice.contains("several forms: train.json, train.jsonl; keep"), "{twice}");
    let lacking = files("f:dev").unwrap_err().to_string();
    assert!(lacking.contains("lacks data/dev-00001-of-00002.jsonl: fetch"), "{lacking}");
}

#[test]
fn words_between_separators_are_splits() {
    for (path, expected) in [
        ("train.jsonl", Some("train")),
        ("my-test-file.json", Some("test")),
        ("dev_2.jsonl", Some("validation")),
        ("data/eval/0.jsonl", Some("test")),
        ("test/train.jsonl", Some("train")),
        ("gsm8k-train-00000-of-00001.parquet", Some("train")),
        ("contest.jsonl", None),
        ("retrained.jsonl", None),
        ("main/train.jsonl", None),
        ("problems.jsonl", None),
    ] {
        assert_eq!(split_of(path).as_deref(), expected, "{path}");
    }
}

#[test]
fn subfolders_are_configurations() {
    let folder = folder(&[
        ("main/train.jsonl", b"{}"),
        ("socratic/train.json", b"[]"),
        (".cache/train.jsonl", b"{}"),
        ("notes/readme.txt", b""),
    ]);
    assert_eq!(files(folder.path(), "f:main:train").unwrap(), ["main/train.jsonl"]);
    let several = files(folder.path(), "f:train").unwrap_err().to_string();
    assert!(several.ends_with("`./FOLDER:CONFIG:SPLIT`; it has main, socratic"), "{several}");
    // The folder of a configuration is one, too, and needs no split if it has one.
    assert_eq!(files(&folder.path().join("socratic"), "f").unwrap(), ["train.json"]);
    let none = files(&folder.path().join("notes"), "f").unwrap_err().to_string();
    assert!(none.contains("notes has no split: "), "{none}");
}

#[test]
fn links_out_of_the_folder_are_refused_and_those_inside_are_followed() {
    let folder = folder(&[("set/data/0.jsonl", b"{}"), ("secret.jsonl", b"{}")]);
    let set = folder.path().join("set");
    symlink("data/0.jsonl", set.join("train.jsonl")).unwrap();
    symlink("../secret.jsonl", set.join("test.jsonl")).unwrap();
    symlink("../secret.jsonl", set.join("notes.jsonl")).unwrap();
    assert_eq!(files(&set, "f:train").unwrap(), ["train.jsonl"]);
    let refused = files(&set, "f:test").unwrap_err();
    let expected: PathBuf = set.join("test.jsonl");
    assert!(matches!(&refused, Error::NotInside { path } if *path == expected), "{refused}");
    // A link in place of the card would say which files are read.
    symlink("../secret.jsonl", set.join("README.md")).unwrap();
    assert!(matches!(files(&set, "f:train"), Err(Error::NotInside { .. })));
}

#[test]
fn a_snapshot_in_the_cache_of_the_hub_has_links_to_blobs() {
    let folder = folder(&[
        ("datasets--a--b/blobs/01", b"{}"),
        ("datasets--a--b/snapshots/23/notes", b""),
        ("datasets--c--d/blobs/01", b"{}"),
    ]);
    let set = folder.path().join("datasets--a--b/snapshots/23");
    symlink("../../blobs/01", set.join("train.jsonl")).unwrap();
    symlink("../../../datasets--c--d/blobs/01", set.join("test.jsonl")).unwrap();
    assert_eq!(files(&set, "f:train").unwrap(), ["train.jsonl"]);
    assert!(matches!(files(&set, "f:test"), Err(Error::NotInside { .. })));
}

#[test]
fn files_of_other_forms_and_too_many_files_are_errors() {
    let card = b"---\nconfigs:\n- data_files: all.csv\n---\n";
    let folder = folder(&[("README.md", card), ("all.csv", b""), ("a/train.jsonl", b"")]);
    let refused = files(folder.path(), "f").unwrap_err().to_string();
    assert!(refused.contains("all.csv has none of the forms"), "{refused}");
    assert_eq!(list_files(folder.path(), 4).unwrap().len(), 3);
    let refused = list_files(folder.path(), 3).unwrap_err();
    assert!(matches!(refused, Error::TooManyFiles { most: 3, .. }), "{refused}");
}
