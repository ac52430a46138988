//! The environment: a question, the searches so far, and the passages that they found.

use std::collections::BTreeMap;

use pl_sdk::Value;
use pl_sdk::prelude::*;
use pl_sdk::retrieval::Passage;

use crate::passages::{Passages, Shown};
use crate::record::Question;

/// Longest query, answer or wish in characters. Longer ones are cut: a model that repeats itself writes them.
const LONGEST: usize = 300;

/// An episode with one question. An answer ends it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Questions {
    question: Question,
    /// Number of steps so far.
    round: u32,
    /// All queries, oldest first.
    queries: Vec<String>,
    passages: Passages,
    /// Information that the reasoner misses.
    wanted: Option<String>,
    answered: bool,
}

/// Settings of the environment.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Number of passages that a query finds.
    #[schemars(range(min = 1, max = 20))]
    pub passages: u32,
    /// Number of passages that agents see, the newest of all. One that has left is shown again if a search finds it again.
    #[schemars(range(min = 1, max = 100))]
    pub shown: u32,
    /// Number of characters of a passage that agents see. A token has about four.
    #[schemars(range(min = 20, max = 20000))]
    pub passage_length: u32,
    /// Names of the corpora that a query searches, each for this many passages. Empty for the environment's first alone.
    pub corpora: Vec<String>,
}

impl Default for Settings {
    /// The passages fit into a context of 2,048 tokens.
    fn default() -> Self {
        Self { passages: 3, shown: 6, passage_length: 600, corpora: Vec::new() }
    }
}

/// View of every agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The question.
    pub question: String,
    /// Number of steps so far.
    pub round: u32,
    /// All queries, oldest first.
    pub queries: Vec<String>,
    /// The newest passages, oldest first.
    pub passages: Vec<Shown>,
    /// Information that the reasoner misses.
    pub wanted: Option<String>,
}

/// Action of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Search the corpus.
    Search(String),
    /// Ask the searcher for information.
    Want(String),
    /// Answer.
    Answer(String),
    /// No usable action, with the reason.
    None(String),
}

/// Facts for the conditions of workflows. None of them tells if a passage or an answer is right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// True if there is an answer.
    pub answered: bool,
    /// True if the reasoner asks for information that no search has looked for yet.
    pub wanted: bool,
    /// Number of searches so far.
    pub searches: u32,
    /// Number of different passages that they found.
    pub found: u32,
}

/// Evidence for the reward. Agents never see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The right answers.
    pub answers: Vec<String>,
    /// The answer of this step. `None` if it gave none.
    pub answer: Option<String>,
    /// Share of the question's evidence that each agent has found in this step. No part of it is found twice.
    pub found: BTreeMap<String, f64>,
}

impl Environment for Questions {
    const NAME: &'static str = "questions";
    const DOC: &'static str =
        "Questions over the passages of a corpus: HotpotQA's, Bamboogle's or Search-R1's records.";
    type Settings = Settings;
    type View = View;
    type Action = Action;
    type Facts = Facts;
    type Evidence = Evidence;

    fn start(_settings: &Settings, task: &Task, _seed: u64) -> Result<Self> {
        Ok(Self {
            question: Question::read(task)?,
            round: 0,
            queries: Vec::new(),
            passages: Passages::default(),
            wanted: None,
            answered: false,
        })
    }

    fn view(&self, _settings: &Settings, _agent: &str) -> Result<View> {
        Ok(View {
            question: self.question.question.clone(),
            round: self.round,
            queries: self.queries.clone(),
            passages: self.passages.shown().cloned().collect(),
            wanted: self.wanted.clone(),
        })
    }

    /// The first right answer.
    fn oracle(&self, _settings: &Settings, _agent: &str) -> Result<Option<Value>> {
        let answer = self.question.answers.first().cloned();
        Ok(answer.and_then(|answer| serde_json::to_value(Action::Answer(answer)).ok()))
    }

    fn apply(
        &mut self,
        settings: &Settings,
        actions: &[pl_sdk::Action<Action>],
    ) -> Result<Outcome<Facts, Evidence>> {
        self.round += 1;
        let mut found: BTreeMap<String, f64> = BTreeMap::new();
        let mut answer = None;
        for pl_sdk::Action { agent, action } in actions {
            match action {
                Action::Search(query) => {
                    *found.entry(agent.clone()).or_default() += self.search(settings, query)?;
                }
                Action::Want(wish) => self.wanted = Some(cut(wish)),
                // The first of several agents side by side.
                Action::Answer(text) if answer.is_none() && !self.answered => answer = Some(cut(text)),
                Action::Answer(_) | Action::None(_) => {}
            }
        }
        self.answered |= answer.is_some();
        Ok(Outcome {
            done: self.answered,
            truncated: false,
            facts: self.facts(),
            evidence: Evidence { answers: self.question.answers.clone(), answer, found },
        })
    }
}

impl Questions {
    /// Searches the corpora. Returns the share of the question's evidence that is new.
    fn search(&mut self, settings: &Settings, query: &str) -> Result<f64> {
        let query = cut(query);
        let failed = |reason| Error::internal(format!("the search for {query:?} failed: {reason}"));
        let mut found = Vec::new();
        if settings.corpora.is_empty() {
            found = retrieval::retrieve(&query, settings.passages).map_err(failed)?;
        }
        for corpus in &settings.corpora {
            let passages = retrieval::retrieve_from(corpus, &query, settings.passages).map_err(failed)?;
            // Corpora may give equal ids to different passages.
            found.extend(
                passages
                    .into_iter()
                    .map(|passage| Passage { id: format!("{corpus}/{}", passage.id), ..passage }),
            );
        }
        self.queries.push(query);
        self.wanted = None;
        self.passages.show(&found, settings.shown as usize, settings.passage_length as usize);
        Ok(self.passages.add(&self.question, &found))
    }

    fn facts(&self) -> Facts {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Facts {
            answered: self.answered,
            wanted: self.wanted.is_some(),
            searches: number(self.queries.len()),
            found: number(self.passages.count()),
        }
    }
}

fn cut(text: &str) -> String {
    text.trim().chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use pl_sdk::services::testing;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::score::{self, Score};

    fn start() -> Questions {
        let record = json!({"question": "Which river crosses the capital of Xanadu?", "answer": "Secret Zephyr",
            "supporting_facts": [["Xanadu", 0], ["Quill", 1]]});
        Questions::start(&Settings::default(), &Task::new("1", &record).unwrap(), 0).unwrap()
    }

    /// A corpus that finds passages by their titles.
    fn set_corpus() {
        testing::set_corpus(|query, k| {
            let all = [
                ("Xanadu", "Its capital is Quill."),
                ("Quill", "It lies on the Zephyr."),
                ("Moon", "A rock."),
            ];
            let hits = all.into_iter().filter(|(title, _)| query.contains(title));
            let passage = |(title, text): (&str, &str)| Passage {
                id: title.to_lowercase(),
                text: format!("{title}\n{text}"),
                score: 1.0,
            };
            hits.take(k as usize).map(passage).collect()
        });
    }

    fn act(agent: &str, action: Action) -> pl_sdk::Action<Action> {
        pl_sdk::Action { agent: agent.to_owned(), action }
    }

    fn apply(episode: &mut Questions, agent: &str, action: Action) -> Outcome<Facts, Evidence> {
        episode.apply(&Settings::default(), &[act(agent, action)]).unwrap()
    }

    fn search(query: &str) -> Action {
        Action::Search(query.to_owned())
    }

    #[test]
    fn a_team_searches_asks_and_answers() {
        set_corpus();
        let mut episode = start();
        let outcome = apply(&mut episode, "search", search("Xanadu and the Moon"));
        assert_eq!(outcome.facts, Facts { searches: 1, found: 2, ..Facts::default() });
        assert_eq!(outcome.evidence.found["search"], 0.5);
        let outcome = apply(&mut episode, "reason", Action::Want("the river of Quill".to_owned()));
        assert!(outcome.facts.wanted && !outcome.done && outcome.evidence.found.is_empty());
        assert_eq!(
            episode.view(&Settings::default(), "search").unwrap().wanted.as_deref(),
            Some("the river of Quill")
        );
        let outcome = apply(&mut episode, "search", search("Quill"));
        assert_eq!(
            (outcome.facts.wanted, outcome.facts.found, outcome.evidence.found["search"]),
            (false, 3, 0.5)
        );
        let outcome = apply(&mut episode, "reason", Action::Answer(" Zephyr ".to_owned()));
        assert!(outcome.done && outcome.facts.answered);
        assert_eq!(outcome.evidence.answer.as_deref(), Some("Zephyr"));
    }

    #[test]
    fn no_view_shows_right_answers_or_supporting_titles() {
        set_corpus();
        let mut episode = start();
        apply(&mut episode, "search", search("Moon"));
        apply(&mut episode, "reason", Action::None("no answer".to_owned()));
        let view = json!(episode.view(&Settings::default(), "reason").unwrap());
        let expected = json!({"question": "Which river crosses the capital of Xanadu?", "round": 2, "queries": ["Moon"],
            "passages": [{"title": "Moon", "text": "A rock."}], "wanted": null});
        assert_eq!(view, expected);
    }

    #[test]
    fn a_search_without_a_corpus_says_what_is_missing() {
        testing::set_corpus(|_, _| Vec::new());
        let mut episode = start();
        let outcome = apply(&mut episode, "search", search("nothing"));
        assert_eq!((outcome.facts.searches, outcome.facts.found), (1, 0));
        let failed = std::thread::spawn(|| {
            // Another thread has no corpus.
            start().apply(&Settings::default(), &[act("search", search("x"))]).unwrap_err()
        });
        let error = failed.join().unwrap();
        assert!(error.message.starts_with("the search for \"x\" failed: no corpus"), "{}", error.message);
    }

    #[test]
    fn long_texts_are_cut() {
        testing::set_corpus(|query, _| {
            assert_eq!(query.chars().count(), LONGEST);
            Vec::new()
        });
        apply(&mut start(), "search", search(&"ö".repeat(LONGEST + 1)));
    }

    #[test]
    fn a_snapshot_restores_the_episode() {
        set_corpus();
        let mut episode = start();
        apply(&mut episode, "search", search("Xanadu"));
        let mut restored: Questions = serde_json::from_slice(&serde_json::to_vec(&episode).unwrap()).unwrap();
        assert_eq!(restored, episode);
        let step = search("Xanadu Quill");
        assert_eq!(apply(&mut restored, "search", step.clone()), apply(&mut episode, "search", step));
        assert_eq!(restored, episode);
    }

    #[test]
    fn a_passage_that_is_found_again_is_shown_again_but_not_paid() {
        set_corpus();
        let settings = Settings { passages: 1, shown: 1, ..Settings::default() };
        let step = |episode: &mut Questions, query: &str| {
            let outcome = episode.apply(&settings, &[act("search", search(query))]).unwrap();
            let view = episode.view(&settings, "reason").unwrap();
            let titles: Vec<String> = view.passages.into_iter().map(|passage| passage.title).collect();
            (titles.join(" "), outcome.facts.found, outcome.evidence.found["search"])
        };
        let mut episode = start();
        assert_eq!(step(&mut episode, "Xanadu"), ("Xanadu".to_owned(), 1, 0.5));
        assert_eq!(step(&mut episode, "Moon"), ("Moon".to_owned(), 2, 0.0));
        let mut restored: Questions = serde_json::from_slice(&serde_json::to_vec(&episode).unwrap()).unwrap();
        for episode in [&mut episode, &mut restored] {
            assert_eq!(step(episode, "Xanadu"), ("Xanadu".to_owned(), 2, 0.0));
        }
        assert_eq!(restored, episode);
    }

    fn any_action() -> impl Strategy<Value = Action> {
        let texts = prop::sample::select(vec!["Xanadu", "Quill", "Moon", "Xanadu Quill Moon", "Zephyr", ""]);
        (0..4_u8, texts).prop_map(|(kind, text)| match kind {
            0 => Action::Search(text.to_owned()),
            1 => Action::Want(text.to_owned()),
            2 => Action::Answer(text.to_owned()),
            _ => Action::None(text.to_owned()),
        })
    }

    proptest! {
        /// Whatever agents do and however often, an episode pays one answer and its evidence, once.
        #[test]
        fn no_loop_pays(actions in prop::collection::vec(any_action(), 1..12), repeats in 1..4_usize) {
            set_corpus();
            let mut episode = start();
            let settings = score::Settings::default();
            let (mut team, mut own) = (0.0, 0.0);
            let played = std::iter::repeat_n(actions, repeats).flatten();
            for action in played {
                let actions = vec![act("a", action)];
                let Outcome { done, truncated, evidence, .. } =
                    episode.apply(&Settings::default(), &actions).unwrap();
                let (task, facts) = (Task::new("1", &()).unwrap(), serde::de::IgnoredAny);
                let transition = Transition { task, actions, done, truncated, facts, evidence };
                let scores = Score::score(&settings, &transition).unwrap();
                team += scores.team;
                own += scores.local[0].reward;
                prop_assert!(scores.team >= 0.0 && scores.local[0].reward >= 0.0);
            }
            prop_assert!(team <= 1.0 && own <= 1.0 + settings.passage + 1e-9, "{team} {own}");
        }
    }
}
