//! Fenced blocks of completions, and of prompts.

use crate::written::{Comparison, Mismatch};

/// Returns the fenced blocks of a text, including one that is cut off. A fence starts a line; a block in a
/// list is indented together with its fence.
pub fn blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, Vec<&str>)> = None;
    for line in text.lines() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        match (code.starts_with("```"), &mut open) {
            (true, Some(_)) => blocks.extend(open.take().map(|(indent, lines)| dedented(indent, &lines))),
            (true, None) => open = Some((indent, Vec::new())),
            (false, Some((_, lines))) => lines.push(line),
            (false, None) => {}
        }
    }
    blocks.extend(open.map(|(indent, lines)| dedented(indent, &lines)));
    blocks
}

/// Returns the text of a block without the indentation of its fence, or without that of its first line if that is less: not
/// every block is indented together with its fence. White space alone is cut off.
fn dedented(indent: usize, lines: &[&str]) -> String {
    let own = |line: &str| line.len() - line.trim_start().len();
    let first = lines.iter().find(|line| !line.trim().is_empty()).map_or(0, |line| own(line));
    let width = indent.min(first);
    let cut = lines.iter().map(|line| line.get(width.min(own(line))..).unwrap_or(line.trim_start()));
    cut.collect::<Vec<_>>().join("\n")
}

/// Returns mismatches as a text for prompts.
pub fn mismatches(comparison: &Comparison) -> String {
    let one = |Mismatch { input, expected, printed }: &Mismatch| {
        let printed = if printed.is_empty() { "nothing" } else { printed };
        let part = |name: &str, text: &str| match text.contains('\n') {
            true => format!("{name}:\n{text}\n"),
            false => format!("{name}: {text}\n"),
        };
        [part("Input", input), part("Expected", expected), part("Got", printed)].concat()
    };
    let Comparison { held, total, mismatches } = comparison;
    let shown: Vec<String> = mismatches.iter().map(one).collect();
    format!("{held} of {total} tests hold.\n```\n{}```", shown.join("\n"))
}

/// Returns the numbers of earlier comparisons, oldest first, with the first mismatch of each.
pub fn history(comparisons: &[Comparison]) -> String {
    let earlier = comparisons.split_last().map_or(&[][..], |(_, earlier)| earlier);
    let one = |Comparison { held, total, mismatches }: &Comparison| {
        let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let first = mismatches.first().map(|Mismatch { input, expected, printed }| {
            format!(": {} gave {}, not {}", line(input), line(printed), line(expected))
        });
        format!("Before, {held} of {total} tests held{}.\n", first.unwrap_or_default())
    };
    earlier.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lose_white_space_alone() {
        let inc = "def inc(x):\n  return x + 1";
        assert_eq!(blocks("1. Here:\n   ```python\n   def inc(x):\n     return x + 1\n   ```"), [inc]);
        assert_eq!(blocks(&format!("1. Here:\n   ```python\n{inc}\n   ```")), [inc], "not indented");
        assert_eq!(blocks("   ```\n   x = '''\ny'''\n   ```"), ["x = '''\ny'''"], "a text of several lines");
        assert_eq!(blocks("   ```\n\u{a0}\u{a0}x\n   ```"), ["x"], "white space of several bytes");
    }

    #[test]
    fn mismatches_and_history_are_short_texts() {
        let mismatch = |printed: &str| Mismatch {
            input: "2\n1 2".to_owned(),
            expected: "3".to_owned(),
            printed: printed.to_owned(),
        };
        let comparison =
            |held, printed: &str| Comparison { held, total: 2, mismatches: vec![mismatch(printed)] };
        assert_eq!(
            mismatches(&comparison(1, "")),
            "1 of 2 tests hold.\n```\nInput:\n2\n1 2\nExpected: 3\nGot: nothing\n```"
        );
        assert_eq!(
            history(&[comparison(0, "5"), comparison(1, "4")]),
            "Before, 0 of 2 tests held: 2 1 2 gave 5, not 3.\n"
        );
        assert_eq!(history(&[]), "");
    }
}
