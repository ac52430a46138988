//! Files made to keep a reader busy, to fill its memory or to overflow its stack.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::io::{Seek, Write};
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
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
    fn schema_element(&mut self, children: i32, name: &str) {
        self.structure(|element| {
            if children == 0 {
                element.i32(1, 2);
            }
            element.i32(3, 0);
            element.text(4, name);
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

/// The footer of a file of one row in columns with these names that share their pages, which are all of the file.
fn footer(names: &[&str], length: usize) -> Vec<u8> {
    let columns = names.len() as i32;
    structure(|footer| {
        footer.i32(1, 1);
        footer.list(2, TType::Struct, columns + 1);
        footer.schema_element(columns, "root");
        names.iter().for_each(|name| footer.schema_element(0, name));
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

/// A footer of no rows and this schema, of `elements` elements.
fn schema(elements: i32, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let footer = structure(|footer| {
        footer.i32(1, 1);
        footer.list(2, TType::Struct, elements);
        write(footer);
        footer.i64(3, 0);
        footer.list(4, TType::Struct, 0);
    });
    file_of(&[], &footer)
}

/// A page of one `i64` with this type and header.
fn page_of(kind: i32, header: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut page = structure(|page| {
        page.i32(1, kind);
        page.i32(2, 8);
        page.i32(3, 8);
        header(page);
    });
    page.extend(7i64.to_le_bytes());
    page
}

/// A page of one `i64`, whose header has more fields at its end.
fn page(more: impl FnOnce(&mut Writer)) -> Vec<u8> {
    page_of(0, |header| {
        header.field(5, TType::Struct);
        header.structure(|data| (1..=4).for_each(|field| data.i32(field, i32::from(field == 1))));
        more(header);
    })
}

/// A file of one column with these pages.
fn file_of_pages(pages: &[u8]) -> Vec<u8> {
    file_of(pages, &footer(&["a"], pages.len()))
}

#[test]
fn an_ordinary_file_is_opened() {
    assert_eq!(open(&written()).unwrap(), 1);
    assert_eq!(open(&file_of_pages(&page(|_| {}))).unwrap(), 1);
}

/// The library asks the file for each of millions of elements that it doesn't have.
#[test]
fn a_page_header_ends_with_its_column() {
    let page = page(|header| header.list(20, TType::Double, 12_000_000));
    let message = message(&file_of_pages(&page));
    assert_eq!(message, "it is damaged: it ends in the middle of a structure");
}

/// The library reads nothing for them, as often as the file says.
#[test]
fn booleans_in_a_list_are_refused_wherever_they_stand() {
    let endless = |writer: &mut Writer| writer.list(20, TType::Bool, 1 << 20);
    for bytes in [file_of_pages(&page(endless)), file_of(&[], &structure(endless))] {
        let message = message(&bytes);
        assert!(message.contains("a list of booleans"), "{message}");
    }
}

/// The library reads a schema by recursion.
#[test]
fn a_deep_schema_is_refused() {
    let chain = |levels: i32| {
        schema(levels, |footer| {
            (1..levels).for_each(|_| footer.schema_element(1, "a"));
            footer.schema_element(0, "a");
        })
    };
    assert_eq!(open(&chain(64)).unwrap(), 0);
    for levels in [65, 200_000] {
        assert_eq!(message(&chain(levels)), "its schema has more than 64 levels");
    }
}

/// Wide is not deep: groups that are over don't count.
#[test]
fn a_wide_schema_is_opened() {
    let wide = |groups: i32| {
        schema(1 + groups * 3, |footer| {
            footer.schema_element(groups, "root");
            for group in 0..groups {
                footer.schema_element(1, &group.to_string());
                footer.schema_element(1, "a");
                footer.schema_element(0, "a");
            }
        })
    };
    assert_eq!(open(&wide(3_333)).unwrap(), 0);
    assert_eq!(message(&wide(3_334)), "its schema has more than 10000 columns and groups");
}

/// The library takes memory for what a schema claims, and copies its names.
#[test]
fn a_schema_that_takes_much_memory_is_refused() {
    let group = schema(1, |footer| footer.schema_element(i32::MAX, "a"));
    assert_eq!(message(&group), "its schema has a group of 2147483647 columns");
    let name = schema(2, |footer| {
        footer.schema_element(1, "root");
        footer.schema_element(0, &"a".repeat(513));
    });
    assert_eq!(message(&name), "a name in its schema has more than 512 bytes");
    // The library keeps 32 bits of the second one.
    for length in [1 << 30, (1 << 30) - (1 << 32)] {
        let value = schema(2, |footer| {
            footer.schema_element(1, "root");
            footer.structure(|element| {
                element.i32(1, 7);
                element.i64(2, length);
            });
        });
        assert_eq!(message(&value), format!("it has values of {length} bytes each"));
    }
}

/// The library reads a known field by its number, whatever its type is, and so would read something else than was checked.
#[test]
fn a_field_of_another_type_is_refused() {
    let page = page(|_| {});
    let footer = footer(&["a"], page.len());
    assert_eq!(footer[..2], [0x15, 0x02], "the version, a number");
    let text = [&[0x18, 0x01, b'x'], &footer[2..]].concat();
    let message = message(&file_of(&page, &text));
    assert_eq!(message, "it is damaged: field 1 of FileMetaData has, or lists, the type string");
}

/// The library keeps the lowest bits of a number.
#[test]
fn a_number_that_its_field_has_no_bits_for_is_refused() {
    let page = page_of(0, |header| {
        header.field(5, TType::Struct);
        header.structure(|data| {
            data.i64(1, (1 << 32) + 1);
            (2..=4).for_each(|field| data.i32(field, 0));
        });
    });
    assert_eq!(message(&file_of_pages(&page)), "it is damaged: a number of a page's header is 4294967297");
}

/// Each of the columns would count, and read, the same pages.
#[test]
fn pages_are_of_one_column_alone() {
    let pages = page(|_| {}).repeat(100);
    let names: Vec<String> = (0..20).map(|index| index.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let shared = message(&file_of(&pages, &footer(&names, pages.len())));
    assert_eq!(shared, "it is damaged: its columns have more bytes than the file");
    let page = page(|_| {});
    let same = message(&file_of(&page, &footer(&["a", "a"], page.len())));
    assert_eq!(same, "it is damaged: two columns have the same name");
}

#[test]
fn a_page_ends_with_its_column() {
    let page = page(|_| {});
    for length in [page.len() - 1, 3] {
        let message = message(&file_of(&page, &footer(&["a"], length)));
        assert!(message.starts_with("it is damaged: "), "{message}");
    }
}

/// Peeking, the library takes what is in an index for headers.
#[test]
fn an_index_between_pages_is_refused() {
    let index = page_of(1, |header| {
        header.field(6, TType::Struct);
        header.structure(|_| {});
    });
    assert_eq!(message(&file_of_pages(&index)), "it is damaged: a page is an index, which is not read");
}

/// The library takes memory for a dictionary before it looks at its bytes.
#[test]
fn values_that_a_dictionary_claims_are_counted() {
    let dictionary = page_of(2, |header| {
        header.field(7, TType::Struct);
        header.structure(|dictionary| {
            dictionary.i32(1, i32::MAX);
            dictionary.i32(2, 0);
        });
    });
    let pages = [dictionary, page(|_| {})].concat();
    assert_eq!(message(&file_of_pages(&pages)), "its values take more than 1048576 bytes");
}

/// The pages themselves say for how many texts the library takes memory.
#[test]
fn encodings_that_cannot_be_counted_are_refused() {
    // The library keeps 32 bits.
    let header = |encoding: i64| {
        page_of(0, |header| {
            header.field(5, TType::Struct);
            header.structure(|data| {
                data.i32(1, 1);
                data.i64(2, encoding);
            });
        })
    };
    let wide = message(&file_of_pages(&header(6 + (1 << 32))));
    assert_eq!(wide, "it is damaged: a number of a page's header is 4294967302");
    for (encoding, name) in [(6, "DELTA_LENGTH_BYTE_ARRAY"), (7, "DELTA_BYTE_ARRAY")] {
        let second = page_of(3, |header| {
            header.field(8, TType::Struct);
            header.structure(|data| {
                (1..=6).for_each(|field| data.i32(field, if field == 4 { encoding } else { 0 }))
            });
        });
        for page in [header(encoding.into()), second] {
            let message = message(&file_of_pages(&page));
            assert!(
                message.contains(name) && message.ends_with("with plain or dictionary encoding"),
                "{message}"
            );
        }
    }
}

/// The library would read nulls for ever.
#[test]
fn rows_without_values_are_refused() {
    let message = message(&file_of(&[], &footer(&["a"], 0)));
    assert_eq!(message, "it is damaged: a column has fewer values than rows");
}

/// Each element of a list is a text of its own once it is read, and all of a row is read at once.
#[test]
fn a_text_that_a_list_repeats_is_counted_for_each_element() {
    let list = |columns: usize, count: usize, length: usize| {
        let column = |index| {
            format!(
                "required group a{index} (LIST) {{ repeated group list {{ required binary element (UTF8); }} }}"
            )
        };
        let schema = format!("message m {{ {} }}", (0..columns).map(column).collect::<String>());
        let schema = Arc::new(parse_message_type(&schema).unwrap());
        let mut out = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut out, schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            let texts = vec![ByteArray::from("x".repeat(length).as_str()); count];
            let repetitions: Vec<i16> = (0..count).map(|index| i16::from(index > 0)).collect();
            column
                .typed::<ByteArrayType>()
                .write_batch(&texts, Some(&vec![1; count]), Some(&repetitions))
                .unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        out
    };
    assert_eq!(open(&list(1, 100, 10_000)).unwrap(), 1);
    let file = list(1, 110, 10_000);
    assert!(file.len() < 50_000, "the file has the text once");
    assert_eq!(message(&file), "its values take more than 1048576 bytes");
    assert_eq!(open(&list(2, 50, 10_000)).unwrap(), 1);
    assert_eq!(message(&list(2, 55, 10_000)), "its values take more than 1048576 bytes");
}
