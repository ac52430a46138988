//! Diagnostics of the check, with stable codes. [`render`] converts them to text and JSON.

pub mod render;
pub(crate) mod reports;
pub(crate) mod spelling;

use std::fmt;

use crate::source::{Location, Span};

macro_rules! codes {
    ($($name:ident = $text:literal, $title:literal;)+) => {
        /// Stable code of a kind of mistake. The meaning of a code never changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DiagnosticCode {
            $(#[doc = $title] $name,)+
        }

        impl DiagnosticCode {
            /// All codes in order.
            pub const ALL: &'static [DiagnosticCode] = &[$(DiagnosticCode::$name),+];

            /// Code as it is shown in messages, such as `MAS0012`.
            pub fn as_str(self) -> &'static str {
                match self { $(DiagnosticCode::$name => $text,)+ }
            }

            /// One-line description of the code.
            pub fn title(self) -> &'static str {
                match self { $(DiagnosticCode::$name => $title,)+ }
            }

            /// Explanation with an example of the mistake and of its correction, in Markdown, from a file in `explain/`.
            pub fn page(self) -> &'static str {
                match self { $(DiagnosticCode::$name => include_str!(concat!("../explain/", $text, ".md")),)+ }
            }
        }
    };
}

codes! {
    Syntax = "MAS0001", "Syntax error.";
    Unclosed = "MAS0002", "A bracket or a text is not closed, or not opened.";
    TooDeep = "MAS0003", "Brackets are nested too deeply.";
    UnknownBlock = "MAS0004", "Unknown block.";
    Duplicate = "MAS0005", "Two blocks have the same name, or a unique block appears twice.";
    MissingBlock = "MAS0006", "A required block is missing.";
    UnknownSetting = "MAS0007", "The block has no such setting.";
    SettingTwice = "MAS0008", "A setting is set twice.";
    MissingSetting = "MAS0009", "A setting without a default is missing.";
    WrongType = "MAS0010", "A value has the wrong type or unit.";
    OutOfRange = "MAS0011", "A value is outside its range.";
    UnknownName = "MAS0012", "A name is not declared.";
    UnknownChoice = "MAS0013", "A value is not one of the words that the setting accepts.";
    NotSupported = "MAS0014", "Parts of the language can't be used together yet.";
    Reserved = "MAS0015", "The name is reserved.";
    PluginFailed = "MAS0016", "A plugin can't be loaded.";
    UnknownItem = "MAS0017", "The plugin offers no such item.";
    WrongItemKind = "MAS0018", "The plugin's item is of another kind.";
    ItemSetting = "MAS0019", "A setting doesn't match the declaration of the plugin's item.";
    UnknownFact = "MAS0020", "The environment reports no such fact.";
    ConditionType = "MAS0021", "A condition has a type error.";
    Unreachable = "MAS0022", "A node can't be reached from `start`.";
    NoWayOut = "MAS0023", "The turns never reach `end`.";
    NeverTaken = "MAS0024", "An edge follows one that is always taken.";
    NoWayOn = "MAS0025", "The turns can reach a node without an edge to continue.";
    AgentNotReached = "MAS0026", "An agent is not part of the turns.";
    BadEdge = "MAS0027", "An edge is invalid.";
    Unused = "MAS0028", "A declaration is never used.";
    TooFewSamples = "MAS0029", "A group of one completion has nothing to compare.";
    LayoutDiffers = "MAS0030", "The layout differs from the asserted one.";
    BadOverride = "MAS0031", "A `--set` doesn't match the file.";
    NothingToTrain = "MAS0032", "The `train` block has no policy to train.";
    GreedyTraining = "MAS0033", "A trained agent samples greedily, so all completions of a group are identical.";
    OtherTasks = "MAS0034", "An evaluation uses tasks from another source than training.";
    BadSetting = "MAS0035", "Two settings exclude each other.";
    UntrainableSampling = "MAS0036", "A trained agent is sampled in a way that training doesn't account for.";
    Memory = "MAS0037", "The workflow needs more memory than the machine has.";
    FileFailed = "MAS0038", "A file that the workflow names can't be read.";
    NeverHolds = "MAS0039", "A condition is never true, or always.";
    Covered = "MAS0040", "An edge is never taken, because an earlier one covers its condition.";
    Uneven = "MAS0041", "A batch has fewer completions than optimiser steps.";
    BadGrant = "MAS0042", "A grant is invalid.";
    SequenceRatio = "MAS0043", "A sequence ratio is averaged over tokens.";
    TrustRegionMismatch = "MAS0044", "A trust region doesn't fit the ratio.";
    DoubleWeight = "MAS0045", "The distance from the sampler counts twice.";
    AdvantageMismatch = "MAS0046", "A baseline, scale or return doesn't fit the advantage.";
    BadGroup = "MAS0047", "A group compares completions that can't be compared.";
    NoEffect = "MAS0048", "A setting has no effect in combination with the others.";
    CriticUnused = "MAS0049", "A policy has a critic that its advantage doesn't use.";
    EndReward = "MAS0050", "Turns are credited with their own rewards, but only the end is scored.";
    ServerAddress = "MAS0051", "The address of a server is not valid.";
    ServerLimits = "MAS0052", "A server can't do what its policies need.";
    DoubtfulGradient = "MAS0053", "The gradient of a loss is biased, or only noise.";
    ScenarioForm = "MAS0054", "Scenarios and parts outside of scenarios don't go together.";
    BadMix = "MAS0055", "The weights of a mixture are incomplete, or all 0.";
    BadCurriculum = "MAS0056", "A curriculum has no way to rise.";
    BadGrammar = "MAS0057", "A grammar or a JSON schema can't be used.";
    StepsLeft = "MAS0058", "A policy is not trained on the last steps.";
    PackedWeights = "MAS0059", "Weights that are trained can't be packed.";
    NotFound = "MAS0060", "A model, a data set, or a file of tasks or passages is not there.";
    TreeReturns = "MAS0061", "A tree compares completions by rewards that only one of them can have.";
    WarmUp = "MAS0062", "A warm-up ends before the first update, or doesn't end.";
    NoReward = "MAS0063", "The reward that policies are trained on is always 0.";
}

impl fmt::Display for DiagnosticCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The workflow can't be run.
    Error,
    /// The workflow can be run, but perhaps not as intended.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// A place in the source, with an annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub span: Span,
    /// Annotation of the place; may be empty.
    pub text: String,
}

/// An error or a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub code: DiagnosticCode,
    pub severity: Severity,
    /// Description of the mistake in one sentence.
    pub message: String,
    /// Places; the message is about the first. Empty for values from `--set` and for missing blocks.
    pub labels: Vec<Label>,
    /// Suggestion for a correction.
    pub help: Option<String>,
    /// Values of the names in the text of the mistake, by name.
    pub values: Vec<(String, String)>,
    /// Head of the enclosing block.
    pub context: Option<Span>,
}

impl Diagnostic {
    /// A diagnostic about the workflow as a whole.
    pub fn about_file(code: DiagnosticCode, severity: Severity, message: String, help: &str) -> Self {
        let (labels, values) = (Vec::new(), Vec::new());
        Diagnostic { code, severity, message, labels, help: Some(help.to_owned()), values, context: None }
    }

    pub(crate) fn help(&mut self, text: impl Into<String>) -> &mut Self {
        self.help = Some(text.into());
        self
    }

    /// Sets the help if there is any.
    pub(crate) fn maybe_help(&mut self, text: Option<String>) -> &mut Self {
        if text.is_some() {
            self.help = text;
        }
        self
    }

    pub(crate) fn also(&mut self, location: Location, text: impl Into<String>) -> &mut Self {
        if let Location::Span(span) = location {
            self.labels.push(Label { span, text: text.into() });
        }
        self
    }
}
