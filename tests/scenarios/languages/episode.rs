//! An episode, step by step, with everything that the host receives.

use pl_plugin::{Completion, DrawingForm, Episode, Snapshot, Task, Turn};
use pl_types::Finish;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::guests::Loaded;
use super::stream;

/// Seeds of the episodes to play.
pub const SEEDS: [u64; 3] = [1, 2, 3];

/// Completions of two agents that act side by side, by turn. `GOLD` stands for the right answer.
const COMPLETIONS: [[&str; 2]; 5] = [
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

/// The steps of an episode.
#[derive(Debug, PartialEq)]
pub struct EpisodeLog {
    pub steps: Vec<Step>,
}

fn task() -> Task {
    Task { id: "eins \"1\"".to_owned(), data: r#"{"number": 17, "largest": 1000, "more": [1]}"#.to_owned() }
}

impl EpisodeLog {
    /// Plays a whole episode.
    pub async fn play(guest: &Loaded, seed: u64) -> EpisodeLog {
        let episode = guest.sums.start(&task(), seed, stream(seed)).await.unwrap();
        Self::play_from(guest, episode, 0).await
    }

    /// Plays the rest of an episode from a snapshot after `done` steps.
    pub async fn resume(guest: &Loaded, snapshot: &Snapshot, done: usize) -> EpisodeLog {
        let episode = guest.sums.restore(snapshot).await.unwrap();
        Self::play_from(guest, episode, done).await
    }

    async fn play_from(guest: &Loaded, mut episode: Episode, done: usize) -> EpisodeLog {
        let mut steps = Vec::new();
        for (at, texts) in COMPLETIONS.iter().enumerate().skip(done) {
            let visit = u32::try_from(at).unwrap();
            let (mut seen, mut actions) = (Vec::new(), Vec::new());
            for (agent, text) in ["links", "rechts"].into_iter().zip(texts) {
                let view = episode.view(agent).await.unwrap();
                let turn = Turn { agent: agent.to_owned(), visit };
                let request = guest.reasoner.prompt(&view, &turn).await.unwrap();
                let text =
                    if *text == "GOLD" { format!("\\boxed{{{}}}", sum(&view)) } else { (*text).to_owned() };
                let action = guest.reasoner.parse(&view, &Completion::new(text, Finish::Stop)).await.unwrap();
                seen.push(json!([view, request, action]));
                actions.push((agent.to_owned(), action));
            }
            let (advice, drawing) = (episode.oracle("links").await, episode.draw(DrawingForm::Text).await);
            seen.push(json!([
                advice.unwrap(),
                drawing.unwrap(),
                episode.draw(DrawingForm::Svg).await.unwrap()
            ]));
            let outcome = episode.apply(actions.clone()).await.unwrap();
            let scores = guest.score.score(&task(), &actions, &outcome).await.unwrap();
            seen.push(json!([outcome, scores]));
            steps.push(Step { seen: Value::Array(seen), snapshot: episode.snapshot().await.unwrap() });
        }
        EpisodeLog { steps }
    }

    /// Returns the steps after step `at`.
    pub fn after(&self, at: usize) -> EpisodeLog {
        EpisodeLog { steps: self.steps[at + 1..].to_vec() }
    }

    /// Compares step by step and shows the first difference.
    pub fn assert_equal(&self, found: &EpisodeLog, what: &str) {
        for (at, (expected, found)) in self.steps.iter().zip(&found.steps).enumerate() {
            assert_eq!(expected.seen, found.seen, "{what}: step {at}");
            let text = |step: &Step| String::from_utf8_lossy(&step.snapshot.bytes).into_owned();
            assert_eq!(text(expected), text(found), "{what}: snapshot of step {at}");
            assert_eq!(expected.snapshot, found.snapshot, "{what}: random stream of step {at}");
        }
        assert_eq!(self.steps.len(), found.steps.len(), "{what}");
    }
}

/// Returns the right answer to a view's question.
fn sum(view: &str) -> u64 {
    let view: Value = serde_json::from_str(view).unwrap();
    let question = view["question"].as_str().unwrap();
    let terms = question.split_once("what is ").unwrap().1.split_once('?').unwrap().0;
    terms.split(" + ").map(|term| term.parse::<u64>().unwrap()).sum()
}
