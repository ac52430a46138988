//! The TextMate grammar, in an engine that is compatible with VS Code.

use giallo::{HighlightOptions, Registry, ThemeVariant};
use serde_json::json;

use crate::classes::{CLASSES, Classified};
use crate::files;

/// A theme with a different colour for each class, so that the colour identifies the class.
fn theme() -> serde_json::Value {
    let colour = |index: usize| format!("#0000{:02x}", index + 1);
    let rules: Vec<_> = CLASSES
        .iter()
        .enumerate()
        .map(|(index, class)| json!({ "scope": class.scope, "settings": { "foreground": colour(index) } }))
        // A value inserted into a text is not text.
        .chain([json!({ "scope": "meta.embedded", "settings": { "foreground": "#000000" } })])
        .collect();
    json!({
        "name": "classes", "type": "dark",
        "colors": { "editor.foreground": "#000000", "editor.background": "#ffffff" },
        "tokenColors": rules,
    })
}

fn registry() -> Registry {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("classes.json");
    std::fs::write(&path, theme().to_string()).unwrap();
    let mut registry = Registry::default();
    let grammar = files::repository("editors/vscode/syntaxes/mas.tmLanguage.json");
    registry.add_grammar_from_path(grammar).unwrap();
    registry.add_theme_from_path(&path).unwrap();
    registry.link_grammars();
    registry
}

/// Classifies a text like VS Code.
pub fn classify(text: &str) -> Classified<'_> {
    let registry = registry();
    let options = HighlightOptions::new("pl-host workflow", ThemeVariant::Single("classes"))
        .merge_whitespace(false)
        .merge_same_style_tokens(false);
    let code = registry.highlight(text, &options).unwrap();
    let mut out = Classified::unclassified(text);
    let mut at = 0;
    for (line, tokens) in text.split_inclusive('\n').zip(&code.tokens) {
        let mut start = at;
        for token in tokens {
            let ThemeVariant::Single(style) = &token.style else { panic!("the registry has one theme") };
            let blue = style.foreground.as_hex();
            let index = usize::from_str_radix(&blue[5..7], 16).unwrap();
            let end = (start + token.text.len()).min(at + line.len());
            if let Some(class) = index.checked_sub(1).and_then(|index| CLASSES.get(index)) {
                out.set(start, end, class);
            }
            start = end;
        }
        at += line.len();
    }
    out
}
