//! Jobs that run a program: it answers calls, and never sees what its answers are compared with.

use pl_sdk::prelude::*;
use pl_sdk::sandbox::{Job, Verdict};
use serde_json::{Map, Value, json};

use crate::attempt::failure;

/// Python program that loads a program and answers calls of its functions.
const SOURCE: &str = concat!(include_str!("values.py"), "\n", include_str!("candidate.py"));

/// A call of the program, as `candidate.py` reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    function: Value,
    args: Vec<Value>,
    kwargs: Map<String, Value>,
}

impl Call {
    /// Returns the call of a global function of the program.
    pub fn function(name: &str, args: Vec<Value>) -> Self {
        Self { function: json!({ "name": name }), args, kwargs: Map::new() }
    }

    /// Returns the arguments without their names.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.args.iter().chain(self.kwargs.values())
    }

    /// Returns the calls that make an object of a class without arguments and call its method.
    pub fn method(class: &str, name: &str, args: Vec<Value>) -> Vec<Self> {
        let attribute = json!({ "function": "builtins.getattr" });
        let attribute =
            Self { function: attribute, args: vec![json!({"ref": 0}), json!(name)], kwargs: Map::new() };
        let call = Self { function: json!({ "ref": 1 }), args, kwargs: Map::new() };
        vec![Self::function(class, Vec::new()), attribute, call]
    }
}

/// An answer to a call: what the judge may know of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CallResult {
    /// Plain data, and the arguments that the call changed, by position or name.
    Value {
        /// The result.
        value: Value,
        /// New content of arguments.
        changed: Map<String, Value>,
    },
    /// An exception.
    Raised {
        /// Names of its type and that type's bases.
        raised: Vec<String>,
        /// The traceback. The judge doesn't get it.
        #[serde(skip_serializing)]
        error: String,
    },
    /// Something that isn't plain data.
    Object {
        /// Always true.
        object: bool,
    },
}

impl CallResult {
    /// Returns the answer to a call that got none, for the stated reason.
    pub fn missing(reason: &str) -> Self {
        Self::Raised { raised: vec!["RuntimeError".to_owned()], error: reason.to_owned() }
    }

    /// Returns the traceback of an exception.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Raised { error, .. } => Some(error),
            Self::Value { .. } | Self::Object { .. } => None,
        }
    }
}

/// First line of a job's output.
#[derive(Deserialize)]
struct Loaded {
    loaded: bool,
    error: Option<String>,
}

/// Output of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Reason why the program couldn't be loaded.
    pub load_error: Option<String>,
    /// Answers to the calls of each sequence, as many as it has calls.
    pub answers: Vec<Vec<CallResult>>,
}

/// Returns the job in which `program` answers sequences of calls.
pub fn job(prelude: &str, program: &str, sequences: &[Vec<Call>]) -> Job {
    let mut stdin = json!({ "prelude": prelude, "program": program }).to_string();
    for sequence in sequences {
        for (position, Call { function, args, kwargs }) in sequence.iter().enumerate() {
            let first = position == 0;
            let call = json!({ "first": first, "function": function, "args": args, "kwargs": kwargs });
            stdin.push('\n');
            stdin.push_str(&call.to_string());
        }
    }
    Job { language: "python".to_owned(), source: SOURCE.to_owned(), stdin, files: Vec::new() }
}

/// Reads what a job of [`job`] printed. The program may have printed any of it: whatever is no answer counts as
/// an exception.
pub fn read(verdict: &Verdict, sequences: &[Vec<Call>]) -> Output {
    let reason = failure(verdict);
    let mut lines = verdict.stdout.lines();
    let loaded = lines.by_ref().find_map(|line| serde_json::from_str::<Loaded>(line).ok());
    let load_error = match loaded {
        Some(Loaded { loaded: true, .. }) => None,
        Some(Loaded { error: Some(error), .. }) => Some(error),
        _ => Some(reason.clone()),
    };
    let mut answers = lines.filter_map(|line| serde_json::from_str::<CallResult>(line).ok());
    let mut next = |_: &Call| answers.next().unwrap_or_else(|| CallResult::missing(&reason));
    let answers = sequences.iter().map(|sequence| sequence.iter().map(&mut next).collect()).collect();
    Output { load_error, answers }
}

#[cfg(test)]
mod tests {
    use pl_sdk::services::testing;

    use super::*;

    fn calls(count: usize) -> Vec<Call> {
        vec![Call { function: json!({"name": "f"}), args: vec![json!(1)], kwargs: Map::new() }; count]
    }

    #[test]
    fn answers_belong_to_their_sequences() {
        let printed = "noise\n{\"loaded\":true}\n{\"value\":1,\"changed\":{}}\n\nnoise\n{\"object\":true}\n\
                       {\"raised\":[\"ValueError\"],\"error\":\"no\"}\n";
        let output = read(&testing::printed(printed), &[calls(1), calls(3)]);
        assert_eq!(output.load_error, None);
        assert_eq!(output.answers[0], [CallResult::Value { value: json!(1), changed: Map::new() }]);
        assert_eq!(output.answers[1][0], CallResult::Object { object: true });
        assert_eq!(output.answers[1][1].error(), Some("no"));
        assert_eq!(output.answers[1][2].error(), Some("the program ended before it could be tested"));
    }

    #[test]
    fn tracebacks_stay_with_the_program() {
        let answer = CallResult::Raised { raised: vec!["KeyError".to_owned()], error: "secret".to_owned() };
        assert_eq!(json!(answer), json!({"raised": ["KeyError"]}));
    }

    #[test]
    fn a_program_that_does_not_load_says_why() {
        let printed = testing::printed("{\"loaded\":false,\"error\":\"SyntaxError\"}\n");
        assert_eq!(read(&printed, &[calls(1)]).load_error.as_deref(), Some("SyntaxError"));
        let ended = read(&testing::printed("{\"value\":1}"), &[]);
        assert_eq!(ended.load_error.as_deref(), Some("the program ended before it could be tested"));
    }
}
