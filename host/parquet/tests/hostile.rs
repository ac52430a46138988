//! Files made to keep a reader busy, to fill its memory or to overflow its stack.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::io::{Seek, Write};
use std::sync::Arc;

use parquet::data_type::Int64Type;
use parquet::file::reader::FileReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use pl_parquet::{Error, Limit};
use thrift::protocol::{
    TCompactOutputProtocol, TFieldIdentifier, TListIdentifier, TOutputProtocol, TStructIdentifier, TType,
};

const LIMIT: Limit = Limit { rows: 1000, bytes: 1 << 20 };

fn open(bytes: &[u8]) -> Result<u64, Error> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    LIMIT.open(file).map(|reader| reader.metadata().file_metadata().num_rows().unsigned_abs())
}

fn message(bytes: &[u8]) -> String {
    open(bytes).unwrap_err().to_string()
}

/// A file of one column with one row, as the library writes it.
fn written() -> Vec<u8> {
    let schema = Arc::new(parse_message_type("message m { required int64 a; }").unwrap());
    let mut out = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut out, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[7], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    out
}

/// Writer of structures in Thrift's compact protocol.
struct Writer<'b>(TCompactOutputProtocol<&'b mut Vec<u8>>);

impl Writer<'_> {
    fn structure(&mut self, fields: impl FnOnce(&mut Self)) {
        self.0.write_struct_begin(&TStructIdentifier::new("")).unwrap();
        fields(self);
        self.0.write_field_stop().unwrap();
        self.0.write_struct_end().unwrap();
    }

    fn field(&mut self, id: i16, field_type: TType) {
        self.0.write_field_begin(&TFieldIdentifier::new("", field_type, id)).unwrap();
    }

    fn i32(&mut self, id: i16, value: i32) {
        self.field(id, TType::I32);
        self.0.write_i32(value).unwrap();
    }

    fn i64(&mut self, id: i16, value: i64) {
        self.field(id, TType::I64);
        self.0.write_i64(value).unwrap();
    }

    fn text(&mut self, id: i16, value: &str) {
        self.field(id, TType::String);
        self.0.write_string(value).unwrap();
    }

    fn list(&mut self, id: i16, element: TType, size: i32) {
        self.field(id, TType::List);
        self.0.write_list_begin(&TListIdentifier::new(element, size)).unwrap();
    }

    /// A group of a schema, or a column of `i64` if it has no children.
    fn schema_element(&mut self, children: i32) {
        self.structure(|element| {
            if children == 0 {
                element.i32(1, 2);
            }
            element.i32(3, 0);
            element.text(4, "a");
            element.i32(5, children);
        });
    }

    /// A column of one value whose pages are `length` bytes from `start` on.
    fn column(&mut self, start: i64, length: i64) {
        self.structure(|column| {
            column.i64(2, 0);
            column.field(3, TType::Struct);
            column.structure(|metadata| {
                metadata.i32(1, 2);
                metadata.list(2, TType::I32, 0);
                metadata.list(3, TType::String, 1);
                metadata.0.write_string("a").unwrap();
                metadata.i32(4, 0);
                metadata.i64(5, 1);
                metadata.i64(6, length);
                metadata.i64(7, length);
                metadata.i64(9, start);
            });
        });
    }
}

fn structure(fields: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut bytes = Vec::new();
    Writer(TCompactOutputProtocol::new(&mut bytes)).structure(fields);
    bytes
}

/// A file of these pages and this footer.
fn file_of(pages: &[u8], footer: &[u8]) -> Vec<u8> {
    let size = (footer.len() as u32).to_le_bytes();
    [b"PAR1", pages, footer, &size, b"PAR1"].concat()
}

/// The footer of a file of one row in `columns` columns that share their pages, which are all of the file.
fn footer(columns: i32, length: usize) -> Vec<u8> {
    structure(|footer| {
        footer.i32(1, 1);
        footer.list(2, TType::Struct, columns + 1);
        footer.schema_element(columns);
        (0..columns).for_each(|_| footer.schema_element(0));
        footer.i64(3, 1);
        footer.list(4, TType::Struct, 1);
        footer.structure(|group| {
            group.list(1, TType::Struct, columns);
            (0..columns).for_each(|_| group.column(4, length as i64));
            group.i64(2, 8);
            group.i64(3, 1);
        });
    })
}

/// A page of one `i64`, whose header has more fields at its end.
fn page(more: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut page = structure(|header| {
        header.i32(1, 0);
        header.i32(2, 8);
        header.i32(3, 8);
        header.field(5, TType::Struct);
        header.structure(|data| (1..=4).for_each(|field| data.i32(field, if field == 1 { 1 } else { 0 })));
        more(header);
    });
    page.extend(7i64.to_le_bytes());
    page
}

#[test]
fn an_ordinary_file_is_opened() {
    assert_eq!(open(&written()).unwrap(), 1);
    let page = page(|_| {});
    assert_eq!(open(&file_of(&page, &footer(1, page.len()))).unwrap(), 1);
}

/// The library asks the file for each of millions of elements that it doesn't have.
#[test]
fn a_page_header_ends_with_its_column() {
    let page = page(|header| header.list(20, TType::Double, 12_000_000));
    let message = message(&file_of(&page, &footer(1, page.len())));
    assert_eq!(message, "it is damaged: it ends in the middle of a structure");
}

/// The library reads nothing for them, as often as the file says.
#[test]
fn booleans_in_a_list_are_refused_wherever_they_stand() {
    let endless = |writer: &mut Writer| writer.list(20, TType::Bool, 1 << 20);
    let page = page(endless);
    for bytes in [file_of(&page, &footer(1, page.len())), file_of(&[], &structure(endless))] {
        let message = message(&bytes);
        assert!(message.contains("a list of booleans"), "{message}");
    }
}

/// The library reads a schema by recursion.
#[test]
fn a_deep_schema_is_refused() {
    let schema = |levels: i32| {
        structure(|footer| {
            footer.i32(1, 1);
            footer.list(2, TType::Struct, levels);
            (1..levels).for_each(|_| footer.schema_element(1));
            footer.schema_element(0);
            footer.i64(3, 0);
            footer.list(4, TType::Struct, 0);
        })
    };
    assert_eq!(open(&file_of(&[], &schema(64))).unwrap(), 0);
    for levels in [65, 200_000] {
        assert_eq!(
            message(&file_of(&[], &schema(levels))),
            "it is damaged: its schema has more than 64 levels"
        );
    }
}

/// Wide is not deep: groups that are over don't count.
#[test]
fn a_wide_schema_is_opened() {
    let footer = structure(|footer| {
        footer.i32(1, 1);
        footer.list(2, TType::Struct, 1 + 500 * 3);
        footer.schema_element(500);
        for _ in 0..500 {
            footer.schema_element(1);
            footer.schema_element(1);
            footer.schema_element(0);
        }
        footer.i64(3, 0);
        footer.list(4, TType::Struct, 0);
    });
    assert_eq!(open(&file_of(&[], &footer)).unwrap(), 0);
}

/// The library reads a known field by its number, whatever its type is, and so would read something else than was checked.
#[test]
fn a_field_of_another_type_is_refused() {
    let page = page(|_| {});
    let footer = footer(1, page.len());
    assert_eq!(footer[..2], [0x15, 0x02], "the version, a number");
    let text = [&[0x18, 0x01, b'x'], &footer[2..]].concat();
    assert_eq!(
        message(&file_of(&page, &text)),
        "it is damaged: field 1 of a FileMetaData has the type string"
    );
}

/// Each of the columns would count, and read, the same pages.
#[test]
fn pages_are_of_one_column_alone() {
    let pages = page(|_| {}).repeat(100);
    let message = message(&file_of(&pages, &footer(20, pages.len())));
    assert_eq!(message, "it is damaged: its columns have more bytes than the file");
}

#[test]
fn a_page_ends_with_its_column() {
    let page = page(|_| {});
    for length in [page.len() - 1, 3] {
        let message = message(&file_of(&page, &footer(1, length)));
        assert!(message.starts_with("it is damaged: "), "{message}");
    }
}
