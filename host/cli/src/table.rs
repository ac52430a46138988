//! Tables of text without lines.

use comfy_table::{Table, presets};

/// Creates a table with the titles of its columns.
pub fn plain_table(titles: impl IntoIterator<Item = impl Into<String>>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(titles.into_iter().map(Into::into).collect::<Vec<String>>());
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}
