//! Structures of the format (parquet.thrift, version 2.12) in Thrift's compact protocol, as far as the library reads them.
//!
//! The library skips fields that it doesn't know and reads those that it knows by their numbers, whatever type the file gives
//! them. So a file is walked here with the types of the format: the library reads what passes by the same bytes. Lists and maps
//! of booleans, which the format has none of in these structures, are refused: the library reads no byte for such an element, so
//! that a few bytes would keep it busy for hours.

use std::io::Read;

use thrift::protocol::{TCompactInputProtocol, TInputProtocol, TType};

use crate::Error;

/// Levels of structures and lists in unknown fields. The library's own limit is 64.
const DEEPEST: usize = 32;

/// Type of a field in the format.
#[derive(Debug, Clone, Copy)]
enum Field {
    Bool,
    I8,
    /// A number of any width, or an enumeration: their bytes have the same form.
    Integer,
    Double,
    /// Bytes or text.
    Binary,
    Struct(&'static Layout),
    List(&'static Field),
}

/// A structure or union of the format.
#[derive(Debug)]
pub(crate) struct Layout {
    name: &'static str,
    fields: &'static [(i16, Field)],
}

impl Layout {
    /// Returns true if this is the other structure.
    pub(crate) fn is(&self, other: &Layout) -> bool {
        std::ptr::eq(self, other)
    }
}

/// Receiver of what a walk comes by.
pub(crate) trait Visitor {
    /// Takes an integer field.
    ///
    /// # Errors
    /// If it is out of the field's range. The library cuts off what a field has no bits for.
    fn number(&mut self, layout: &'static Layout, field: i16, value: i64) -> Result<(), Error>;

    /// Takes the length of a text or of bytes.
    ///
    /// # Errors
    /// If there are too many.
    fn bytes(&mut self, _layout: &'static Layout, _field: i16, _length: usize) -> Result<(), Error> {
        Ok(())
    }

    /// Takes the end of a structure.
    ///
    /// # Errors
    /// If the structure is refused.
    fn end(&mut self, _layout: &'static Layout) -> Result<(), Error> {
        Ok(())
    }
}

use Field::{Binary, Bool, Double, I8, Integer, List, Struct};

const fn layout(name: &'static str, fields: &'static [(i16, Field)]) -> Layout {
    Layout { name, fields }
}

/// A structure without known fields.
static EMPTY: Layout = layout("an empty structure", &[]);
static TIME_UNIT: Layout =
    layout("TimeUnit", &[(1, Struct(&EMPTY)), (2, Struct(&EMPTY)), (3, Struct(&EMPTY))]);
static DECIMAL: Layout = layout("DecimalType", &[(1, Integer), (2, Integer)]);
static TIME: Layout = layout("TimeType", &[(1, Bool), (2, Struct(&TIME_UNIT))]);
static INT: Layout = layout("IntType", &[(1, I8), (2, Bool)]);
static VARIANT: Layout = layout("VariantType", &[(1, I8)]);
static GEOMETRY: Layout = layout("GeometryType", &[(1, Binary)]);
static GEOGRAPHY: Layout = layout("GeographyType", &[(1, Binary), (2, Integer)]);
static LOGICAL_TYPE: Layout = layout(
    "LogicalType",
    &[
        (1, Struct(&EMPTY)),
        (2, Struct(&EMPTY)),
        (3, Struct(&EMPTY)),
        (4, Struct(&EMPTY)),
        (5, Struct(&DECIMAL)),
        (6, Struct(&EMPTY)),
        (7, Struct(&TIME)),
        (8, Struct(&TIME)),
        (10, Struct(&INT)),
        (11, Struct(&EMPTY)),
        (12, Struct(&EMPTY)),
        (13, Struct(&EMPTY)),
        (14, Struct(&EMPTY)),
        (15, Struct(&EMPTY)),
        (16, Struct(&VARIANT)),
        (17, Struct(&GEOMETRY)),
        (18, Struct(&GEOGRAPHY)),
        (19, Struct(&EMPTY)),
    ],
);
/// Field 5 is the number of children.
pub(crate) static SCHEMA_ELEMENT: Layout = layout(
    "SchemaElement",
    &[
        (1, Integer),
        (2, Integer),
        (3, Integer),
        (4, Binary),
        (5, Integer),
        (6, Integer),
        (7, Integer),
        (8, Integer),
        (9, Integer),
        (10, Struct(&LOGICAL_TYPE)),
    ],
);
static STATISTICS: Layout = layout(
    "Statistics",
    &[
        (1, Binary),
        (2, Binary),
        (3, Integer),
        (4, Integer),
        (5, Binary),
        (6, Binary),
        (7, Bool),
        (8, Bool),
        (9, Integer),
    ],
);
static PAGE_ENCODING_STATS: Layout = layout("PageEncodingStats", &[(1, Integer), (2, Integer), (3, Integer)]);
static SIZE_STATISTICS: Layout =
    layout("SizeStatistics", &[(1, Integer), (2, List(&Integer)), (3, List(&Integer))]);
static BOUNDING_BOX: Layout = layout(
    "BoundingBox",
    &[(1, Double), (2, Double), (3, Double), (4, Double), (5, Double), (6, Double), (7, Double), (8, Double)],
);
static GEOSPATIAL_STATISTICS: Layout =
    layout("GeospatialStatistics", &[(1, Struct(&BOUNDING_BOX)), (2, List(&Integer))]);
static COLUMN_METADATA: Layout = layout(
    "ColumnMetaData",
    &[
        (1, Integer),
        (2, List(&Integer)),
        (4, Integer),
        (5, Integer),
        (6, Integer),
        (7, Integer),
        (9, Integer),
        (10, Integer),
        (11, Integer),
        (12, Struct(&STATISTICS)),
        (13, List(&Struct(&PAGE_ENCODING_STATS))),
        (14, Integer),
        (15, Integer),
        (16, Struct(&SIZE_STATISTICS)),
        (17, Struct(&GEOSPATIAL_STATISTICS)),
    ],
);
static COLUMN_CHUNK: Layout = layout(
    "ColumnChunk",
    &[
        (1, Binary),
        (2, Integer),
        (3, Struct(&COLUMN_METADATA)),
        (4, Integer),
        (5, Integer),
        (6, Integer),
        (7, Integer),
    ],
);
static SORTING_COLUMN: Layout = layout("SortingColumn", &[(1, Integer), (2, Bool), (3, Bool)]);
static ROW_GROUP: Layout = layout(
    "RowGroup",
    &[
        (1, List(&Struct(&COLUMN_CHUNK))),
        (2, Integer),
        (3, Integer),
        (4, List(&Struct(&SORTING_COLUMN))),
        (5, Integer),
        (7, Integer),
    ],
);
static KEY_VALUE: Layout = layout("KeyValue", &[(1, Binary), (2, Binary)]);
static COLUMN_ORDER: Layout =
    layout("ColumnOrder", &[(1, Struct(&EMPTY)), (2, Struct(&EMPTY)), (3, Struct(&EMPTY))]);
/// The footer of a file.
pub(crate) static FILE_METADATA: Layout = layout(
    "FileMetaData",
    &[
        (1, Integer),
        (2, List(&Struct(&SCHEMA_ELEMENT))),
        (3, Integer),
        (4, List(&Struct(&ROW_GROUP))),
        (5, List(&Struct(&KEY_VALUE))),
        (6, Binary),
        (7, List(&Struct(&COLUMN_ORDER))),
    ],
);
/// Field 1 is the number of values.
pub(crate) static DATA_PAGE_HEADER: Layout = layout(
    "DataPageHeader",
    &[(1, Integer), (2, Integer), (3, Integer), (4, Integer), (5, Struct(&STATISTICS))],
);
/// Field 1 is the number of values.
pub(crate) static DATA_PAGE_HEADER_V2: Layout = layout(
    "DataPageHeaderV2",
    &[
        (1, Integer),
        (2, Integer),
        (3, Integer),
        (4, Integer),
        (5, Integer),
        (6, Integer),
        (7, Bool),
        (8, Struct(&STATISTICS)),
    ],
);
pub(crate) static DICTIONARY_PAGE_HEADER: Layout =
    layout("DictionaryPageHeader", &[(1, Integer), (2, Integer), (3, Bool)]);
/// The header of a page. Field 1 is its type, field 2 the size of its values once they are unpacked, field 3 the size of the page.
pub(crate) static PAGE_HEADER: Layout = layout(
    "PageHeader",
    &[
        (1, Integer),
        (2, Integer),
        (3, Integer),
        (4, Integer),
        (5, Struct(&DATA_PAGE_HEADER)),
        (6, Struct(&EMPTY)),
        (7, Struct(&DICTIONARY_PAGE_HEADER)),
        (8, Struct(&DATA_PAGE_HEADER_V2)),
    ],
);

impl Field {
    /// Returns true if a value of this Thrift type has the form that the library reads.
    fn is_encoded_as(self, found: TType) -> bool {
        match self {
            Bool => found == TType::Bool,
            I8 => found == TType::I08,
            Integer => matches!(found, TType::I16 | TType::I32 | TType::I64),
            Double => found == TType::Double,
            Binary => found == TType::String,
            Struct(_) => found == TType::Struct,
            List(_) => found == TType::List,
        }
    }
}

/// Walks over a structure. Reads no byte more.
///
/// # Errors
/// [`Error::Damaged`] if it ends early or differs from the format.
pub(crate) fn walk(
    input: &mut impl Read,
    layout: &'static Layout,
    visitor: &mut impl Visitor,
) -> Result<(), Error> {
    Walk { protocol: TCompactInputProtocol::new(input), visitor }.structure(layout, DEEPEST)
}

struct Walk<'v, R: Read, V> {
    protocol: TCompactInputProtocol<R>,
    visitor: &'v mut V,
}

impl<R: Read, V: Visitor> Walk<'_, R, V> {
    /// Walks over the fields of a structure. Unknown ones have up to `depth` levels.
    fn structure(&mut self, layout: &'static Layout, depth: usize) -> Result<(), Error> {
        self.protocol.read_struct_begin().map_err(damaged)?;
        loop {
            let field = self.protocol.read_field_begin().map_err(damaged)?;
            if field.field_type == TType::Stop {
                break;
            }
            let id = field.id.unwrap_or(0);
            match layout.fields.iter().find(|(known, _)| *known == id) {
                Some((_, expected)) => self.known(*expected, field.field_type, layout, id)?,
                None => self.unknown(field.field_type, depth)?,
            }
        }
        self.protocol.read_struct_end().map_err(damaged)?;
        self.visitor.end(layout)
    }

    /// Walks over a value of a known field, or over an element of its list.
    fn known(
        &mut self,
        expected: Field,
        found: TType,
        layout: &'static Layout,
        id: i16,
    ) -> Result<(), Error> {
        if !expected.is_encoded_as(found) {
            return Err(Error::Damaged(format!(
                "field {id} of {} has, or lists, the type {found}",
                layout.name
            )));
        }
        match expected {
            Struct(layout) => self.structure(layout, DEEPEST),
            List(element) => {
                let list = self.protocol.read_list_begin().map_err(damaged)?;
                (0..list.size).try_for_each(|_| self.known(*element, list.element_type, layout, id))
            }
            Integer => {
                let value = self.protocol.read_i64().map_err(damaged)?;
                self.visitor.number(layout, id, value)
            }
            Binary => {
                let bytes = self.protocol.read_bytes().map_err(damaged)?;
                self.visitor.bytes(layout, id, bytes.len())
            }
            Bool | I8 | Double => self.unknown(found, DEEPEST),
        }
    }

    /// Walks over a value that the library skips, or of which it reads as much as its type has.
    fn unknown(&mut self, found: TType, depth: usize) -> Result<(), Error> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Error::Damaged("its structures are too deep".to_owned()));
        };
        match found {
            TType::Struct => self.structure(&EMPTY, depth),
            TType::List | TType::Set => {
                let list = self.protocol.read_list_begin().map_err(damaged)?;
                (0..list.size).try_for_each(|_| self.element(list.element_type, depth))
            }
            TType::Map => {
                let map = self.protocol.read_map_begin().map_err(damaged)?;
                let (Some(key), Some(value)) = (map.key_type, map.value_type) else { return Ok(()) };
                (0..map.size).try_for_each(|_| {
                    self.element(key, depth)?;
                    self.element(value, depth)
                })
            }
            single => self.protocol.skip(single).map_err(damaged),
        }
    }

    fn element(&mut self, found: TType, depth: usize) -> Result<(), Error> {
        if found == TType::Bool {
            return Err(Error::Damaged("a list of booleans stands where the format has none".to_owned()));
        }
        self.unknown(found, depth)
    }
}

fn damaged(error: thrift::Error) -> Error {
    Error::Damaged(match error {
        thrift::Error::Transport(error) if error.kind == thrift::TransportErrorKind::EndOfFile => {
            "it ends in the middle of a structure".to_owned()
        }
        error => error.to_string(),
    })
}
