//! An episode, step by step, as everything that the host sees of it.

use pl_plugin::{Completion, Episode, Finish, Snapshot, Task, Turn};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::guests::Loaded;
use super::stream;

/// Episodes to play.
pub const SEEDS: [u64; 3] = [1, 2, 3];

/// What two agents say, turn by turn, both side by side; the last one is made right.
const SAID: [[&str; 2]; 5] = [
    ["It is \\boxed{1}.", ""],
    ["I think \"2\" \u{1}\u{1f} or so: 7\u{0}", "die Summe ist größer 😀"],
    ["\\boxed{{{3}}", "The answer is 4 apples."],
    ["no idea what to say about this at all", "#### 5"],
    ["#### 6", "GOLD"],
];

/// One step of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// View, requests, actions, outcome and scores.
    pub seen: Value,
    pub snapshot: Snapshot,
}

/// An episode.
#[derive(Debug, PartialEq)]
pub struct Trace {
    pub steps: Vec<Step>,
}

fn task() -> Task {
    Task { id: "eins \"1\"".to_owned(), data: r#"{"number": 17, "largest": 1000, "more": [1]}"#.to_owned() }
}

impl Trace {
    /// A whole episode.
    pub async fn of(guest: &Loaded, seed: u64) -> Trace {
        let episode = guest.sums.start(&task(), seed, stream(seed)).await.unwrap();
        Self::go_on(guest, episode, 0).await
    }

    /// What comes behind a snapshot that was taken after `done` steps.
    pub async fn from(guest: &Loaded, snapshot: &Snapshot, done: usize) -> Trace {
        let episode = guest.sums.restore(snapshot).await.unwrap();
        Self::go_on(guest, episode, done).await
    }

    async fn go_on(guest: &Loaded, mut episode: Episode, done: usize) -> Trace {
        let mut steps = Vec::new();
        for (at, said) in SAID.iter().enumerate().skip(done) {
            let visit = u32::try_from(at).unwrap();
            let (mut seen, mut actions) = (Vec::new(), Vec::new());
            for (agent, text) in ["links", "rechts"].into_iter().zip(said) {
                let view = episode.view(agent).await.unwrap();
                let turn = Turn { agent: agent.to_owned(), visit };
                let request = guest.reasoner.prompt(&view, &turn).await.unwrap();
                let text =
                    if *text == "GOLD" { format!("\\boxed{{{}}}", sum(&view)) } else { (*text).to_owned() };
                let action = guest.reasoner.parse(&view, &Completion::new(text, Finish::Stop)).await.unwrap();
                seen.push(json!([view, request, action]));
                actions.push((agent.to_owned(), action));
            }
            let outcome = episode.apply(actions.clone()).await.unwrap();
            let scores = guest.score.score(&task(), &actions, &outcome).await.unwrap();
            seen.push(json!([outcome, scores]));
            steps.push(Step { seen: Value::Array(seen), snapshot: episode.snapshot().await.unwrap() });
        }
        Trace { steps }
    }

    /// The steps behind step `at`.
    pub fn behind(&self, at: usize) -> Trace {
        Trace { steps: self.steps[at + 1..].to_vec() }
    }

    /// Compares step by step, and shows the first difference.
    pub fn assert_equal(&self, found: &Trace, what: &str) {
        for (at, (expected, found)) in self.steps.iter().zip(&found.steps).enumerate() {
            assert_eq!(expected.seen, found.seen, "{what}: step {at}");
            let text = |step: &Step| String::from_utf8_lossy(&step.snapshot.bytes).into_owned();
            assert_eq!(text(expected), text(found), "{what}: snapshot of step {at}");
            assert_eq!(expected.snapshot, found.snapshot, "{what}: random stream of step {at}");
        }
        assert_eq!(self.steps.len(), found.steps.len(), "{what}");
    }
}

/// The right answer to a view's question.
fn sum(view: &str) -> u64 {
    let view: Value = serde_json::from_str(view).unwrap();
    let question = view["question"].as_str().unwrap();
    let terms = question.split_once("what is ").unwrap().1.split_once('?').unwrap().0;
    terms.split(" + ").map(|term| term.parse::<u64>().unwrap()).sum()
}
