//! Files for tests.

use std::fs;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

/// Creates a folder with these files, named by their paths in it.
pub(crate) fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

/// A file with a text, a number and a list of texts per row, as Hugging Face's are compressed.
pub(crate) fn parquet() -> Vec<u8> {
    let schema = "message m { required binary question (UTF8); required int64 answer; \
                  optional group tags (LIST) { repeated group list { optional binary element (UTF8); } } }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut out = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut out, schema, Arc::new(properties)).unwrap();
    let mut rows = writer.next_row_group().unwrap();
    let mut column = rows.next_column().unwrap().unwrap();
    let texts = [ByteArray::from("one?"), ByteArray::from("two?")];
    column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap();
    column.close().unwrap();
    let mut column = rows.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[1, 2], None, None).unwrap();
    column.close().unwrap();
    let mut column = rows.next_column().unwrap().unwrap();
    let texts = [ByteArray::from("a"), ByteArray::from("b")];
    column.typed::<ByteArrayType>().write_batch(&texts, Some(&[3, 3, 0]), Some(&[0, 1, 0])).unwrap();
    column.close().unwrap();
    rows.close().unwrap();
    writer.close().unwrap();
    out
}
