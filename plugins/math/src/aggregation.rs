//! Aggregation: samplers solve a problem side by side, and an aggregator that sees their solutions gives the final
//! answer.

use pl_sdk::prelude::*;

use crate::agents::{Settings, answer_of};
use crate::problems::{Action, AgentAnswer, Solution, View};

/// Solves the problem on its own. Its prompt shows nobody's answers, so that several samplers are independent.
pub struct Sampler;

impl Agent for Sampler {
    const NAME: &'static str = "sampler";
    const DOC: &'static str = "Solves the problem on its own, for an aggregator that sees the solution.";
    type Settings = Settings;
    type View = View;
    type Action = Action;

    fn prompt(settings: &Settings, view: &View, _turn: &Turn) -> Result<Option<Request>> {
        settings.boxed_request(view.question.clone()).map(Some)
    }

    fn parse(_settings: &Settings, _view: &View, completion: &Completion) -> Result<Action> {
        Ok(match answer_of(completion) {
            Ok(answer) => Action::Solution(Solution { answer, work: completion.text.trim().to_owned() }),
            Err(reason) => Action::None(reason.to_owned()),
        })
    }
}

/// Settings of the aggregator.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AggregatorSettings {
    /// Replaces the instruction in the system message. An empty one sends no system message.
    pub instruction: Option<String>,
    /// Worked examples before the question, at most 4. Small models need them, large ones do without.
    #[schemars(range(max = 4))]
    pub examples: u32,
    /// Characters of each solution that the prompt shows, half of them from its end. With 0 it shows only the
    /// answers.
    pub shown: u32,
}

impl Default for AggregatorSettings {
    fn default() -> Self {
        // About 100 tokens of each solution: three of them and the examples fit into the context of a small model.
        Self { instruction: None, examples: 4, shown: 400 }
    }
}

/// Gives the final answer. Its prompt shows the newest solution of each other agent.
pub struct Aggregator;

impl Agent for Aggregator {
    const NAME: &'static str = "aggregator";
    const DOC: &'static str = "Sees the newest solution of each other agent and gives the final answer.";
    type Settings = AggregatorSettings;
    type View = View;
    type Action = Action;

    fn prompt(settings: &AggregatorSettings, view: &View, turn: &Turn) -> Result<Option<Request>> {
        let mut text = view.question.clone();
        for (index, given) in newest(&view.answers, &turn.agent).into_iter().enumerate() {
            text.push_str(&format!("\nAnswer {}, which may be wrong: {}", index + 1, given.answer));
            if let Some(work) = given.work.as_ref().filter(|_| settings.shown > 0) {
                text.push_str(&format!("\nIts solution: {}", shortened(work, settings.shown as usize)));
            }
        }
        let settings = Settings { instruction: settings.instruction.clone(), examples: settings.examples };
        settings.boxed_request(text).map(Some)
    }

    fn parse(_settings: &AggregatorSettings, _view: &View, completion: &Completion) -> Result<Action> {
        Ok(answer_of(completion).map_or_else(|reason| Action::None(reason.to_owned()), Action::Answer))
    }
}

/// Returns the newest answer of each agent except `own`, in the order in which the agents first answered.
fn newest<'a>(answers: &'a [AgentAnswer], own: &str) -> Vec<&'a AgentAnswer> {
    let mut newest: Vec<&AgentAnswer> = Vec::new();
    for given in answers.iter().filter(|given| given.agent != own) {
        match newest.iter_mut().find(|earlier| earlier.agent == given.agent) {
            Some(earlier) => *earlier = given,
            None => newest.push(given),
        }
    }
    newest
}

/// Returns the text without its middle if it has more than `length` characters.
fn shortened(text: &str, length: usize) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= length {
        return text.to_owned();
    }
    let (start, end) = (length - length / 2, characters.len() - length / 2);
    let part = |part: Option<&[char]>| part.unwrap_or_default().iter().collect::<String>();
    format!("{} … {}", part(characters.get(..start)), part(characters.get(end..)))
}

#[cfg(test)]
mod tests {
    use pl_sdk::Finish;

    use super::*;

    fn view() -> View {
        let given = |agent: &str, answer: &str, work: Option<&str>| AgentAnswer {
            agent: agent.to_owned(),
            answer: answer.to_owned(),
            work: work.map(str::to_owned),
        };
        let answers = vec![
            given("a", "6", Some("3 + 4 = 6")),
            given("b", "7", None),
            given("sum", "6", None),
            given("a", "7", Some("Three and four make \\boxed{7}.")),
        ];
        View { question: "What is 3 + 4?".to_owned(), round: 3, tool: None, answers }
    }

    fn prompt<A: Agent<View = View>>(settings: &A::Settings) -> String {
        let turn = Turn { agent: "sum".to_owned(), visit: 1 };
        let request = A::prompt(settings, &view(), &turn).unwrap().unwrap();
        request.messages.last().unwrap().text()
    }

    fn completion(text: &str) -> Completion {
        Completion { text: text.to_owned(), tool_calls: Vec::new(), finish: Finish::Stop }
    }

    #[test]
    fn a_sampler_sees_no_answers_and_hands_over_its_work() {
        assert_eq!(prompt::<Sampler>(&Settings::default()), "What is 3 + 4?");
        let action =
            Sampler::parse(&Settings::default(), &view(), &completion(" 3 + 4 = \\boxed{7} ")).unwrap();
        let solution = Solution { answer: "7".to_owned(), work: "3 + 4 = \\boxed{7}".to_owned() };
        assert_eq!(action, Action::Solution(solution));
    }

    #[test]
    fn the_aggregator_sees_the_newest_solution_of_each_other_agent() {
        assert_eq!(
            prompt::<Aggregator>(&AggregatorSettings::default()),
            "What is 3 + 4?\nAnswer 1, which may be wrong: 7\nIts solution: Three and four make \\boxed{7}.\n\
             Answer 2, which may be wrong: 7"
        );
        let bare = AggregatorSettings { shown: 0, ..AggregatorSettings::default() };
        assert_eq!(
            prompt::<Aggregator>(&bare),
            "What is 3 + 4?\nAnswer 1, which may be wrong: 7\nAnswer 2, which may be wrong: 7"
        );
        let action = Aggregator::parse(&bare, &view(), &completion("\\boxed{7}")).unwrap();
        assert_eq!(action, Action::Answer("7".to_owned()));
        let none = Aggregator::parse(&bare, &view(), &completion("")).unwrap();
        assert_eq!(none, Action::None("no answer".to_owned()));
    }

    #[test]
    fn long_solutions_lose_their_middle() {
        assert_eq!(shortened("abcdefghij", 4), "ab … ij");
        assert_eq!(shortened("abcdefghij", 1), "a … ");
        assert_eq!(shortened("äöü", 3), "äöü");
    }
}
