//! The agents: one writes queries, one reads passages and answers. Instructions are in the system message, and worked
//! examples come before the question: small models follow the form of their own last answers.

use pl_sdk::prelude::*;

use crate::questions::{Action, View};

/// Worked examples: question, query, passage with its title, answer. No data set has these questions.
const EXAMPLES: [(&str, &str, &str, &str, &str); 2] = [
    (
        "In which country is the village of Brumholt?",
        "Brumholt village country",
        "Brumholt",
        "Brumholt is a village in the north of Denmark with 212 inhabitants.",
        "Denmark",
    ),
    (
        "Who wrote the song that Ada Quist sang in 1961?",
        "Ada Quist song 1961 writer",
        "Ada Quist",
        "Ada Quist was a singer. In 1961 she sang \"Northern Tide\", a song by Lars Holm.",
        "Lars Holm",
    ),
];

/// Settings of the searcher.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SearcherSettings {
    /// Replaces the instruction in the system message. An empty one sends no system message.
    pub instruction: Option<String>,
    /// Worked examples before the question, at most 2. Small models need them, large ones do without.
    #[schemars(range(max = 2))]
    pub examples: u32,
}

impl Default for SearcherSettings {
    fn default() -> Self {
        Self { instruction: None, examples: 2 }
    }
}

/// Settings of the reasoner.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReasonerSettings {
    /// Replaces the instruction in the system message. An empty one sends no system message.
    pub instruction: Option<String>,
    /// Worked examples before the question, at most 2. Small models need them, large ones do without.
    #[schemars(range(max = 2))]
    pub examples: u32,
    /// Lets the reasoner search by itself, for a team of one. Otherwise what it writes between `<search>` tags is a wish
    /// that the searcher sees.
    pub searches: bool,
}

impl Default for ReasonerSettings {
    fn default() -> Self {
        Self { instruction: None, examples: 2, searches: false }
    }
}

/// An example as an agent sees and answers it.
type Example = fn(&(&str, &str, &str, &str, &str)) -> (String, String);

/// Builds a request. `example` formats an example's question and answer.
fn request(count: u32, instruction: &str, question: String, example: Example) -> Result<Request> {
    let examples = EXAMPLES.get(..count as usize).ok_or_else(|| {
        Error::settings(format!("examples = {count}, but there are {} of them", EXAMPLES.len()))
    })?;
    let request = examples
        .iter()
        .map(example)
        .fold(Request::user(question), |request, (question, answer)| request.with_example(question, answer));
    Ok(if instruction.is_empty() { request } else { request.with_system(instruction) })
}

/// Writes passages for a prompt, each with its title.
fn listed<'p>(passages: impl Iterator<Item = (&'p str, &'p str)>) -> String {
    let mut text = String::new();
    for (number, (title, body)) in passages.enumerate() {
        let title = if title.is_empty() { String::new() } else { format!("{title}: ") };
        text.push_str(&format!("\n[{}] {title}{body}", number + 1));
    }
    text
}

fn listed_view(view: &View) -> String {
    listed(view.passages.iter().map(|passage| (passage.title.as_str(), passage.text.as_str())))
}

/// Returns what the reasoner reads: passages as [`listed`] writes them, and the question.
fn reading(passages: &str, question: &str) -> String {
    let passages = if passages.is_empty() { "\nNone." } else { passages };
    format!("Passages:{passages}\nQuestion: {question}")
}

/// Writes the query of a search.
pub struct Searcher;

impl Agent for Searcher {
    const NAME: &'static str = "searcher";
    const DOC: &'static str = "Writes a search query for what the question still needs.";
    type Settings = SearcherSettings;
    type View = View;
    type Action = Action;

    fn prompt(settings: &SearcherSettings, view: &View, _turn: &Turn) -> Result<Option<Request>> {
        let mut text = format!("Question: {}", view.question);
        if !view.queries.is_empty() {
            text.push_str(&format!("\nSearched before: {}", view.queries.join("; ")));
            text.push_str(match view.passages.is_empty() {
                true => "\nNothing was found.",
                false => "\nFound:",
            });
            text.push_str(&listed_view(view));
        }
        if let Some(wish) = &view.wanted {
            text.push_str(&format!("\nStill needed: {wish}"));
        }
        let instruction = "Write one short search query that finds what the question still needs. \
                           Put it between <search> and </search>.";
        let instruction = settings.instruction.as_deref().unwrap_or(instruction);
        request(settings.examples, instruction, text, |(question, query, ..)| {
            (format!("Question: {question}"), format!("<search>{query}</search>"))
        })
        .map(|request| Some(request.with_stop(["</search>"])))
    }

    fn parse(_settings: &SearcherSettings, _view: &View, completion: &Completion) -> Result<Action> {
        Ok(match tagged(&completion.text, "search") {
            Some((_, query)) => Action::Search(query),
            None => Action::None("no query".to_owned()),
        })
    }
}

/// Reads the passages, and answers or asks for more.
pub struct Reasoner;

impl Agent for Reasoner {
    const NAME: &'static str = "reasoner";
    const DOC: &'static str = "Reads the passages, and answers the question or says what is missing.";
    type Settings = ReasonerSettings;
    type View = View;
    type Action = Action;

    fn prompt(settings: &ReasonerSettings, view: &View, _turn: &Turn) -> Result<Option<Request>> {
        let text = reading(&listed_view(view), &view.question);
        let instruction = "Answer the question from the passages with a name, a number or a few words between <answer> and \
                           </answer>. If they don't tell, write what to look for between <search> and </search>.";
        let instruction = settings.instruction.as_deref().unwrap_or(instruction);
        let searched: Example =
            |(question, query, ..)| (reading("", question), format!("<search>{query}</search>"));
        let answered: Example = |(question, _, title, body, answer)| {
            let passages = listed([(*title, *body)].into_iter());
            (reading(&passages, question), format!("<answer>{answer}</answer>"))
        };
        // Alone, an agent without passages has nothing to answer from.
        let example = if settings.searches && view.passages.is_empty() { searched } else { answered };
        request(settings.examples, instruction, text, example)
            .map(|request| Some(request.with_stop(["</answer>", "</search>"])))
    }

    fn parse(settings: &ReasonerSettings, _view: &View, completion: &Completion) -> Result<Action> {
        let text = &completion.text;
        let found = match (tagged(text, "answer"), tagged(text, "search")) {
            // The tag that comes first counts.
            (Some((at, answer)), Some((other, _))) if at < other => Action::Answer(answer),
            (Some((_, answer)), None) => Action::Answer(answer),
            (_, Some((_, query))) if settings.searches => Action::Search(query),
            (_, Some((_, wish))) => Action::Want(wish),
            (None, None) => Action::None("no answer".to_owned()),
        };
        Ok(found)
    }
}

/// Returns the text of the first tag that has any, and its place. The end of the completion ends a tag too, because the
/// closing one is a stop string.
fn tagged(text: &str, tag: &str) -> Option<(usize, String)> {
    let open = format!("<{tag}>");
    text.match_indices(&open).find_map(|(at, _)| {
        let inside = text.get(at + open.len()..)?;
        let inside = inside.split('<').next()?.split_whitespace().collect::<Vec<_>>().join(" ");
        (!inside.is_empty()).then_some((at, inside))
    })
}

#[cfg(test)]
mod tests {
    use pl_sdk::Finish;

    use super::*;
    use crate::passages::Shown;

    fn completion(text: &str) -> Completion {
        Completion { text: text.to_owned(), tool_calls: Vec::new(), finish: Finish::Stop }
    }

    fn view() -> View {
        View {
            question: "Who founded Quill?".to_owned(),
            round: 0,
            queries: Vec::new(),
            passages: Vec::new(),
            wanted: None,
        }
    }

    fn later_view() -> View {
        let shown = |title: &str, text: &str| Shown { title: title.to_owned(), text: text.to_owned() };
        View {
            round: 2,
            queries: vec!["Quill".to_owned(), "Quill founder".to_owned()],
            passages: vec![shown("Quill", "A town."), shown("", "Founded by Ida Moor.")],
            wanted: Some("the founder's name".to_owned()),
            ..view()
        }
    }

    fn text(request: Request) -> String {
        let messages = request.messages.iter();
        let messages: String =
            messages.map(|message| format!("[{:?}]\n{}\n", message.role, message.text())).collect();
        format!("{messages}stop: {}", request.stop.join(" "))
    }

    fn turn() -> Turn {
        Turn { agent: "a".to_owned(), visit: 0 }
    }

    #[test]
    fn prompts() {
        let searcher = |view: &View| {
            text(Searcher::prompt(&SearcherSettings::default(), view, &turn()).unwrap().unwrap())
        };
        let reasoner = |view: &View| {
            text(Reasoner::prompt(&ReasonerSettings::default(), view, &turn()).unwrap().unwrap())
        };
        insta::assert_snapshot!("searcher_first", searcher(&view()));
        insta::assert_snapshot!("searcher_again", searcher(&later_view()));
        insta::assert_snapshot!("reasoner_first", reasoner(&view()));
        insta::assert_snapshot!("reasoner_again", reasoner(&later_view()));
        let alone = ReasonerSettings { searches: true, ..ReasonerSettings::default() };
        let alone = |view: &View| text(Reasoner::prompt(&alone, view, &turn()).unwrap().unwrap());
        insta::assert_snapshot!("reasoner_alone_first", alone(&view()));
        assert_eq!(alone(&later_view()), reasoner(&later_view()));
    }

    #[test]
    fn settings_change_the_prompt() {
        let bare = SearcherSettings { instruction: Some(String::new()), examples: 0 };
        let request = Searcher::prompt(&bare, &view(), &turn()).unwrap().unwrap();
        let messages: Vec<String> = request.messages.iter().map(Message::text).collect();
        assert_eq!(messages, ["Question: Who founded Quill?"]);
        let many = ReasonerSettings { examples: 3, ..ReasonerSettings::default() };
        let error = Reasoner::prompt(&many, &view(), &turn()).unwrap_err();
        assert_eq!(error.message, "examples = 3, but there are 2 of them");
    }

    #[test]
    fn queries_are_found() {
        let parse =
            |text: &str| Searcher::parse(&SearcherSettings::default(), &view(), &completion(text)).unwrap();
        let search = |query: &str| Action::Search(query.to_owned());
        assert_eq!(parse("I need <search> Quill\n founder </search> now"), search("Quill founder"));
        assert_eq!(parse("<search>Quill"), search("Quill"));
        assert_eq!(parse("<search></search><search>two</search>"), search("two"));
        assert_eq!(parse("<answer>Ida</answer>"), Action::None("no query".to_owned()));
        assert_eq!(parse("Quill founder"), Action::None("no query".to_owned()));
    }

    #[test]
    fn answers_and_wishes_are_found() {
        let parse = |searches, text: &str| {
            let settings = ReasonerSettings { searches, ..ReasonerSettings::default() };
            Reasoner::parse(&settings, &view(), &completion(text)).unwrap()
        };
        assert_eq!(parse(false, "<answer>Ida Moor</answer>"), Action::Answer("Ida Moor".to_owned()));
        assert_eq!(parse(false, "<search>founder"), Action::Want("founder".to_owned()));
        assert_eq!(parse(true, "<search>founder"), Action::Search("founder".to_owned()));
        let both = "<search>x</search><answer>y</answer>";
        assert_eq!(parse(true, both), Action::Search("x".to_owned()));
        assert_eq!(parse(true, "<answer>y</answer><search>x</search>"), Action::Answer("y".to_owned()));
        assert_eq!(parse(false, "Ida Moor"), Action::None("no answer".to_owned()));
        assert_eq!(parse(false, ""), Action::None("no answer".to_owned()));
    }
}
