//! Circles of imports: the modules of a crate must import each other in one direction.
//!
//! The sources are read as tokens. An import is a path that starts with `crate` or `super`, in a `use` or elsewhere. It
//! leads to the deepest module that it names, or to the module from which the crate's root exports the name. A module and
//! those inside it may import each other. Items with `#[cfg(test)]` don't count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

use super::metadata;

/// Path of a module in its crate; empty for the root.
type Module = Vec<String>;

/// Names of a path such as `crate::a::B`.
type Names = Vec<String>;

const TEST_ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

/// Splits Rust into words, `::` and other characters, without comments, literals and whitespace.
fn tokens(source: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    flatten(source.parse().unwrap(), &mut tokens);
    tokens
}

fn flatten(stream: TokenStream, tokens: &mut Vec<String>) {
    let mut stream = stream.into_iter();
    while let Some(tree) = stream.next() {
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::None => ("", ""),
                };
                tokens.push(open.to_owned());
                flatten(group.stream(), tokens);
                tokens.push(close.to_owned());
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' && punct.spacing() == Spacing::Joint => {
                stream.next();
                tokens.push("::".to_owned());
            }
            // Comments of documentation are attributes with a literal.
            TokenTree::Literal(_) => {}
            other => tokens.push(other.to_string()),
        }
    }
}

/// Removes items with `#[cfg(test)]`. Adds the names of those that are modules to `test_modules`.
fn without_tests(tokens: &[String], test_modules: &mut Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut cursor = 0;
    while cursor < tokens.len() {
        let following = tokens[cursor..].iter().map(String::as_str).take(TEST_ATTRIBUTE.len());
        if !following.eq(TEST_ATTRIBUTE) {
            kept.push(tokens[cursor].clone());
            cursor += 1;
            continue;
        }
        let end = (cursor..tokens.len()).find(|index| matches!(tokens[*index].as_str(), ";" | "{"));
        let Some(end) = end else { break };
        let module = tokens[cursor..end].windows(2).find(|pair| pair[0] == "mod");
        test_modules.extend(module.map(|pair| pair[1].clone()));
        cursor = if tokens[end] == "{" { closing_brace(tokens, end) + 1 } else { end + 1 };
    }
    kept
}

fn closing_brace(tokens: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index;
        }
    }
    tokens.len()
}

/// Returns the paths of all `use` declarations, and the paths elsewhere that start with `crate` or `super`.
fn imports(tokens: &[String]) -> Vec<Names> {
    let mut found = Vec::new();
    let mut cursor = 0;
    while cursor < tokens.len() {
        let next = tokens.get(cursor + 1).map_or("", String::as_str);
        match tokens[cursor].as_str() {
            // Not `impl Trait + use<>`.
            "use" if next != "<" => {
                cursor += 1;
                read_use(tokens, &mut cursor, &[], &mut found);
            }
            "crate" | "super" if next == "::" => {
                let mut path = vec![tokens[cursor].clone()];
                while cursor + 2 < tokens.len() && tokens[cursor + 1] == "::" {
                    path.push(tokens[cursor + 2].clone());
                    cursor += 2;
                }
                found.push(path);
                cursor += 1;
            }
            _ => cursor += 1,
        }
    }
    found
}

/// Reads a tree of a `use` declaration up to its `,`, `}` or `;`.
fn read_use(tokens: &[String], cursor: &mut usize, prefix: &[String], found: &mut Vec<Names>) {
    let mut path = prefix.to_vec();
    while *cursor < tokens.len() {
        match tokens[*cursor].as_str() {
            "::" => *cursor += 1,
            "as" => *cursor += 2,
            "," | "}" | ";" => break,
            "{" => {
                *cursor += 1;
                loop {
                    match tokens.get(*cursor).map(String::as_str) {
                        Some(",") => *cursor += 1,
                        Some("}") => {
                            *cursor += 1;
                            return;
                        }
                        Some(";") | None => return,
                        Some(_) => read_use(tokens, cursor, &path, found),
                    }
                }
            }
            name => {
                path.push(name.to_owned());
                *cursor += 1;
            }
        }
    }
    found.push(path);
}

/// Adds the tokens of all modules below a folder.
fn read_folder(folder: &Path, module: &[String], found: &mut BTreeMap<Module, Vec<String>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let mut inner = module.to_vec();
        if path.is_dir() {
            // Each file of `src/bin` is a crate.
            if !(module.is_empty() && name == "bin") {
                inner.push(name);
                read_folder(&path, &inner, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let is_own = name == "mod" || (module.is_empty() && (name == "lib" || name == "main"));
            if !is_own {
                inner.push(name);
            }
            found.entry(inner).or_default().extend(tokens(&std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Modules of a crate, with the paths that they import.
struct Imports(BTreeMap<Module, Vec<Names>>);

impl Imports {
    fn new(sources: &BTreeMap<Module, Vec<String>>) -> Imports {
        let mut tests: Vec<Module> = Vec::new();
        let mut modules = BTreeMap::new();
        for (module, tokens) in sources {
            let mut names = Vec::new();
            let kept = without_tests(tokens, &mut names);
            tests.extend(names.into_iter().map(|name| {
                let mut inner = module.clone();
                inner.push(name);
                inner
            }));
            modules.insert(module.clone(), imports(&kept));
        }
        modules.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        Imports(modules)
    }

    /// Returns the deepest module on a path that starts in a module.
    fn deepest(&self, start: &[String], names: &[String]) -> Module {
        let mut module = start.to_vec();
        for name in names {
            module.push(name.clone());
            if !self.0.contains_key(&module) {
                module.pop();
                break;
            }
        }
        module
    }

    /// Returns the module that a path leads to. Returns `None` for other crates and for the root.
    fn target(&self, from: &[String], path: &[String]) -> Option<Module> {
        let mut rest = path;
        let mut start = Module::new();
        match path.first()?.as_str() {
            "crate" => rest = &rest[1..],
            "super" => {
                start = from.to_vec();
                while rest.first().is_some_and(|name| name == "super") {
                    start.pop();
                    rest = &rest[1..];
                }
            }
            _ => return None,
        }
        let module = self.deepest(&start, rest);
        if !module.is_empty() {
            return Some(module);
        }
        let name = rest.first()?;
        let exports = self.0.get(&Module::new())?;
        let export = exports.iter().find(|path| path.len() > 1 && path.last() == Some(name))?;
        let skipped = usize::from(export[0] == "crate" || export[0] == "self");
        Some(self.deepest(&[], &export[skipped..])).filter(|module| !module.is_empty())
    }

    /// Returns the modules of circles, with those between two circles, and the modules among them that each imports.
    fn circles(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let mut edges: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (module, paths) in &self.0 {
            let targets = paths.iter().filter_map(|path| self.target(module, path));
            let is_apart = |other: &Module| !other.starts_with(module) && !module.starts_with(other);
            edges.insert(module.clone(), targets.filter(is_apart).collect());
        }
        loop {
            let count = edges.len();
            let imported: BTreeSet<Module> = edges.values().flatten().cloned().collect();
            edges.retain(|module, targets| !targets.is_empty() && imported.contains(module));
            let left: BTreeSet<Module> = edges.keys().cloned().collect();
            edges.values_mut().for_each(|targets| targets.retain(|target| left.contains(target)));
            if edges.len() == count {
                return edges;
            }
        }
    }
}

#[test]
fn modules_import_each_other_in_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let metadata = metadata(root).unwrap();
    for package in metadata["packages"].as_array().unwrap() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).with_file_name("src");
        if !folder.is_dir() {
            continue;
        }
        let mut sources = BTreeMap::new();
        read_folder(&folder, &[], &mut sources);
        let circles = Imports::new(&sources).circles();
        let lines = circles.iter().flat_map(|(module, targets)| {
            targets.iter().map(|target| format!("{} imports {}", module.join("::"), target.join("::")))
        });
        let lines: Vec<String> = lines.collect();
        assert!(lines.is_empty(), "{} has a circle of imports:\n{}", folder.display(), lines.join("\n"));
    }
}

#[test]
fn a_circle_is_found_and_tests_and_children_do_not_count() {
    let sources = |a: &str| {
        [
            ("", "mod a; mod b; pub use b::Exported;"),
            ("a", a),
            ("b", "//! Uses `crate::a`.\nuse std::{fmt, io}; mod inner; fn f() { let _ = \"crate::a\"; }"),
            ("b::inner", "use super::super::a::X as Y; use super::f;"),
        ]
        .into_iter()
        .map(|(name, text)| {
            (name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect(), tokens(text))
        })
        .collect::<BTreeMap<Module, Vec<String>>>()
    };
    let circle = |a: &str| Imports::new(&sources(a)).circles().into_keys().map(|module| module.join("::"));
    assert_eq!(circle("use crate::{b::{inner::{self, Z}}, c};").collect::<Vec<_>>(), ["a", "b::inner"]);
    assert_eq!(circle("fn g() -> crate::b::inner::Z {}").count(), 2);
    // `b` imports nothing.
    assert_eq!(circle("use crate::Exported;").count(), 0);
    assert_eq!(circle("#[cfg(test)]\nmod tests { use crate::b::inner::Z; }").count(), 0);
}
