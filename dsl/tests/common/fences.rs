//! Examples within Markdown: the text between ```` ```mas ```` and ```` ``` ````.

/// One example.
pub struct Fence<'t> {
    /// Word after `mas`: `wrong`, `right`, `fragment` or nothing.
    pub word: &'t str,
    /// The line on which it begins, from 1.
    pub line: usize,
    pub text: String,
}

/// The examples of a text in this language.
pub fn fences(markdown: &str) -> Vec<Fence<'_>> {
    let mut out = Vec::new();
    let mut lines = markdown.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let text: String =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").fold(String::new(), add);
        let mut words = language.split(' ');
        if words.next() == Some("mas") {
            out.push(Fence { word: words.next().unwrap_or_default(), line: at + 1, text });
        }
    }
    out
}

fn add(mut text: String, line: &str) -> String {
    text.push_str(line);
    text.push('\n');
    text
}
