//! The blocks of the language.

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
    /// `server NAME = "http://HOST:PORT" { … }`
    Server,
    /// `corpus NAME = "FILE" { … }`
    Corpus,
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
    /// `designer NAME = std.designer { … }`
    Designer,
    /// `scenario NAME { … }`
    Scenario,
    /// `mix { SCENARIO = WEIGHT }`
    Mix,
    /// `sandbox { … }`
    Sandbox,
    /// `inference { … }`
    Inference,
    /// `devices { … }`
    Devices,
    /// `cluster { … }`
    Cluster,
    /// `train { … }`
    Train,
    /// `evaluate NAME { … }`
    Evaluate,
    /// `lora { … }`, inside a policy.
    Lora,
    /// `train { … }`, inside a policy.
    PolicyTrain,
    /// `critic { … }`, inside a policy.
    Critic,
    /// `devices { … }`, inside a policy.
    PolicyDevices,
    /// `curriculum { … }`, inside an environment.
    Curriculum,
    /// `roles { … }`, inside an evaluation.
    Roles,
    /// `grant { … }`, inside a plugin.
    Grant,
    /// `palette { … }`, inside a designer.
    Palette,
    /// `include "FILE"`
    Include,
    /// `use "FILE" as NAME`
    Use,
    /// `template NAME(…) = agent PLUGIN.ITEM { … }`
    Template,
}

impl BlockKind {
    /// Top-level blocks, in their usual order in a file.
    pub const TOP: &'static [BlockKind] = &[
        BlockKind::Workflow,
        BlockKind::Include,
        BlockKind::Use,
        BlockKind::Param,
        BlockKind::Plugin,
        BlockKind::Model,
        BlockKind::Server,
        BlockKind::Corpus,
        BlockKind::Template,
        BlockKind::Policy,
        BlockKind::Environment,
        BlockKind::Agent,
        BlockKind::Turns,
        BlockKind::Reward,
        BlockKind::Designer,
        BlockKind::Scenario,
        BlockKind::Mix,
        BlockKind::Sandbox,
        BlockKind::Inference,
        BlockKind::Devices,
        BlockKind::Cluster,
        BlockKind::Train,
        BlockKind::Evaluate,
    ];

    /// Returns the word that the block begins with.
    pub fn keyword(self) -> &'static str {
        match self {
            BlockKind::Workflow => "workflow",
            BlockKind::Param => "param",
            BlockKind::Plugin => "plugin",
            BlockKind::Model => "model",
            BlockKind::Server => "server",
            BlockKind::Corpus => "corpus",
            BlockKind::Policy => "policy",
            BlockKind::Environment => "environment",
            BlockKind::Agent => "agent",
            BlockKind::Turns => "turns",
            BlockKind::Reward => "reward",
            BlockKind::Designer => "designer",
            BlockKind::Scenario => "scenario",
            BlockKind::Mix => "mix",
            BlockKind::Sandbox => "sandbox",
            BlockKind::Inference => "inference",
            BlockKind::Devices | BlockKind::PolicyDevices => "devices",
            BlockKind::Cluster => "cluster",
            BlockKind::Train | BlockKind::PolicyTrain => "train",
            BlockKind::Evaluate => "evaluate",
            BlockKind::Lora => "lora",
            BlockKind::Critic => "critic",
            BlockKind::Curriculum => "curriculum",
            BlockKind::Roles => "roles",
            BlockKind::Grant => "grant",
            BlockKind::Palette => "palette",
            BlockKind::Include => "include",
            BlockKind::Use => "use",
            BlockKind::Template => "template",
        }
    }

    pub(crate) fn from_keyword(word: &str) -> Option<Self> {
        // Called for every line: compare the first letter before the whole word.
        let first = *word.as_bytes().first()?;
        let same =
            |kind: &BlockKind| kind.keyword().as_bytes().first() == Some(&first) && kind.keyword() == word;
        BlockKind::TOP.iter().copied().find(same)
    }

    /// Blocks inside other blocks.
    pub const INNER: &'static [BlockKind] = &[
        BlockKind::Lora,
        BlockKind::PolicyTrain,
        BlockKind::Critic,
        BlockKind::PolicyDevices,
        BlockKind::Grant,
        BlockKind::Curriculum,
        BlockKind::Palette,
        BlockKind::Roles,
    ];

    /// Returns the kinds of blocks that may be nested in this one.
    pub fn inner(self) -> &'static [BlockKind] {
        match self {
            BlockKind::Policy => {
                &[BlockKind::Lora, BlockKind::PolicyTrain, BlockKind::Critic, BlockKind::PolicyDevices]
            }
            BlockKind::Plugin => &[BlockKind::Grant],
            BlockKind::Environment => &[BlockKind::Curriculum],
            BlockKind::Designer => &[BlockKind::Palette],
            BlockKind::Scenario => &[BlockKind::Turns],
            BlockKind::Evaluate => &[BlockKind::Roles],
            _ => &[],
        }
    }

    /// Returns the kind of nested block with this keyword.
    pub fn inner_block(self, keyword: &str) -> Option<BlockKind> {
        self.inner().iter().copied().find(|kind| kind.keyword() == keyword)
    }

    /// Keyword, after that of the enclosing block if another block has the same: `train` and `policy.train`.
    pub fn full_keyword(self) -> &'static str {
        match self {
            BlockKind::PolicyTrain => "policy.train",
            BlockKind::PolicyDevices => "policy.devices",
            other => other.keyword(),
        }
    }

    /// True if a name follows the keyword.
    pub(crate) fn is_named(self) -> bool {
        !matches!(
            self,
            BlockKind::Turns
                | BlockKind::Mix
                | BlockKind::Sandbox
                | BlockKind::Inference
                | BlockKind::Devices
                | BlockKind::Cluster
                | BlockKind::Train
                | BlockKind::Lora
                | BlockKind::PolicyTrain
                | BlockKind::Critic
                | BlockKind::PolicyDevices
                | BlockKind::Grant
                | BlockKind::Curriculum
                | BlockKind::Palette
                | BlockKind::Roles
                | BlockKind::Include
        )
    }

    /// True if the path of a file follows the keyword.
    pub(crate) fn names_file(self) -> bool {
        matches!(self, BlockKind::Include | BlockKind::Use)
    }

    /// True if a template can make this kind of block.
    pub(crate) fn is_template_kind(self) -> bool {
        matches!(self, BlockKind::Policy | BlockKind::Agent)
    }

    /// True if a file without this block has it with its defaults.
    pub(crate) fn is_implied(self) -> bool {
        matches!(self, BlockKind::Sandbox | BlockKind::Inference | BlockKind::Devices)
    }

    /// True if the block may have a `{ … }`.
    pub(crate) fn has_body(self) -> bool {
        !matches!(self, BlockKind::Workflow | BlockKind::Param) && !self.names_file()
    }

    /// Returns an example of the block's head.
    pub fn form(self) -> &'static str {
        match self {
            BlockKind::Workflow => "workflow NAME",
            BlockKind::Param => "param NAME: int = 4",
            BlockKind::Plugin => "plugin NAME = \"FILE.wasm\"",
            BlockKind::Model => "model NAME = \"SOURCE\"",
            BlockKind::Server => "server NAME = \"http://HOST:PORT\"",
            BlockKind::Corpus => "corpus NAME = \"FILE\"",
            BlockKind::Policy => "policy NAME { … }",
            BlockKind::Environment => "environment NAME = PLUGIN.ITEM { … }",
            BlockKind::Agent => "agent NAME = PLUGIN.ITEM { … }",
            BlockKind::Turns => "turns { … }",
            BlockKind::Reward => "reward NAME = PLUGIN.ITEM { … }",
            BlockKind::Designer => {
                "designer NAME = std.designer { policy = NAME; palette { agents = [std.chat]; policies = [NAME] } }"
            }
            BlockKind::Scenario => "scenario NAME { environment = NAME; reward = NAME; turns { … } }",
            BlockKind::Mix => "mix { SCENARIO = WEIGHT }",
            BlockKind::Sandbox => "sandbox { … }",
            BlockKind::Inference => "inference { … }",
            BlockKind::Devices | BlockKind::PolicyDevices => "devices { … }",
            BlockKind::Cluster => "cluster { nats = \"nats://HOST:4222\" }",
            BlockKind::Train | BlockKind::PolicyTrain => "train { … }",
            BlockKind::Evaluate => "evaluate NAME { … }",
            BlockKind::Lora => "lora { … }",
            BlockKind::Critic => "critic { … }",
            BlockKind::Curriculum => "curriculum { from = 1; to = 5 }",
            BlockKind::Roles => "roles { AGENT = POLICY }",
            BlockKind::Grant => "grant { … }",
            BlockKind::Palette => "palette { agents = [std.chat]; policies = [NAME] }",
            BlockKind::Include => "include \"FILE.mas\"",
            BlockKind::Use => "use \"FILE.mas\" as NAME",
            BlockKind::Template => "template NAME(topic: string) = agent PLUGIN.ITEM { … }",
        }
    }
}
