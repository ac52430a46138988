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
}

impl BlockKind {
    /// The blocks that stand on their own, in the order in which a file has them.
    pub const TOP: &'static [BlockKind] = &[
        BlockKind::Workflow,
        BlockKind::Param,
        BlockKind::Plugin,
        BlockKind::Model,
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
        }
    }

    pub(crate) fn from_keyword(word: &str) -> Option<Self> {
        BlockKind::TOP.iter().copied().find(|kind| kind.keyword() == word)
    }

    /// Whether a name follows the keyword.
    pub(crate) fn is_named(self) -> bool {
        !matches!(
            self,
            BlockKind::Turns | BlockKind::Sandbox | BlockKind::Inference | BlockKind::Train | BlockKind::Lora
        )
    }

    /// Whether the block is there, with its defaults, where it is not written.
    pub(crate) fn is_implied(self) -> bool {
        matches!(self, BlockKind::Sandbox | BlockKind::Inference)
    }

    /// Whether the block may have a `{ … }`.
    pub(crate) fn has_body(self) -> bool {
        !matches!(self, BlockKind::Workflow | BlockKind::Param)
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
        }
    }
}

/// A name and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub text: String,
    pub place: Place,
}

#[derive(Debug)]
pub(crate) struct File {
    pub blocks: Vec<Block>,
    /// `layout = …`, as often as it stands.
    pub layouts: Vec<(Name, Value)>,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub kind: BlockKind,
    pub keyword: Span,
    /// None in a nameless block, and where the head could not be read.
    pub name: Option<Name>,
    /// The `int` of `param samples: int`.
    pub of_type: Option<Name>,
    /// What stands behind the head's `=`.
    pub value: Option<Value>,
    pub body: Body,
    /// False: the head could not be read, which is reported already.
    pub sound: bool,
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
#[derive(Debug)]
pub(crate) struct Body {
    pub entries: Vec<Entry>,
    /// False: something in it could not be read (and is reported already), so that what seems to be missing
    /// may well be there.
    pub complete: bool,
}

#[derive(Debug)]
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
#[derive(Debug)]
pub(crate) struct Setting {
    pub key: Name,
    pub value: Value,
    /// The braces of `async { staleness = 2 }`.
    pub body: Option<Span>,
}

/// `a -> [b, c] -> end when condition`
#[derive(Debug)]
pub(crate) struct EdgeLine {
    /// Two or more.
    pub stops: Vec<Stop>,
    pub when: Option<Expression>,
}

#[derive(Debug)]
pub(crate) struct Stop {
    pub names: Vec<Name>,
    pub span: Span,
}

#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub kind: ValueKind,
    pub place: Place,
}

#[derive(Debug, Clone)]
pub(crate) enum ValueKind {
    /// Unescaped.
    Text(String),
    Boolean(bool),
    /// As written, its unit included.
    Number(String),
    List(Vec<Value>),
    /// One or more names with dots between them.
    Path(Vec<String>),
    /// From `--set`: read as soon as it is known what is wanted.
    Raw(String),
}

/// The right-hand side of `when`.
#[derive(Debug)]
pub(crate) struct Expression {
    pub kind: ExpressionKind,
    pub span: Span,
}

#[derive(Debug)]
pub(crate) enum ExpressionKind {
    Value(Value),
    Not(Box<Expression>),
    /// Two or more.
    All(Vec<Expression>),
    /// Two or more.
    Any(Vec<Expression>),
    Compare(crate::workflow::Comparison, Box<(Expression, Expression)>),
}
