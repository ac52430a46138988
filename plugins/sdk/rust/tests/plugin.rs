//! Tests of a plugin through the registry that `export!` makes: all values as JSON, as the host sees them.

use pl_sdk::prelude::*;
use pl_sdk::registry::{self, AgentEntry, EnvironmentEntry, Registry, RewardEntry};
use pl_sdk::services::testing;
use pl_sdk::{ErrorKind, ToolCall};
use serde_json::{Value, json};

#[derive(Serialize, Deserialize)]
struct Counter {
    count: u64,
    share: f64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Limits {
    /// Count at which the counter stops.
    limit: u64,
    #[serde(default, rename = "inner")]
    _inner: Inner,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Inner {
    /// Free text.
    #[serde(default)]
    _note: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Move {
    Add(u64),
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Facts {
    /// The limit is reached.
    full: bool,
    count: u64,
    share: Option<f64>,
    name: String,
    list: Vec<u8>,
}

impl Environment for Counter {
    const NAME: &'static str = "counter";
    const DOC: &'static str = "Counts.";
    type Settings = Limits;
    type View = u64;
    type Action = Move;
    type Facts = Facts;
    type Evidence = u64;

    fn start(_: &Limits, task: &Task, seed: u64) -> Result<Self> {
        Ok(Self { count: task.read()?, share: f64::from_bits(seed) })
    }

    fn view(&self, _: &Limits, _: &str) -> Result<u64> {
        Ok(self.count)
    }

    fn apply(&mut self, limits: &Limits, actions: &[Action<Move>]) -> Result<Outcome<Facts, u64>> {
        for Action { action: Move::Add(amount), .. } in actions {
            self.count += amount;
        }
        let full = self.count >= limits.limit;
        let facts = Facts {
            full,
            count: self.count,
            share: Some(self.share),
            name: "counter".to_owned(),
            list: Vec::new(),
        };
        Ok(Outcome { done: full, truncated: false, facts, evidence: random::below(10) })
    }

    fn oracle(&self, limits: &Limits, _: &str) -> Result<Option<Value>> {
        Ok(limits.limit.checked_sub(self.count).map(|missing| json!({ "add": missing })))
    }

    fn draw(&self, _: &Limits, form: DrawingForm) -> Result<Option<String>> {
        Ok((form == DrawingForm::Text).then(|| "|".repeat(self.count as usize)))
    }
}

/// An environment with binary snapshots.
#[derive(Serialize, Deserialize)]
struct BinaryState {
    words: Vec<String>,
    share: f64,
}

/// An environment with the defaults of all optional functions.
impl Environment for BinaryState {
    const NAME: &'static str = "binary";
    const DOC: &'static str = "Holds texts.";
    const SNAPSHOTS: Form = Form::Postcard;
    type Settings = NoSettings;
    type View = Vec<String>;
    type Action = String;
    type Facts = Facts;
    type Evidence = ();

    fn start(_: &NoSettings, _: &Task, seed: u64) -> Result<Self> {
        Ok(Self { words: vec!["one".to_owned(), "\"zwölf\"".to_owned()], share: f64::from_bits(seed) })
    }

    fn view(&self, _: &NoSettings, _: &str) -> Result<Vec<String>> {
        Ok(self.words.clone())
    }

    fn apply(&mut self, _: &NoSettings, _: &[Action<String>]) -> Result<Outcome<Facts, ()>> {
        Err(Error::internal("a binary state is read-only"))
    }
}

struct Adder;

impl Agent for Adder {
    const NAME: &'static str = "adder";
    const DOC: &'static str = "Adds.";
    type Settings = NoSettings;
    type View = u64;
    type Action = Move;

    fn prompt(_: &NoSettings, view: &u64, turn: &Turn) -> Result<Option<Request>> {
        Ok((*view < 5)
            .then(|| Request::user(format!("{view} {}", turn.visit)).with_system("s").with_stop(["\n"])))
    }

    fn call_tools(_: &NoSettings, view: &u64, calls: &[ToolCall]) -> Result<Option<Vec<String>>> {
        Ok(Some(calls.iter().map(|call| format!("{} {} to {view}", call.name, call.arguments)).collect()))
    }

    fn parse(_: &NoSettings, _: &u64, completion: &Completion) -> Result<Move> {
        Ok(Move::Add(completion.text.len() as u64))
    }
}

struct Share;

impl Reward for Share {
    const NAME: &'static str = "share";
    const DOC: &'static str = "Pays.";
    type Settings = NoSettings;
    type Action = Move;
    type Facts = Facts;
    type Evidence = u64;

    fn score(_: &NoSettings, step: &Transition<Move, Facts, u64>) -> Result<Scores> {
        let local = step.actions.iter().map(|action| {
            let Move::Add(amount) = action.action;
            AgentScore { agent: action.agent.clone(), reward: amount as f64, success: step.facts.full }
        });
        Ok(Scores { team: step.evidence as f64, local: local.collect(), success: step.done })
    }
}

struct Plugin;

impl Registry for Plugin {
    const ENVIRONMENTS: &'static [EnvironmentEntry] =
        &[EnvironmentEntry::new::<Counter>(), EnvironmentEntry::new::<BinaryState>()];
    const AGENTS: &'static [AgentEntry] = &[AgentEntry::new::<Adder>()];
    const REWARDS: &'static [RewardEntry] = &[RewardEntry::new::<Share>()];
}

const LIMITS: &str = r#"{"limit": 5}"#;

fn task(data: &str) -> Task {
    Task { id: "t".to_owned(), data: data.to_owned() }
}

fn action(agent: &str, action: &str) -> pl_sdk::bindings::pl_host::plugin::types::AgentAction {
    pl_sdk::bindings::pl_host::plugin::types::AgentAction {
        agent: agent.to_owned(),
        action: action.to_owned(),
    }
}

#[test]
fn items_describe_themselves() {
    let items = registry::items::<Plugin>();
    let names: Vec<_> = items.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(names, ["counter", "binary", "adder", "share"]);
    let schema: Value = serde_json::from_str(&items[0].settings_schema).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["required"], json!(["limit"]));
    assert_eq!(schema["properties"]["limit"]["description"], "Count at which the counter stops.");
    // No references to follow: the inner settings are inlined.
    assert_eq!(schema["properties"]["inner"]["properties"]["_note"]["description"], "Free text.");
    let mut facts: Vec<_> =
        items[0].facts.iter().map(|fact| format!("{} {:?} {}", fact.name, fact.kind, fact.doc)).collect();
    facts.sort();
    // The list is no scalar: conditions cannot read it.
    assert_eq!(
        facts,
        [
            "count FactKind::Number ",
            "full FactKind::Boolean The limit is reached.",
            "name FactKind::Text ",
            "share FactKind::Number "
        ]
    );
}

#[test]
fn an_episode_goes_on_from_its_snapshot_bit_for_bit() {
    // A number whose shortest decimal form is easily read back wrong in the last bit.
    let seed = 8.41e21_f64.next_up().to_bits();
    let mut episode = registry::start::<Plugin>("counter", LIMITS, &task("1"), seed).unwrap();
    let first = episode.apply(vec![action("a", r#"{"add": 2}"#)]).unwrap();
    assert!(!first.done);
    let snapshot = episode.snapshot();
    let mut restored = registry::restore::<Plugin>("counter", LIMITS, &snapshot).unwrap();
    assert_eq!(restored.snapshot(), snapshot);
    let turn = || vec![action("a", r#"{"add": 1}"#), action("b", r#"{"add": 1}"#)];
    let [one, two] = [&mut episode, &mut restored].map(|copy| {
        testing::set_random(7);
        copy.apply(turn()).unwrap()
    });
    assert_eq!((one.facts, one.evidence), (two.facts.clone(), two.evidence));
    assert!(one.done && two.done);
    let facts: Value = serde_json::from_str(&two.facts).unwrap();
    assert_eq!(facts["share"].as_f64().map(f64::to_bits), Some(seed));
    assert_eq!(restored.view("a").unwrap(), "5");
}

#[test]
fn a_binary_snapshot_holds_what_json_cannot() {
    let share = f64::NAN.to_bits() | 5;
    let binary = registry::start::<Plugin>("binary", "{}", &task("1"), share).unwrap();
    let snapshot = binary.snapshot();
    let restored = registry::restore::<Plugin>("binary", "{}", &snapshot).unwrap();
    assert_eq!(restored.snapshot(), snapshot);
    assert_eq!(restored.view("a").unwrap(), binary.view("a").unwrap());
    assert!(snapshot.windows(8).any(|bytes| bytes == share.to_le_bytes()));
    for wrong in [&snapshot[..snapshot.len() - 1], &[&snapshot[..], b"!"].concat(), b""] {
        let error = registry::restore::<Plugin>("binary", "{}", wrong).err().unwrap();
        assert!(error.message.starts_with("binary cannot read its snapshot"), "{}", error.message);
    }
}

#[test]
fn oracles_and_drawings_are_optional() {
    let counter = registry::start::<Plugin>("counter", LIMITS, &task("3"), 0).unwrap();
    assert_eq!(counter.oracle("a").unwrap().as_deref(), Some(r#"{"add":2}"#));
    assert_eq!(counter.draw(DrawingForm::Text).unwrap().as_deref(), Some("|||"));
    assert_eq!(counter.draw(DrawingForm::Svg).unwrap(), None);
    let binary = registry::start::<Plugin>("binary", "{}", &task("1"), 0).unwrap();
    assert_eq!((binary.oracle("a").unwrap(), binary.draw(DrawingForm::Svg).unwrap()), (None, None));
}

#[test]
fn corpora_and_policies_have_stand_ins() {
    assert!(policies::ask("referee", &[], 1).unwrap_err().contains("set_policies"));
    testing::set_policies(|policy, messages| format!("{policy}: {}", messages[0].text));
    let asked = policies::ask("referee", &[policies::Message::user("well?")], 8);
    assert_eq!(asked.unwrap(), "referee: well?");
    testing::set_corpus(|_, _| Vec::new());
    assert!(retrieval::retrieve_from("papers", "x", 2).unwrap().is_empty());
}

#[test]
fn agents_and_rewards_speak_json() {
    let turn = Turn { agent: "a".to_owned(), visit: 3 };
    let request = registry::prompt::<Plugin>("adder", "{}", "4", &turn).unwrap().unwrap();
    let texts: Vec<_> = request.messages.iter().map(Message::text).collect();
    assert_eq!((texts, request.stop), (vec!["s".to_owned(), "4 3".to_owned()], vec!["\n".to_owned()]));
    assert!(registry::prompt::<Plugin>("adder", "{}", "5", &turn).unwrap().is_none());
    let calls = [ToolCall { name: "add".to_owned(), arguments: r#"{"n":3}"#.to_owned() }];
    let results = registry::call_tools::<Plugin>("adder", "{}", "4", &calls).unwrap();
    assert_eq!(results, Some(vec![r#"add {"n":3} to 4"#.to_owned()]));
    let completion = Completion { text: "abc".to_owned(), tool_calls: Vec::new(), finish: Finish::Stop };
    assert_eq!(registry::parse::<Plugin>("adder", "{}", "4", &completion).unwrap(), r#"{"add":3}"#);

    let mut episode = registry::start::<Plugin>("counter", LIMITS, &task("4"), 0).unwrap();
    let outcome = episode.apply(vec![action("a", r#"{"add":3}"#)]).unwrap();
    let evidence: f64 = outcome.evidence.parse().unwrap();
    let transition = pl_sdk::bindings::exports::pl_host::plugin::rewards::Transition {
        task: task("4"),
        actions: vec![action("a", r#"{"add":3}"#)],
        outcome,
    };
    let scores = registry::score::<Plugin>("share", "{}", transition).unwrap();
    assert!((scores.team - evidence).abs() < 1e-9 && scores.success);
    assert!((scores.local[0].reward - 3.0).abs() < 1e-9 && scores.local[0].success);
}

#[test]
fn refusals_say_whose_fault_it_is() {
    let start = |settings: &str, data: &str| {
        registry::start::<Plugin>("counter", settings, &task(data), 0).err().unwrap()
    };
    let error = start(r#"{"limit": 5, "limt": 1}"#, "1");
    assert_eq!(error.kind, ErrorKind::Settings);
    assert!(error.message.starts_with("settings of counter: unknown field `limt`"), "{}", error.message);
    let error = start(r#"{"limit": 5.5}"#, "1");
    assert!(error.message.contains("invalid type: floating point `5.5`, expected u64"), "{}", error.message);
    assert!(registry::start::<Plugin>("counter", r#"{"limit": 5.0}"#, &task("1"), 0).is_ok());
    let error = start(LIMITS, r#""one""#);
    assert_eq!(error.kind, ErrorKind::Task);
    assert!(error.message.starts_with("task t: invalid type"), "{}", error.message);
    let error = registry::restore::<Plugin>("counter", LIMITS, b"{}").err().unwrap();
    assert!(error.message.starts_with("counter cannot read its snapshot"), "{}", error.message);
    let mut episode = registry::start::<Plugin>("counter", LIMITS, &task("1"), 0).unwrap();
    let error = episode.apply(vec![action("b", r#"{"jump": 1}"#)]).err().unwrap();
    assert!(error.message.contains("the action of agent `b`"), "{}", error.message);
    let error = registry::start::<Plugin>("nothing", "{}", &task("1"), 0).err().unwrap();
    assert_eq!(error.message, "this plugin has no environment `nothing`");
    let request = TaskRequest { split: "train".to_owned(), start: 0, count: 1, level: 1 };
    let error = registry::tasks::<Plugin>("counter", LIMITS, &request).unwrap_err();
    assert_eq!(error.message, "counter makes no tasks of its own: set `tasks` to a file");
}

#[test]
fn random_numbers_below_a_bound_take_every_value_alike() {
    testing::set_random(1);
    let mut counts = [0_u32; 6];
    for _ in 0..6000 {
        counts[random::below(6) as usize] += 1;
    }
    assert!(counts.iter().all(|count| (880..1120).contains(count)), "{counts:?}");
    assert_eq!(random::below(0), 0);
}
