//! The syntax tree: what was written, where, with nothing resolved.

use crate::diagnostic::Place;
use crate::source::Span;

/// The blocks of the language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockKind {
    /// `workflow NAME`
    Workflow,
    /// `param NAME: TYPE = VALUE`
    Param,
    /// `plugin NAME = "PATH" { … }`
    Plugin,
    /// `model NAME = "SOURCE" { … }`
    Model,
    /// `policy NAME { … }`
    Policy,
    /// `environment NAME = PLUGIN.ITEM { … }`
    Environment,
    /// `agent NAME = PLUGIN.ITEM { … }`
    Agent,
    /// `turns { … }`
    Turns,
    /// `reward NAME = PLUGIN.ITEM { … }`
    Reward,
    /// `sandbox { … }`
    Sandbox,
    /// `inference { … }`
    Inference,
    /// `train { … }`
    Train,
    /// `evaluate NAME { … }`
    Evaluate,
    /// `lora { … }`, inside a policy.
    Lora,
    /// `grant { … }`, inside a plugin.
    Grant,
    /// `include "FILE"`
    Include,
    /// `use "FILE" as NAME`
    Use,
    /// `template NAME(…) = agent PLUGIN.ITEM { … }`
    Template,
}

impl BlockKind {
    /// The blocks that stand on their own, in the order in which a file has them.
    pub const TOP: &'static [BlockKind] = &[
        BlockKind::Workflow,
        BlockKind::Include,
        BlockKind::Use,
        BlockKind::Param,
        BlockKind::Plugin,
        BlockKind::Model,
        BlockKind::Template,
        BlockKind::Policy,
        BlockKind::Environment,
        BlockKind::Agent,
        BlockKind::Turns,
        BlockKind::Reward,
        BlockKind::Sandbox,
        BlockKind::Inference,
        BlockKind::Train,
        BlockKind::Evaluate,
    ];

    /// The word that the block begins with.
    pub fn keyword(self) -> &'static str {
        match self {
            BlockKind::Workflow => "workflow",
            BlockKind::Param => "param",
            BlockKind::Plugin => "plugin",
            BlockKind::Model => "model",
            BlockKind::Policy => "policy",
            BlockKind::Environment => "environment",
            BlockKind::Agent => "agent",
            BlockKind::Turns => "turns",
            BlockKind::Reward => "reward",
            BlockKind::Sandbox => "sandbox",
            BlockKind::Inference => "inference",
            BlockKind::Train => "train",
            BlockKind::Evaluate => "evaluate",
            BlockKind::Lora => "lora",
            BlockKind::Grant => "grant",
            BlockKind::Include => "include",
            BlockKind::Use => "use",
            BlockKind::Template => "template",
        }
    }

    pub(crate) fn from_keyword(word: &str) -> Option<Self> {
        // Asked at the beginning of every line: what can't be one is told by its first letter.
        let first = *word.as_bytes().first()?;
        let same =
            |kind: &BlockKind| kind.keyword().as_bytes().first() == Some(&first) && kind.keyword() == word;
        BlockKind::TOP.iter().copied().find(same)
    }

    /// The blocks that stand inside others.
    pub const INNER: &'static [BlockKind] = &[BlockKind::Lora, BlockKind::Grant];

    /// The block that may stand inside this one.
    pub fn inner(self) -> Option<BlockKind> {
        match self {
            BlockKind::Policy => Some(BlockKind::Lora),
            BlockKind::Plugin => Some(BlockKind::Grant),
            _ => None,
        }
    }

    pub(crate) fn inner_from_keyword(word: &str) -> Option<Self> {
        BlockKind::INNER.iter().copied().find(|kind| kind.keyword() == word)
    }

    /// Whether a name follows the keyword.
    pub(crate) fn is_named(self) -> bool {
        !matches!(
            self,
            BlockKind::Turns
                | BlockKind::Sandbox
                | BlockKind::Inference
                | BlockKind::Train
                | BlockKind::Lora
                | BlockKind::Grant
                | BlockKind::Include
        )
    }

    /// Whether a file's path follows the keyword.
    pub(crate) fn is_of_file(self) -> bool {
        matches!(self, BlockKind::Include | BlockKind::Use)
    }

    /// Whether a template can be made of it.
    pub(crate) fn is_template_kind(self) -> bool {
        matches!(self, BlockKind::Policy | BlockKind::Agent)
    }

    /// Whether the block is there, with its defaults, where it is not written.
    pub(crate) fn is_implied(self) -> bool {
        matches!(self, BlockKind::Sandbox | BlockKind::Inference)
    }

    /// Whether the block may have a `{ … }`.
    pub(crate) fn has_body(self) -> bool {
        !matches!(self, BlockKind::Workflow | BlockKind::Param) && !self.is_of_file()
    }

    /// How the block's head is written.
    pub fn form(self) -> &'static str {
        match self {
            BlockKind::Workflow => "workflow NAME",
            BlockKind::Param => "param NAME: int = 4",
            BlockKind::Plugin => "plugin NAME = \"FILE.wasm\"",
            BlockKind::Model => "model NAME = \"SOURCE\"",
            BlockKind::Policy => "policy NAME { … }",
            BlockKind::Environment => "environment NAME = PLUGIN.ITEM { … }",
            BlockKind::Agent => "agent NAME = PLUGIN.ITEM { … }",
            BlockKind::Turns => "turns { … }",
            BlockKind::Reward => "reward NAME = PLUGIN.ITEM { … }",
            BlockKind::Sandbox => "sandbox { … }",
            BlockKind::Inference => "inference { … }",
            BlockKind::Train => "train { … }",
            BlockKind::Evaluate => "evaluate NAME { … }",
            BlockKind::Lora => "lora { … }",
            BlockKind::Grant => "grant { … }",
            BlockKind::Include => "include \"FILE.mas\"",
            BlockKind::Use => "use \"FILE.mas\" as NAME",
            BlockKind::Template => "template NAME(topic: string) = agent PLUGIN.ITEM { … }",
        }
    }
}

/// A name and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub text: String,
    pub place: Place,
}

/// What names mean in a part of the tree: which file's they are, and what a template was given. An index into the
/// scope's surroundings; 0 is the workflow file itself.
pub(crate) type SpaceId = usize;

#[derive(Debug, Default)]
pub(crate) struct File {
    pub blocks: Vec<Block>,
    /// `layout = …`, as often as it stands.
    pub layouts: Vec<(Name, Value)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub kind: BlockKind,
    pub keyword: Span,
    /// The whole line of the head, for the wider context of a message.
    pub head: Span,
    /// None in a nameless block, and where the head could not be read.
    pub name: Option<Name>,
    /// What stands behind the head's `=`, or behind `include` and `use`.
    pub value: Option<Value>,
    /// What a param or a template has besides.
    pub more: Option<Box<More>>,
    pub body: Body,
    /// False: the head could not be read, which is reported already.
    pub sound: bool,
    /// What the names in its head mean.
    pub space: SpaceId,
    /// It is of a file that this one uses: only if something needs it does it count.
    pub imported: bool,
}

/// Parts of heads that few blocks have.
#[derive(Debug, Clone)]
pub(crate) enum More {
    Param {
        of_type: Type,
        range: Option<Range>,
    },
    Template {
        /// The word behind the `=`: what is made of it.
        made: Name,
        parameters: Vec<Parameter>,
    },
}

/// The `int` of `param samples: int`, and the two words of `list(int)`.
#[derive(Debug, Clone)]
pub(crate) struct Type {
    pub name: Name,
    pub of: Option<Name>,
}

/// Behind `in`.
#[derive(Debug, Clone)]
pub(crate) enum Range {
    /// `2..64`, both included.
    Between(Value, Value),
    /// A list of what is allowed.
    Among(Value),
}

/// `topic: string = "sums"` in a template's head.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub name: Name,
    pub of_type: Type,
    pub default: Option<Value>,
}

impl Block {
    /// What to point at for something that the block lacks.
    pub fn place(&self) -> Place {
        self.name.as_ref().map_or(Place::At(self.keyword), |name| name.place)
    }

    /// The block in words, such as ``agent `tool` ``.
    pub fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("{} `{}`", self.kind.keyword(), name.text),
            None => format!("`{}`", self.kind.keyword()),
        }
    }
}

/// What stands between a block's braces; empty where there are none.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub entries: Vec<Entry>,
    /// False: something in it could not be read (and is reported already), so that what seems to be missing
    /// may well be there.
    pub complete: bool,
}

impl Body {
    /// Without anything, as where no braces are written.
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
    /// What the names in the value mean: a template's settings are not of the file where it is used.
    pub space: SpaceId,
}

/// `a -> [b, c] -> end when condition`
#[derive(Debug, Clone)]
pub(crate) struct EdgeLine {
    /// Two or more.
    pub stops: Vec<Stop>,
    pub when: Option<Value>,
}

#[derive(Debug, Clone)]
pub(crate) struct Stop {
    pub names: Vec<Name>,
    pub span: Span,
}

/// An expression.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub kind: ValueKind,
    pub place: Place,
}

#[derive(Debug, Clone)]
pub(crate) enum ValueKind {
    /// Unescaped.
    Text(String),
    /// `"a ${b} c"`: its parts in order, texts among them.
    Joined(Vec<Value>),
    Boolean(bool),
    /// As written, its unit included.
    Number(String),
    List(Vec<Value>),
    /// One or more names with dots between them.
    Path(Vec<String>),
    /// `max(a, b)`, `expert(topic = "sums")`
    Call(Box<Call>),
    /// `topics[0]`: the list and the position.
    Index(Box<(Value, Value)>),
    Negative(Box<Value>),
    Not(Box<Value>),
    /// Two or more.
    All(Vec<Value>),
    /// Two or more.
    Any(Vec<Value>),
    Compare(crate::workflow::Comparison, Box<(Value, Value)>),
    /// `a + b - c`, `a * b / c`, from left to right.
    Row(Box<Value>, Vec<(Operator, Value)>),
    Choice(Box<Choice>),
    /// From outside: read as soon as it is known what is wanted.
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
    /// Condition and what holds under it; one or more.
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
    /// Calls `visit` with every path in the value.
    pub fn paths<'v>(&'v self, visit: &mut impl FnMut(&'v [String], Place)) {
        self.each(&mut |value| match &value.kind {
            ValueKind::Path(names) => visit(names, value.place),
            ValueKind::Call(call) => visit(std::slice::from_ref(&call.name.text), call.name.place),
            _ => {}
        });
    }

    /// Calls `visit` with the value and every value in it.
    pub fn each<'v>(&'v self, visit: &mut impl FnMut(&'v Value)) {
        // A stack of its own: the tree is as wide as the text allows.
        let mut waiting = vec![self];
        while let Some(value) = waiting.pop() {
            visit(value);
            match &value.kind {
                ValueKind::Path(_)
                | ValueKind::Text(_)
                | ValueKind::Boolean(_)
                | ValueKind::Number(_)
                | ValueKind::Raw(_) => {}
                ValueKind::Joined(values)
                | ValueKind::List(values)
                | ValueKind::All(values)
                | ValueKind::Any(values) => waiting.extend(values),
                ValueKind::Call(call) => {
                    waiting.extend(call.arguments.iter().map(|argument| &argument.value));
                }
                ValueKind::Negative(inner) | ValueKind::Not(inner) => waiting.push(inner),
                ValueKind::Index(two) | ValueKind::Compare(_, two) => waiting.extend([&two.0, &two.1]),
                ValueKind::Row(first, rest) => {
                    waiting.push(first);
                    waiting.extend(rest.iter().map(|(_, value)| value));
                }
                ValueKind::Choice(choice) => {
                    waiting.extend(choice.branches.iter().flat_map(|(when, then)| [when, then]));
                    waiting.push(&choice.otherwise);
                }
            }
        }
    }
}
