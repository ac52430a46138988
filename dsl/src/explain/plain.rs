//! Conversion of Markdown to plain text, limited to the subset that explanations use.

use unicode_width::UnicodeWidthStr;

/// Largest number of columns of a line.
const WIDTH: usize = 100;

/// Converts Markdown to text for a terminal: of the markup only backticks remain, examples are indented and lines wrapped.
pub fn to_plain_text(markdown: &str) -> String {
    let mut out = String::new();
    let mut in_example = false;
    let mut paragraph = String::new();
    for line in markdown.lines() {
        if in_example && !line.starts_with("```") {
            let indented = format!("    {line}");
            out.push_str(indented.trim_end());
            out.push('\n');
            continue;
        }
        let continues = !(line.is_empty() || line.starts_with("```") || line.starts_with("- "));
        if !continues {
            wrap(&std::mem::take(&mut paragraph), &mut out);
        }
        if let Some(fence) = line.strip_prefix("```") {
            in_example = !in_example;
            // `mas wrong` and `mas right`; the form of a block has no second word.
            if let Some((_, word)) = fence.split_once(' ') {
                out.push_str(word);
                out.push_str(":\n\n");
            }
        } else if line.is_empty() {
            out.push('\n');
        } else {
            paragraph.push_str(&line.trim_start_matches("# ").replace("**", ""));
            paragraph.push(' ');
            if line.ends_with("  ") {
                wrap(&std::mem::take(&mut paragraph), &mut out);
            }
        }
    }
    wrap(&paragraph, &mut out);
    out
}

/// Appends a paragraph or a list item, wrapped. Appends nothing if it is empty.
fn wrap(line: &str, out: &mut String) {
    if line.is_empty() {
        return;
    }
    // Continuation lines of a list item are indented.
    let margin = if line.starts_with("- ") { "  " } else { "" };
    let mut columns = 0;
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        let width = word.width();
        if columns > 0 && columns + 1 + width > WIDTH {
            out.push('\n');
            out.push_str(margin);
            columns = margin.len();
        } else if columns > 0 {
            out.push(' ');
            columns += 1;
        }
        out.push_str(word);
        columns += width;
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_removed_and_examples_are_indented() {
        let page = "# A: b\n\n**x**: y  \nz.\n\n```mas wrong\na {\n```\n\nMore\nwords.\n\n- i\n- j";
        let shown = "A: b\n\nx: y\nz.\n\nwrong:\n\n    a {\n\nMore words.\n\n- i\n- j\n";
        assert_eq!(to_plain_text(page), shown);
    }

    #[test]
    fn long_lines_are_wrapped() {
        let text = to_plain_text(&format!("- {}", "word ".repeat(40)));
        assert!(text.lines().all(|line| line.width() <= WIDTH));
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().skip(1).all(|line| line.starts_with("  word")));
    }
}
