//! The syntax tree: statements with their locations, before names are resolved.

use super::block_kind::BlockKind;
use crate::source::Location;
use crate::source::Span;

/// A name and its location.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub text: String,
    pub location: Location,
}

/// Index of the namespace in which names of a part of the tree are looked up: that of a file, or that of one use of a
/// template. 0 is the workflow file itself.
pub(crate) type NamespaceId = usize;

#[derive(Debug, Default)]
pub(crate) struct File {
    pub blocks: Vec<Block>,
    /// Every `layout = …`, including repeated ones.
    pub layouts: Vec<(Name, Value)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub kind: BlockKind,
    pub keyword: Span,
    /// The whole head, shown as context of a message.
    pub head: Span,
    /// `None` in a nameless block, and if the head could not be parsed.
    pub name: Option<Name>,
    /// Value after the head's `=`, or path after `include` and `use`.
    pub value: Option<Value>,
    /// Parts that only params and templates have.
    pub extra: Option<Box<HeadExtra>>,
    pub body: Body,
    /// False if the head could not be parsed; the error was already reported.
    pub sound: bool,
    /// Namespace of the names in its head.
    pub namespace: NamespaceId,
    /// True if it comes from a file named by `use`: it is dropped unless something refers to it.
    pub imported: bool,
}

/// Parts of the head that only params and templates have.
#[derive(Debug, Clone)]
pub(crate) enum HeadExtra {
    Param {
        ty: TypeName,
        range: Option<ParamRange>,
    },
    Template {
        /// Keyword after the `=`: the kind of block that the template makes.
        target: Name,
        parameters: Vec<Parameter>,
    },
}

/// The `int` of `param samples: int`, and the two words of `list(int)`.
#[derive(Debug, Clone)]
pub(crate) struct TypeName {
    pub name: Name,
    pub element: Option<Name>,
}

/// Allowed values of a param, after `in`.
#[derive(Debug, Clone)]
pub(crate) enum ParamRange {
    /// `2..64`, including both ends.
    Between(Value, Value),
    /// List of the allowed values.
    OneOf(Value),
}

/// `topic: string = "sums"` in a template's head.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub name: Name,
    pub ty: TypeName,
    pub default: Option<Value>,
}

impl Block {
    /// Location to report for a missing part of the block.
    pub fn location(&self) -> Location {
        self.name.as_ref().map_or(Location::Span(self.keyword), |name| name.location)
    }

    /// Returns the location of a setting's value. Returns that of the block for a setting that isn't written.
    pub fn setting_location(&self, key: &str) -> Location {
        let written = self.body.entries.iter().find_map(|entry| match entry {
            Entry::Setting(setting) if setting.key.text == key => Some(setting.value.location),
            _ => None,
        });
        written.unwrap_or(self.location())
    }

    /// Returns the first inner block of a kind, with its name.
    pub fn inner(&self, kind: BlockKind) -> Option<(&Name, &Body)> {
        self.body.entries.iter().find_map(|entry| match entry {
            Entry::Nested { name, body } if name.text == kind.keyword() => Some((name, body)),
            _ => None,
        })
    }

    /// Returns the name of the block in messages, such as ``agent `tool` ``.
    pub fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("{} `{}`", self.kind.keyword(), name.text),
            None => format!("`{}`", self.kind.keyword()),
        }
    }
}

/// Entries between the braces of a block; empty if it has no braces.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub entries: Vec<Entry>,
    /// False if an error in it was already reported: an entry that seems to be missing may be there.
    pub complete: bool,
}

impl Body {
    /// Returns the body of a block without braces.
    pub fn empty() -> Self {
        Body { entries: Vec::new(), complete: true }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Setting(Setting),
    /// `lora { … }`
    Nested {
        name: Name,
        body: Body,
    },
    Edge(EdgeLine),
}

/// `key = value`
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub key: Name,
    pub value: Value,
    /// The braces of `async { staleness = 2 }`.
    pub body: Option<Span>,
    /// Namespace of the names in the value: those of a template's settings belong to the file that declares it.
    pub namespace: NamespaceId,
}

/// `a -> [b, c] -> end when condition`
#[derive(Debug, Clone)]
pub(crate) struct EdgeLine {
    /// Two or more.
    pub nodes: Vec<NodeRef>,
    pub when: Option<Value>,
}

/// `a` or `[a, b]` in an edge line.
#[derive(Debug, Clone)]
pub(crate) struct NodeRef {
    pub names: Vec<Name>,
    pub span: Span,
}

/// An expression.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub kind: ValueKind,
    pub location: Location,
}

#[derive(Debug, Clone)]
pub(crate) enum ValueKind {
    /// Unescaped.
    Text(String),
    /// `"a ${b} c"`: its parts in order, including the plain text.
    Joined(Vec<Value>),
    Boolean(bool),
    /// Includes the unit, as written.
    Number(String),
    List(Vec<Value>),
    /// One or more names, separated by dots.
    Path(Vec<String>),
    /// `max(a, b)`, `expert(topic = "sums")`
    Call(Box<Call>),
    /// `topics[0]`: the list and the index.
    Index(Box<(Value, Value)>),
    Negative(Box<Value>),
    Not(Box<Value>),
    /// Two or more.
    All(Vec<Value>),
    /// Two or more.
    Any(Vec<Value>),
    Compare(crate::workflow::Comparison, Box<(Value, Value)>),
    /// `a + b - c`, `a * b / c`, from left to right.
    Arithmetic(Box<Value>, Vec<(Operator, Value)>),
    Choice(Box<Choice>),
    /// Given by an override: parsed once the expected type is known.
    Raw(String),
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub name: Name,
    pub arguments: Vec<Argument>,
}

#[derive(Debug, Clone)]
pub(crate) struct Argument {
    pub name: Option<Name>,
    pub value: Value,
}

/// `if a then b else if c then d else e`
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// Conditions and their values; one or more.
    pub branches: Vec<(Value, Value)>,
    pub otherwise: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Plus,
    Minus,
    Times,
    Divided,
    Remainder,
}

impl Operator {
    pub fn sign(self) -> &'static str {
        match self {
            Operator::Plus => "+",
            Operator::Minus => "-",
            Operator::Times => "*",
            Operator::Divided => "/",
            Operator::Remainder => "%",
        }
    }
}

impl Value {
    /// Calls `visit` with every path and every called name in the value.
    pub fn paths<'v>(&'v self, visit: &mut impl FnMut(&'v [String], Location)) {
        self.visit_all(&mut |value| match &value.kind {
            ValueKind::Path(names) => visit(names, value.location),
            ValueKind::Call(call) => visit(std::slice::from_ref(&call.name.text), call.name.location),
            _ => {}
        });
    }

    /// Calls `visit` with the value and every value inside it.
    pub fn visit_all<'v>(&'v self, visit: &mut impl FnMut(&'v Value)) {
        // An explicit stack: the tree is as wide as the text allows.
        let mut waiting = vec![self];
        while let Some(value) = waiting.pop() {
            visit(value);
            value.children(&mut |child| waiting.push(child));
        }
    }

    /// Calls `visit` with every value directly inside the value.
    pub fn children<'v>(&'v self, visit: &mut impl FnMut(&'v Value)) {
        match &self.kind {
            ValueKind::Path(_)
            | ValueKind::Text(_)
            | ValueKind::Boolean(_)
            | ValueKind::Number(_)
            | ValueKind::Raw(_) => {}
            ValueKind::Joined(values)
            | ValueKind::List(values)
            | ValueKind::All(values)
            | ValueKind::Any(values) => values.iter().for_each(visit),
            ValueKind::Call(call) => call.arguments.iter().for_each(|argument| visit(&argument.value)),
            ValueKind::Negative(inner) | ValueKind::Not(inner) => visit(inner),
            ValueKind::Index(two) | ValueKind::Compare(_, two) => {
                visit(&two.0);
                visit(&two.1);
            }
            ValueKind::Arithmetic(first, rest) => {
                visit(first);
                rest.iter().for_each(|(_, value)| visit(value));
            }
            ValueKind::Choice(choice) => {
                for (when, then) in &choice.branches {
                    visit(when);
                    visit(then);
                }
                visit(&choice.otherwise);
            }
        }
    }
}
