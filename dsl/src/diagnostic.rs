//! What the check has to say: one type for every message, with a stable code.
//!
//! Renderings for people, for editors and for programs are in [`crate::render`].

use std::collections::BTreeSet;
use std::fmt;

use crate::overrides::Override;
use crate::source::Span;

macro_rules! codes {
    ($($name:ident = $text:literal, $title:literal;)+) => {
        /// The kinds of mistakes that the check knows. The text of a code never changes its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $title] $name,)+
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &'static [Code] = &[$(Code::$name),+];

            /// The code as messages show it, such as `MAS0012`.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)+ }
            }

            /// One line on what the code means.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)+ }
            }

            /// What it means at length, with an example wrong and right, in Markdown: a file of `explain/` for each.
            pub fn page(self) -> &'static str {
                match self { $(Code::$name => include_str!(concat!("explain/", $text, ".md")),)+ }
            }
        }
    };
}

codes! {
    Syntax = "MAS0001", "The text can't be read here.";
    Unclosed = "MAS0002", "A bracket or a text is never closed, or closed without having been opened.";
    TooDeep = "MAS0003", "Brackets are nested too deeply.";
    UnknownBlock = "MAS0004", "There is no block of this name.";
    Duplicate = "MAS0005", "Two blocks have one name, or a block that stands once stands twice.";
    MissingBlock = "MAS0006", "A block that every workflow needs is missing.";
    UnknownSetting = "MAS0007", "The block has no such setting.";
    SettingTwice = "MAS0008", "A setting is given twice.";
    MissingSetting = "MAS0009", "A setting without a default is missing.";
    WrongType = "MAS0010", "A value is of the wrong type or unit.";
    OutOfRange = "MAS0011", "A value is outside its range.";
    UnknownName = "MAS0012", "A name is used that nothing declares.";
    UnknownChoice = "MAS0013", "A value is not one of those that the setting knows.";
    NotSupported = "MAS0014", "Part of the language that is not supported yet.";
    Reserved = "MAS0015", "The name has a meaning of its own in the language.";
    PluginFailed = "MAS0016", "A plugin can't be loaded.";
    UnknownItem = "MAS0017", "The plugin offers no such item.";
    WrongItemKind = "MAS0018", "The plugin's item is of another kind.";
    ItemSetting = "MAS0019", "A setting does not fit what the plugin's item declares.";
    UnknownFact = "MAS0020", "The environment reports no such fact.";
    ConditionType = "MAS0021", "The parts of a condition do not fit together.";
    Unreachable = "MAS0022", "Nothing leads from `start` to this stop.";
    NoWayOut = "MAS0023", "The turns go round without ever reaching `end`.";
    NeverTaken = "MAS0024", "An edge stands behind one that is always taken.";
    NoWayOn = "MAS0025", "The turns can come to a stop with no edge to go on by.";
    AgentNotReached = "MAS0026", "No edge reaches this agent.";
    BadEdge = "MAS0027", "An edge that means nothing.";
    Unused = "MAS0028", "Something is declared and never used.";
    TooFewSamples = "MAS0029", "A group of one completion has nothing to be compared with.";
    LayoutDiffers = "MAS0030", "The layout is not the asserted one.";
    BadOverride = "MAS0031", "A `--set` that fits nothing in the file.";
    NothingToTrain = "MAS0032", "The `train` block has no policy to train.";
    GreedyTraining = "MAS0033", "A trained agent samples greedily, so its group holds equal completions.";
    OtherTasks = "MAS0034", "An evaluation measures on tasks of another kind than those trained on.";
    BadSetting = "MAS0035", "Two settings exclude each other.";
    UntrainableSampling = "MAS0036", "A trained agent is sampled in a way that training does not know of.";
    Memory = "MAS0037", "The workflow wants more memory than the machine has.";
    FileFailed = "MAS0038", "A file that the workflow names can't be read.";
    NeverHolds = "MAS0039", "A condition can never hold, or always does.";
    Covered = "MAS0040", "An edge is never taken, since one before it holds whenever it does.";
    Uneven = "MAS0041", "A batch can't be divided as it is asked for.";
    BadGrant = "MAS0042", "A door that is to be opened to a plugin is none.";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How much a diagnostic weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The workflow can't be run.
    Error,
    /// The workflow runs, but perhaps not as meant.
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

/// A place in the file and what is to be said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// A few words shown beside it; may be empty.
    pub text: String,
}

/// One mistake or doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Which kind of mistake.
    pub code: Code,
    /// Whether the workflow can still be run.
    pub severity: Severity,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The places; the first is the one that the message is about. Empty for what `--set` brought in and for
    /// what is missing altogether.
    pub labels: Vec<Label>,
    /// What to do.
    pub help: Option<String>,
    /// What the names in the text at fault stand for, by name.
    pub values: Vec<(String, String)>,
    /// The head of the block that it is in.
    pub context: Option<Span>,
}

impl Diagnostic {
    /// One about the workflow as a whole.
    pub fn about_file(code: Code, severity: Severity, message: String, help: &str) -> Self {
        let (labels, values) = (Vec::new(), Vec::new());
        Diagnostic { code, severity, message, labels, help: Some(help.to_owned()), values, context: None }
    }

    pub(crate) fn help(&mut self, text: impl Into<String>) -> &mut Self {
        self.help = Some(text.into());
        self
    }

    /// Adds `help` where there is any.
    pub(crate) fn maybe_help(&mut self, text: Option<String>) -> &mut Self {
        if text.is_some() {
            self.help = text;
        }
        self
    }

    pub(crate) fn also(&mut self, place: Place, text: impl Into<String>) -> &mut Self {
        if let Place::At(span) = place {
            self.labels.push(Label { span, text: text.into() });
        }
        self
    }
}

/// Where something was written: in the file, or in the n-th `--set`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    At(Span),
    Set(usize),
}

impl From<Span> for Place {
    fn from(span: Span) -> Self {
        Place::At(span)
    }
}

/// The diagnostics of one check, as they come in.
pub(crate) struct Reports<'a> {
    overrides: &'a [Override],
    list: Vec<Diagnostic>,
    /// Where the template is used that is being read.
    pub via: Option<Place>,
    /// The head of the block that is being read.
    pub context: Option<Span>,
    /// Positions in the list of what was found in templates.
    found_via: BTreeSet<usize>,
}

impl<'a> Reports<'a> {
    pub(crate) fn new(overrides: &'a [Override]) -> Self {
        Reports { overrides, list: Vec::new(), via: None, context: None, found_via: BTreeSet::new() }
    }

    /// How many there are so far.
    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    /// Says of all that came in since there were `from` what the names in the text at fault stand for.
    pub(crate) fn add_values(&mut self, from: usize, values: Vec<(String, String)>) {
        for diagnostic in self.list.iter_mut().skip(from).filter(|one| one.values.is_empty()) {
            diagnostic.values.clone_from(&values);
        }
    }

    pub(crate) fn error(
        &mut self,
        code: Code,
        place: impl Into<Place>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> &mut Diagnostic {
        self.add(code, Severity::Error, Some(place.into()), message.into(), label.into())
    }

    pub(crate) fn warning(
        &mut self,
        code: Code,
        place: impl Into<Place>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> &mut Diagnostic {
        self.add(code, Severity::Warning, Some(place.into()), message.into(), label.into())
    }

    /// An error about the file as a whole.
    pub(crate) fn about_file(&mut self, code: Code, message: impl Into<String>) -> &mut Diagnostic {
        self.add(code, Severity::Error, None, message.into(), String::new())
    }

    fn add(
        &mut self,
        code: Code,
        severity: Severity,
        place: Option<Place>,
        message: String,
        label: String,
    ) -> &mut Diagnostic {
        let (message, labels) = match place {
            Some(Place::At(span)) => (message, vec![Label { span, text: label }]),
            Some(Place::Set(index)) => match self.overrides.get(index) {
                Some(given) => (format!("{given}: {message}"), Vec::new()),
                None => (message, Vec::new()),
            },
            None => (message, Vec::new()),
        };
        let at = self.list.len();
        let context = self.context.filter(|_| !labels.is_empty());
        self.list.push(Diagnostic {
            code,
            severity,
            message,
            labels,
            help: None,
            values: Vec::new(),
            context,
        });
        if let Some(via) = self.via {
            self.found_via.insert(at);
            self.list[at].also(via, "the template is used here");
        }
        &mut self.list[at]
    }

    pub(crate) fn failed(&self) -> bool {
        self.list.iter().any(|one| one.severity == Severity::Error)
    }

    /// In order of position; what has no place in the file comes first.
    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        let mut list: Vec<(bool, Diagnostic)> = self
            .list
            .into_iter()
            .enumerate()
            .map(|(at, diagnostic)| (self.found_via.contains(&at), diagnostic))
            .collect();
        let place = |one: &Diagnostic| one.labels.first().map(|label| label.span);
        list.sort_by_key(|(_, one)| place(one));
        // What is wrong with a template is wrong wherever it is used, and said once.
        list.dedup_by(|(again_via, again), (via, one)| {
            *again_via && *via && again.code == one.code && place(again) == place(one)
        });
        list.into_iter().map(|(_, diagnostic)| diagnostic).collect()
    }
}

/// The one of `names` that `wrong` was probably meant to be.
pub(crate) fn nearest<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    near(wrong, names).into_iter().next()
}

/// Those of `names` that `wrong` may have been meant to be, the likeliest first.
pub(crate) fn near<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    // Long names are never typing mistakes of short ones, and the distance costs the product of the lengths.
    const LONGEST: usize = 64;
    // A file of ten thousand names with ten thousand mistakes should not take a minute.
    const MOST: usize = 256;
    if wrong.len() > LONGEST {
        return Vec::new();
    }
    let lower = wrong.to_lowercase();
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .filter(|name| name.len() <= LONGEST)
        .take(MOST)
        .map(|name| (strsim::damerau_levenshtein(&lower, &name.to_lowercase()), name))
        // Names of one letter are all alike.
        .filter(|(distance, name)| {
            let shorter = name.len().min(wrong.len());
            *distance <= (shorter / 3).max(1) && *distance < shorter
        })
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().map(|(_, name)| name).collect()
}

/// `did you mean …?`, or else the list of what there is.
pub(crate) fn suggest<'n>(
    wrong: &str,
    what: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<String> {
    const MOST: usize = 24;
    let names: Vec<&str> = names.into_iter().collect();
    if let Some(name) = nearest(wrong, names.iter().copied()) {
        return Some(format!("did you mean `{name}`?"));
    }
    match names.as_slice() {
        [] => None,
        _ if names.len() > MOST => None,
        _ => Some(format!("{what}: {}", list(&names))),
    }
}

/// `a`, `b` and `c`, each in backticks.
pub(crate) fn list<S: AsRef<str>>(names: &[S]) -> String {
    join(names, "and")
}

/// `a`, `b` or `c`, each in backticks.
pub(crate) fn either<S: AsRef<str>>(names: &[S]) -> String {
    join(names, "or")
}

fn join<S: AsRef<str>>(names: &[S], last: &str) -> String {
    match names {
        [] => String::new(),
        [only] => format!("`{}`", only.as_ref()),
        [first @ .., end] => {
            let first: Vec<String> = first.iter().map(|name| format!("`{}`", name.as_ref())).collect();
            format!("{} {last} `{}`", first.join(", "), end.as_ref())
        }
    }
}
