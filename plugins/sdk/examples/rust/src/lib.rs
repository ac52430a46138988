//! Addition problems, in Rust: the environment and the reward. The reasoner is in `plugins/math`.

use pl_sdk::Value;
use pl_sdk::prelude::*;

/// The numbers to add and the answers so far.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    number: u64,
    terms: Vec<u64>,
    hints: Vec<String>,
    answers: Vec<AgentAnswer>,
    tries: u32,
}

/// An answer of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentAnswer {
    agent: String,
    answer: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Number of summands.
    #[schemars(range(min = 2, max = 5))]
    terms: u32,
    /// Number of tries after which the episode is truncated.
    #[schemars(range(min = 1, max = 100))]
    tries: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { terms: 2, tries: 3 }
    }
}

#[derive(Serialize, Deserialize)]
struct Record {
    number: u64,
    largest: u64,
}

/// View in the form of the maths domain's, so that its reasoner can read it.
#[derive(Serialize)]
pub struct View {
    question: String,
    round: u32,
    tool: Option<()>,
    answers: Vec<AgentAnswer>,
}

/// Action of the reasoner.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Move {
    Answer(String),
    None(String),
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// The latest answer is right.
    right: bool,
    /// Number of tries so far.
    tries: u32,
    /// Latest answer.
    last: String,
}

#[derive(Serialize, Deserialize)]
pub struct Evidence {
    gold: u64,
    latest: Vec<Latest>,
}

/// Answer of an agent in the last step, if any.
#[derive(Serialize, Deserialize)]
struct Latest {
    agent: String,
    answer: Option<String>,
}

impl Environment for Sums {
    const NAME: &'static str = "sums";
    const DOC: &'static str =
        "A sum of numbers from the episode's stream, with a hint after each wrong answer.";
    type Settings = Settings;
    type View = View;
    type Action = Move;
    type Facts = Facts;
    type Evidence = Evidence;

    fn start(settings: &Settings, task: &Task, _seed: u64) -> Result<Self> {
        let Record { number, largest } = task.read()?;
        if largest == 0 {
            return Err(Error::task(format!("task {}: `largest` is 0", task.id)));
        }
        let terms = (0..settings.terms).map(|_| 1 + random::below(largest)).collect();
        Ok(Self { number, terms, hints: Vec::new(), answers: Vec::new(), tries: 0 })
    }

    fn view(&self, _settings: &Settings, _agent: &str) -> Result<View> {
        let terms: Vec<String> = self.terms.iter().map(u64::to_string).collect();
        let hints: String = self.hints.iter().map(|hint| format!(" {hint}")).collect();
        let question = format!("Problem {}: what is {}?{hints}", self.number, terms.join(" + "));
        Ok(View { question, round: self.tries, tool: None, answers: self.answers.clone() })
    }

    fn apply(&mut self, settings: &Settings, actions: &[Action<Move>]) -> Result<Outcome<Facts, Evidence>> {
        self.tries += 1;
        let mut latest = Vec::new();
        for Action { agent, action } in actions {
            let answer = match action {
                Move::Answer(answer) => Some(answer.clone()),
                Move::None(_) => None,
            };
            if let Some(answer) = &answer {
                self.answers.push(AgentAnswer { agent: agent.clone(), answer: answer.clone() });
            }
            latest.push(Latest { agent: agent.clone(), answer });
        }
        let gold: u64 = self.terms.iter().sum();
        let last = self.answers.last().map_or(String::new(), |given| given.answer.clone());
        let right = last == gold.to_string();
        if !right {
            self.hints.push(format!("It is more than {}.", random::below(gold)));
        }
        log::debug(&format!("try {}: {last}", self.tries));
        let truncated = !right && self.tries >= settings.tries;
        let facts = Facts { right, tries: self.tries, last };
        Ok(Outcome { done: right, truncated, facts, evidence: Evidence { gold, latest } })
    }

    fn oracle(&self, _settings: &Settings, _agent: &str) -> Result<Option<Value>> {
        let gold: u64 = self.terms.iter().sum();
        Ok(Some(serde_json::json!({ "answer": gold.to_string() })))
    }

    fn draw(&self, _settings: &Settings, form: DrawingForm) -> Result<Option<String>> {
        let terms: Vec<String> = self.terms.iter().map(u64::to_string).collect();
        Ok((form == DrawingForm::Text).then(|| format!("{} = ?", terms.join(" + "))))
    }

    fn tasks(_settings: &Settings, request: &TaskRequest) -> Result<Vec<Task>> {
        let TaskRequest { split, start, count, level } = request;
        if *level == 0 {
            return Err(Error::settings("sums are generated from level 1 on, not 0"));
        }
        // Different splits use different numbers, so that they have no question in common.
        let Some(share) = ["train", "validation", "test"].iter().position(|name| name == split) else {
            return Err(Error::settings(format!(
                "sums are generated in the splits train, validation and test, not `{split}`"
            )));
        };
        let indices = *start..start.saturating_add(u64::from(*count));
        indices
            .map(|index| {
                let number = index.saturating_mul(3).saturating_add(share as u64);
                let record = Record { number, largest: 10 * u64::from(*level) };
                Task::new(format!("{split}-{level}-{index}"), &record)
            })
            .collect()
    }
}

/// Scores right answers; earlier ones get more.
pub struct Score;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Terms {
    /// Deduction from the team's reward for each earlier wrong try.
    #[schemars(range(min = 0.0, max = 1.0))]
    miss: f64,
}

impl Default for Terms {
    fn default() -> Self {
        Self { miss: 0.25 }
    }
}

impl Reward for Score {
    const NAME: &'static str = "score";
    const DOC: &'static str = "Up to 1 for the team's right answer, less for each wrong one before it; 1 for each agent's own right answer.";
    type Settings = Terms;
    type Action = Move;
    type Facts = Facts;
    type Evidence = Evidence;

    fn score(terms: &Terms, step: &Transition<Move, Facts, Evidence>) -> Result<Scores> {
        let gold = step.evidence.gold.to_string();
        let local = step.evidence.latest.iter().map(|latest| {
            let success = latest.answer.as_ref() == Some(&gold);
            AgentScore { agent: latest.agent.clone(), reward: if success { 1.0 } else { 0.0 }, success }
        });
        let local = local.collect();
        let misses = f64::from(step.facts.tries.saturating_sub(1));
        let team = if step.facts.right { (1.0 - terms.miss * misses).max(0.0) } else { 0.0 };
        Ok(Scores { team, local, success: step.facts.right })
    }
}

pl_sdk::export! { environments: [Sums], rewards: [Score] }

#[cfg(test)]
mod tests {
    use super::*;
    use pl_sdk::services::testing;

    #[test]
    fn a_wrong_answer_gets_a_hint_and_the_right_one_ends_it() {
        testing::set_random(1);
        let settings = Settings::default();
        let task = Task::new("1", &Record { number: 4, largest: 10 }).unwrap();
        let mut sums = Sums::start(&settings, &task, 0).unwrap();
        let act = |answer: String| [Action { agent: "a".to_owned(), action: Move::Answer(answer) }];
        let outcome = sums.apply(&settings, &act("0".to_owned())).unwrap();
        assert!(!outcome.done && sums.view(&settings, "a").unwrap().question.contains("It is more than"));
        let gold = outcome.evidence.gold;
        assert!(sums.apply(&settings, &act(gold.to_string())).unwrap().done);
    }
}
