//! Tables in the documentation that a command writes, between two marks.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// Writes the table of `cargo xtask COMMAND` into a page, between `<!-- cargo xtask COMMAND: begin -->` and `end`.
///
/// # Errors
/// If the page lacks the marks, or can't be written.
pub fn write_table(page: &Path, command: &str, table: &str) -> Result<()> {
    let text = std::fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let mark = |which: &str| format!("<!-- cargo xtask {command}: {which} -->");
    let (begin, end) = (mark("begin"), mark("end"));
    let (Some(start), Some(stop)) = (text.find(&begin), text.find(&end)) else {
        bail!("{} has no marks for the table ({begin} … {end})", page.display());
    };
    let new = format!("{}\n\n{table}\n{}", &text[..start + begin.len()], &text[stop..]);
    std::fs::write(page, new).with_context(|| format!("cannot write {}", page.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_table_is_replaced() {
        let page = tempfile::NamedTempFile::new().unwrap();
        let text = |table: &str| {
            format!(
                "before\n<!-- cargo xtask one: begin -->\n\n{table}\n<!-- cargo xtask one: end -->\nafter\n"
            )
        };
        std::fs::write(page.path(), text("old\n")).unwrap();
        write_table(page.path(), "one", "| new |\n").unwrap();
        assert_eq!(std::fs::read_to_string(page.path()).unwrap(), text("| new |\n"));
        assert!(write_table(page.path(), "other", "").is_err());
    }
}
