//! Readers: a file of records in one of several forms, and the files of a split in a folder.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use parquet::file::reader::{FileReader, SerializedFileReader};
use pl_parquet::{Limit, guarded};
use pl_types::SourcePath;
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::exact_json::exact_json;
use crate::form::{drop_notes, form, is_readable};
use crate::nanoseconds;
use crate::shards;
use crate::sudoku;

/// Largest text of a packed file, in bytes. A file of a few megabytes may unpack to terabytes.
const LARGEST_UNPACKED: u64 = 4 << 30;

/// Largest content of a Parquet file. Both are counted while it is read, too: a text that the file has once, in its dictionary,
/// may stand in every row.
const LARGEST_PARQUET: Limit = Limit { rows: 1 << 24, bytes: LARGEST_UNPACKED };

/// Returns the files of a folder whose paths begin with a prefix, all of one form, in order of their names. Empty if there is
/// none.
///
/// # Errors
/// If the folder can't be listed; those of [`shards::check`].
pub(crate) fn find_files(folder: &Path, prefix: &str) -> Result<Vec<PathBuf>, Error> {
    let (inside, beginning) = prefix.rsplit_once('/').unwrap_or(("", prefix));
    let folder = folder.join(inside);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |source| Error::Read { path: folder.clone(), source };
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let begins =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(beginning));
        if begins && path.is_file() && is_readable(&path) {
            files.push(path);
        }
    }
    drop_notes(&mut files, PathBuf::as_path);
    files.sort();
    shards::check(&folder, files.iter().filter_map(|path| path.file_name()?.to_str()))?;
    Ok(files)
}

/// Reads the records of a file.
///
/// # Errors
/// If the file can't be read, or is not of the form that its name says.
pub fn read_file(source: impl Into<SourcePath>) -> Result<Vec<Map<String, Value>>, Error> {
    let source = &source.into();
    let path = source.path();
    match form(path) {
        Some(".jsonl") => lines(path, &text(source)?),
        Some(".jsonl.gz") => {
            let unpack = |text: &mut dyn Read| {
                let mut bytes = Vec::new();
                text.read_to_end(&mut bytes).map(|_| bytes)
            };
            lines(path, &utf8(path, self::unpack(source, LARGEST_UNPACKED, unpack)?)?)
        }
        Some(".json") => list(path, &text(source)?),
        Some(".parquet") => guarded(|| rows(source, LARGEST_PARQUET)).map_err(|e| unreadable(path, e))?,
        Some(".txt") => plain_text(path, &text(source)?),
        _ => Err(Error::Form { path: path.to_path_buf() }),
    }
}

/// Reads the records of files, one after the other.
///
/// # Errors
/// Those of [`read_file`].
pub fn read_files(sources: &[SourcePath]) -> Result<Vec<Map<String, Value>>, Error> {
    let mut records = Vec::new();
    for source in sources {
        records.extend(read_file(source)?);
    }
    Ok(records)
}

/// A line of a JSONL file.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Number in the file, from 1 on.
    pub number: usize,
    pub text: String,
}

/// Reads the lines of a JSONL file that are not blank, with the same rules as [`read_file`].
///
/// # Errors
/// If the file can't be read, or a line is not an object of JSON.
pub fn read_lines(source: &SourcePath) -> Result<Vec<Line>, Error> {
    let path = source.path();
    let text = text(source)?;
    let line = |(number, text): (usize, &str)| {
        line_record(path, number, text)?;
        Ok(Line { number, text: text.to_owned() })
    };
    numbered_lines(&text).map(line).collect()
}

/// Counts the records of a task file. Lists of JSON and puzzles in plain text are read for it; of Parquet, the file's own count
/// is returned. Other files have a record on each line that is not blank.
///
/// # Errors
/// If the file can't be read, or is not of the form that its name says.
pub fn count_records(source: impl Into<SourcePath>) -> Result<u64, Error> {
    let source = &source.into();
    match form(source.path()) {
        Some(".jsonl.gz") => unpack(source, LARGEST_UNPACKED, |text| count_lines(text)),
        Some(".json" | ".txt") => Ok(read_file(source)?.len() as u64),
        Some(".parquet") => {
            let file = open_parquet(source, LARGEST_PARQUET)?;
            Ok(u64::try_from(file.metadata().file_metadata().num_rows()).unwrap_or(0))
        }
        Some(_) => source.open().and_then(count_lines).map_err(failed(source)),
        None => Err(Error::Form { path: source.path().to_path_buf() }),
    }
}

/// Counts the lines that are not blank.
fn count_lines(text: impl Read) -> io::Result<u64> {
    let mut text = BufReader::with_capacity(1 << 20, text);
    let (mut count, mut blank) = (0, true);
    loop {
        let bytes = text.fill_buf()?;
        if bytes.is_empty() {
            return Ok(count + u64::from(!blank));
        }
        for byte in bytes {
            match byte {
                b'\n' => {
                    count += u64::from(!blank);
                    blank = true;
                }
                byte => blank = blank && byte.is_ascii_whitespace(),
            }
        }
        let read = bytes.len();
        text.consume(read);
    }
}

fn failed(source: &SourcePath) -> impl Fn(io::Error) -> Error + Copy + '_ {
    |error| Error::Read { path: source.path().to_path_buf(), source: error }
}

fn text(source: &SourcePath) -> Result<String, Error> {
    utf8(source.path(), source.read().map_err(failed(source))?)
}

fn utf8(path: &Path, bytes: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|&&byte| byte == b'\n').count() + 1;
        Error::NotUtf8 { path: path.to_path_buf(), line }
    })
}

/// Reads the text of a packed file, which has at most `largest` bytes, with `read`: of all its members, as `cat` and `bgzip` make them.
fn unpack<T>(
    source: &SourcePath,
    largest: u64,
    read: impl FnOnce(&mut dyn Read) -> io::Result<T>,
) -> Result<T, Error> {
    let failed = failed(source);
    let mut text = MultiGzDecoder::new(source.open().map_err(failed)?).take(largest + 1);
    let read = read(&mut text);
    // Of a text that was cut, any error may have been reported.
    if text.limit() == 0 {
        return Err(Error::TooLarge { path: source.path().to_path_buf(), largest });
    }
    read.map_err(failed)
}

/// Reads one record per line. Blank lines are skipped.
fn lines(path: &Path, text: &str) -> Result<Vec<Map<String, Value>>, Error> {
    numbered_lines(text).map(|(number, line)| line_record(path, number, line)).collect()
}

/// Returns the lines of a text that are not blank, with their numbers from 1 on.
fn numbered_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = without_mark(text).lines().enumerate().map(|(index, line)| (index + 1, line));
    numbered.filter(|(_, line)| !line.trim().is_empty())
}

fn line_record(path: &Path, number: usize, line: &str) -> Result<Map<String, Value>, Error> {
    object(json(line, path, Some(number))?, path, number)
}

/// Reads a list of records, also as the only list of an object such as `{"data": […]}`.
fn list(path: &Path, text: &str) -> Result<Vec<Map<String, Value>>, Error> {
    let values = match json(without_mark(text), path, None)? {
        Value::Array(values) => values,
        Value::Object(fields) => only_list(fields, path)?,
        _ => return Err(Error::NoList { path: path.to_path_buf() }),
    };
    values.into_iter().enumerate().map(|(index, value)| object(value, path, index + 1)).collect()
}

/// Returns the only list of an object. An object without one is no file of records.
fn only_list(fields: Map<String, Value>, path: &Path) -> Result<Vec<Value>, Error> {
    let path = path.to_path_buf();
    let (mut names, mut found) = (Vec::new(), Vec::new());
    for (name, value) in fields {
        if let Value::Array(values) = value {
            names.push(name);
            found = values;
        }
    }
    match names.len() {
        0 => Err(Error::NoList { path }),
        1 => Ok(found),
        _ => Err(Error::SeveralLists { path, names }),
    }
}

/// Reads a value of JSON: that of a line of a file, or a whole file.
fn json(text: &str, path: &Path, line: Option<usize>) -> Result<Value, Error> {
    exact_json(text).map_err(|error| Error::json(path, line, &error))
}

/// Returns a text without the byte order mark that some programs write before UTF-8.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Opens a Parquet file whose content is within the limit as far as the file says.
fn open_parquet(source: &SourcePath, limit: Limit) -> Result<SerializedFileReader<File>, Error> {
    let file = source.open().map_err(failed(source))?;
    limit.open(file).map_err(|e| unreadable(source.path(), e))
}

fn rows(source: &SourcePath, limit: Limit) -> Result<Vec<Map<String, Value>>, Error> {
    let path = source.path();
    let reader = open_parquet(source, limit)?;
    let schema = reader.metadata().file_metadata().schema_descr();
    let has_nanoseconds = nanoseconds::are_in(schema);
    let (mut records, mut bytes) = (Vec::new(), 0);
    for (index, row) in reader.get_row_iter(None).map_err(|e| unreadable(path, e))?.enumerate() {
        let mut record = row.map_err(|e| unreadable(path, e))?.to_json_value();
        if has_nanoseconds {
            nanoseconds::to_texts(schema.root_schema(), &mut record);
        }
        bytes += size(&record);
        limit.check(index as u64 + 1, bytes).map_err(|e| unreadable(path, e))?;
        records.push(object(record, path, index + 1)?);
    }
    Ok(records)
}

/// Returns the error of a Parquet file.
fn unreadable(path: &Path, error: impl Into<pl_parquet::Error>) -> Error {
    let path = path.to_path_buf();
    match error.into() {
        pl_parquet::Error::TooManyRows(most) => Error::TooManyRecords { path, most },
        pl_parquet::Error::TooLarge(largest) => Error::TooLarge { path, largest },
        source => Error::Parquet { path, source },
    }
}

/// Returns the bytes of a value, without those of the containers around its parts.
fn size(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(values) => values.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() as u64 + size(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}

/// Reads a text file by what it begins with: `;` before levels of Sokoban in the form of Boxoban, `{` before records on lines,
/// anything else before Sudokus.
fn plain_text(path: &Path, text: &str) -> Result<Vec<Map<String, Value>>, Error> {
    let text = without_mark(text);
    match text.trim_start().chars().next() {
        Some(';') => Ok(rooms(text)),
        Some('{') => lines(path, text),
        _ => sudoku::records(path, text),
    }
}

/// Reads Boxoban's levels: `; NUMBER`, then the rows of a room.
fn rooms(text: &str) -> Vec<Map<String, Value>> {
    let room = |level: &str| {
        let (_, rows) = level.split_once('\n')?;
        let room = rows.trim_end();
        let Value::Object(record) = json!({ "room": room }) else { return None };
        (!room.is_empty()).then_some(record)
    };
    text.split(';').skip(1).filter_map(room).collect()
}

fn object(value: Value, path: &Path, record: usize) -> Result<Map<String, Value>, Error> {
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(Error::NotAnObject { path: path.to_path_buf(), record }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;
    use crate::fixtures::{folder, parquet};

    #[test]
    fn every_form_gives_the_same_records() {
        let packed = |text: &[u8]| {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(text).unwrap();
            packed.finish().unwrap()
        };
        let folder = folder(&[
            ("x.jsonl", b"{\"a\": 1}\n\n{\"a\": 2}\n"),
            ("mark.jsonl", b"\xef\xbb\xbf{\"a\": 1}\n{\"a\": 2}\n"),
            ("x.jsonl.gz", &packed(b"{\"a\": 1}\n\n{\"a\": 2}\n")),
            ("parts.jsonl.gz", &[packed(b"{\"a\": 1}\n"), packed(b"{\"a\": 2}\n")].concat()),
            ("x.json", b"[{\"a\": 1}, {\"a\": 2}]"),
            ("y.json", b"{\"version\": 1, \"data\": [{\"a\": 1}, {\"a\": 2}]}"),
        ]);
        for name in ["x.jsonl", "mark.jsonl", "x.jsonl.gz", "parts.jsonl.gz", "x.json", "y.json"] {
            let records = read_file(folder.path().join(name)).unwrap();
            assert_eq!(json!(records), json!([{ "a": 1 }, { "a": 2 }]), "{name}");
            assert_eq!(count_records(folder.path().join(name)).unwrap(), 2, "{name}");
        }
    }

    #[test]
    fn a_packed_file_is_not_unpacked_beyond_the_limit() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all("{}\n…".repeat(1 << 14).as_bytes()).unwrap();
        let folder = folder(&[("x.jsonl.gz", &packed.finish().unwrap())]);
        let source = SourcePath::from(&folder.path().join("x.jsonl.gz"));
        for largest in [1000, 1001, 1002, 6 * (1 << 14) - 1] {
            let text = unpack(&source, largest, |text| io::read_to_string(text));
            assert!(matches!(text, Err(Error::TooLarge { .. })), "{text:?}");
            let count = unpack(&source, largest, |text| count_lines(text));
            assert!(matches!(count, Err(Error::TooLarge { .. })), "{count:?}");
        }
        assert_eq!(unpack(&source, 6 * (1 << 14), |text| io::read_to_string(text)).unwrap().len(), 6 << 14);
    }

    #[test]
    fn parquet_with_lists_is_read() {
        let folder = folder(&[("x.parquet", &parquet())]);
        let records = read_file(folder.path().join("x.parquet")).unwrap();
        assert_eq!(
            json!(records),
            json!([{ "question": "one?", "answer": 1, "tags": ["a", "b"] },
                   { "question": "two?", "answer": 2, "tags": null }])
        );
        assert_eq!(count_records(folder.path().join("x.parquet")).unwrap(), 2);
    }

    #[test]
    fn a_parquet_file_is_not_read_beyond_the_limit() {
        let folder = folder(&[("x.parquet", &parquet())]);
        let source = SourcePath::from(&folder.path().join("x.parquet"));
        let read = |most: u64, bytes: u64| rows(&source, Limit { rows: most, bytes });
        assert_eq!(read(2, LARGEST_UNPACKED).unwrap().len(), 2);
        let error = read(1, LARGEST_UNPACKED).unwrap_err().to_string();
        assert!(error.ends_with("x.parquet has more than 1 records"), "{error}");
        let error = read(2, 10).unwrap_err();
        assert!(matches!(&error, Error::TooLarge { path, largest: 10 } if path == source.path()), "{error}");
    }

    #[test]
    fn times_of_a_parquet_file_are_texts_in_every_unit() {
        let schema = "message m { required int64 ms (TIMESTAMP(MILLIS, true)); \
                      required int64 us (TIMESTAMP(MICROS, true)); required int64 ns (TIMESTAMP(NANOS, true)); }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut out = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut out, schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for time in [1_541_186_529_153, 1_541_186_529_153_123, 1_541_186_529_153_123_456] {
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(&[time], None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        let folder = folder(&[("x.parquet", &out)]);
        let records = read_file(folder.path().join("x.parquet")).unwrap();
        let expected = json!([{ "ms": "2018-11-02 19:22:09.153 +00:00", "us": "2018-11-02 19:22:09.153123 +00:00",
                                "ns": "2018-11-02 19:22:09.153123456 +00:00" }]);
        assert_eq!(json!(records), expected);
    }

    #[test]
    fn a_text_that_a_parquet_file_repeats_is_counted_in_every_row() {
        let schema = Arc::new(parse_message_type("message m { required binary text (UTF8); }").unwrap());
        let mut out = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut out, schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let texts = vec![ByteArray::from("x".repeat(1000).as_str()); 1000];
        column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        let folder = folder(&[("x.parquet", &out)]);
        let source = SourcePath::from(&folder.path().join("x.parquet"));
        let limit = Limit { rows: 1000, bytes: 100_000 };
        assert!(open_parquet(&source, limit).is_ok(), "the file has the text once");
        let error = rows(&source, limit).unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    }

    #[test]
    fn values_that_a_parquet_file_has_once_are_counted_before_a_row_is_read() {
        let schema = "message m { \
                      required group numbers (LIST) { repeated group list { required int64 element; } } }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut out = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut out, schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let numbers = 1_000_000;
        let repetitions: Vec<i16> = (0..numbers).map(|index| i16::from(index > 0)).collect();
        let definitions = vec![1; numbers];
        column
            .typed::<Int64Type>()
            .write_batch(&vec![7; numbers], Some(&definitions), Some(&repetitions))
            .unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        assert!(out.len() < 100_000, "the file has the number once");
        let folder = folder(&[("x.parquet", &out)]);
        let source = SourcePath::from(&folder.path().join("x.parquet"));
        let limit = Limit { rows: 1, bytes: 2 << 20 };
        let error = open_parquet(&source, limit).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    }

    #[test]
    fn a_damaged_header_of_a_page_is_an_error_that_names_the_file() {
        let mut bytes = parquet();
        // The first page, a dictionary, after the four bytes of the format: its type is the first field of its header.
        assert_eq!(bytes[4..6], [0x15, 0x04]);
        bytes[5] = 0x00;
        let folder = folder(&[("x.parquet", &bytes)]);
        let path = folder.path().join("x.parquet");
        for error in [read_file(&path).unwrap_err(), count_records(&path).unwrap_err()] {
            let message = error.to_string();
            assert!(message.contains("x.parquet can't be read as Parquet"), "{message}");
            assert!(message.ends_with("a page lacks the header of its type"), "{message}");
        }
    }

    #[test]
    fn levels_are_rooms() {
        let folder = folder(&[("x.txt", b"; 0\n####\n#@$#\n####\n\n; 1\n###\n#.#\n###\n")]);
        let records = read_file(folder.path().join("x.txt")).unwrap();
        assert_eq!(json!(records), json!([{ "room": "####\n#@$#\n####" }, { "room": "###\n#.#\n###" }]));
    }

    #[test]
    fn text_files_have_levels_sudokus_or_records() {
        let folder = folder(&[
            ("rooms.txt", b"; 0\n####\n#@$#\n####\n\n; 1\n###\n#.#\n###\n"),
            ("sudokus.txt", b"# two\n1.3434.221.3432.\n\n1.3434.221.343..,1234341221434321\n"),
            ("mark.txt", b"\xef\xbb\xbf1.3434.221.3432.\n1.3434.221.343..\n"),
            ("records.txt", b"{\"puzzle\": 1}\n{\"puzzle\": 2}\n"),
        ]);
        for (name, field) in [
            ("rooms.txt", "room"),
            ("sudokus.txt", "puzzle"),
            ("mark.txt", "puzzle"),
            ("records.txt", "puzzle"),
        ] {
            let path = folder.path().join(name);
            let records = read_file(&path).unwrap();
            assert!(records.len() == 2 && records.iter().all(|record| record.contains_key(field)), "{name}");
            assert_eq!(count_records(&path).unwrap(), 2, "{name}");
        }
    }

    #[test]
    fn broken_files_are_named_with_the_record() {
        let folder = folder(&[
            ("x.jsonl", b"{}\n{\n"),
            ("y.json", b"3"),
            ("single.json", b"{\"question\": \"q\"}"),
            ("lists.json", b"{\"tags\": [], \"data\": [{}]}"),
            ("number.jsonl", b"{\"gold\": 12345678901234567890123}"),
            ("list.json", b"[1,\n  x]"),
            ("latin1.jsonl", b"{}\n{\"a\": \"\xe4\"}\n"),
            ("z.parquet", b"PAR"),
            ("a.jsonl", b"[1]"),
            ("b.csv", b""),
        ]);
        let message = |name: &str| read_file(folder.path().join(name)).unwrap_err().to_string();
        assert!(
            message("x.jsonl").contains("x.jsonl:2:1: EOF while parsing an object"),
            "{}",
            message("x.jsonl")
        );
        for name in ["y.json", "single.json"] {
            assert!(message(name).ends_with("a single record is written as `[{…}]`"), "{}", message(name));
        }
        assert!(message("lists.json").ends_with("the lists tags, data: keep only that of the records"));
        assert!(message("number.jsonl").contains("number.jsonl:1: a whole number of 23 digits"));
        assert!(message("list.json").ends_with("list.json:2:3: expected value"), "{}", message("list.json"));
        assert!(message("latin1.jsonl").ends_with("latin1.jsonl:2: the text is not UTF-8"));
        assert!(message("z.parquet").contains("can't be read as Parquet"));
        assert!(message("a.jsonl").ends_with("record 1 is not an object"));
        assert!(message("b.csv").contains("none of the forms"));
        assert_eq!(count_records(folder.path().join("b.csv")).unwrap_err().to_string(), message("b.csv"));
    }

    #[test]
    fn files_of_a_split_are_of_one_form_and_in_order() {
        let folder = folder(&[
            ("set/train-1.parquet", b""),
            ("set/train-0.parquet", b""),
            ("set/train.readme", b""),
            ("set/test.jsonl", b""),
            ("set/test.txt", b"a note"),
            ("set/twice.json", b""),
            ("set/twice.jsonl", b""),
            ("set/part-00000-of-00002.json", b""),
        ]);
        let names = |prefix: &str| -> Vec<String> {
            let files = find_files(folder.path(), prefix).unwrap();
            files.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names("set/train"), ["train-0.parquet", "train-1.parquet"]);
        assert_eq!(names("set/test"), ["test.jsonl"]);
        assert!(names("set/other").is_empty() && names("none/test").is_empty());
        let message = |prefix: &str| find_files(folder.path(), prefix).unwrap_err().to_string();
        assert!(message("set/twice").contains("twice.json, twice.jsonl;"), "{}", message("set/twice"));
        assert!(message("set/part").contains("lacks part-00001-of-00002.json:"), "{}", message("set/part"));
    }
}
