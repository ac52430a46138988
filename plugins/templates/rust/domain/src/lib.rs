//! A guessing game: an environment, the agent that plays it, and the reward.

use pl_sdk::prelude::*;

/// The number to guess and the guesses. The snapshot is the serialized form: all state must be in fields.
#[derive(Serialize, Deserialize)]
pub struct Game {
    number: u64,
    guesses: Vec<u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Numbers are below this, from 0 on.
    #[schemars(range(min = 1))]
    pub size: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self { size: 100 }
    }
}

/// View of the player.
#[derive(Serialize, Deserialize)]
pub struct Hints {
    size: u64,
    guesses: Vec<(u64, String)>,
}

/// Action of the player.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guess {
    Guess(u64),
    /// Invalid text, with the reason.
    None(String),
}

/// Facts, which the workflow's `when` conditions read as `env.…`.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// The number has been found.
    found: bool,
}

/// Evidence, which only the reward sees.
#[derive(Serialize, Deserialize)]
pub struct Evidence {
    /// Distance of the nearest guess from the number, as a share of all numbers.
    distance: f64,
}

impl Environment for Game {
    const NAME: &'static str = "game";
    const DOC: &'static str = "A number to guess.";
    type Settings = Rules;
    type View = Hints;
    type Action = Guess;
    type Facts = Facts;
    type Evidence = Evidence;

    fn start(rules: &Rules, _task: &Task, _seed: u64) -> Result<Self> {
        // The host's random stream: the same for all samples of a task, and part of every snapshot.
        Ok(Self { number: random::below(rules.size), guesses: Vec::new() })
    }

    fn view(&self, rules: &Rules, _agent: &str) -> Result<Hints> {
        let hint = |guess: &u64| if *guess < self.number { "too small" } else { "too large" };
        let guesses = self.guesses.iter().map(|guess| (*guess, hint(guess).to_owned())).collect();
        Ok(Hints { size: rules.size, guesses })
    }

    fn apply(&mut self, rules: &Rules, actions: &[Action<Guess>]) -> Result<Outcome<Facts, Evidence>> {
        for action in actions {
            if let Guess::Guess(number) = action.action {
                self.guesses.push(number);
            }
        }
        let distances = self.guesses.iter().map(|guess| guess.abs_diff(self.number));
        let nearest = distances.min().unwrap_or(rules.size).min(rules.size);
        let facts = Facts { found: nearest == 0 };
        let evidence = Evidence { distance: nearest as f64 / rules.size as f64 };
        Ok(Outcome { done: facts.found, truncated: false, facts, evidence })
    }

    fn tasks(_: &Rules, request: &TaskRequest) -> Result<Vec<Task>> {
        // A task is a number: even for training, odd for testing.
        let odd = u64::from(request.split == "test");
        let indices = request.start..request.start + u64::from(request.count);
        indices.map(|index| Task::new(format!("{}-{index}", request.split), &(2 * index + odd))).collect()
    }
}

pub struct Player;

impl Agent for Player {
    const NAME: &'static str = "player";
    const DOC: &'static str = "Guesses a number.";
    type Settings = NoSettings;
    type View = Hints;
    type Action = Guess;

    fn prompt(_: &NoSettings, hints: &Hints, _turn: &Turn) -> Result<Option<Request>> {
        let mut text = format!("Guess a number from 0 to {}. Answer with the number alone.\n", hints.size - 1);
        for (guess, hint) in &hints.guesses {
            text.push_str(&format!("{guess} is {hint}.\n"));
        }
        Ok(Some(Request::user(text).with_stop(["\n"])))
    }

    fn parse(_: &NoSettings, _: &Hints, completion: &Completion) -> Result<Guess> {
        let number = completion.text.trim().trim_end_matches('.').parse();
        Ok(number.map_or_else(|_| Guess::None("not a number".to_owned()), Guess::Guess))
    }
}

pub struct Found;

impl Reward for Found {
    const NAME: &'static str = "found";
    const DOC: &'static str = "1 if the number is found, else up to 0.5 for a near guess.";
    type Settings = NoSettings;
    type Action = Guess;
    type Facts = Facts;
    type Evidence = Evidence;

    fn score(_: &NoSettings, step: &Transition<Guess, Facts, Evidence>) -> Result<Scores> {
        let found = step.facts.found;
        let team = if found { 1.0 } else { 0.5 * (1.0 - step.evidence.distance) };
        // Each agent that acted gets its own score: 0 here, because all share the team's.
        let own = |agent: &str| AgentScore { agent: agent.to_owned(), reward: 0.0, success: found };
        let local = step.actions.iter().map(|action| own(&action.agent)).collect();
        Ok(Scores { team, local, success: found })
    }
}

pl_sdk::export! { environments: [Game], agents: [Player], rewards: [Found] }

#[cfg(test)]
mod tests {
    use pl_sdk::services::testing;

    use super::*;

    fn game() -> (Rules, Game) {
        testing::set_random(1);
        let rules = Rules { size: 20 };
        let game = Game::start(&rules, &Task::new("1", &()).unwrap(), 0).unwrap();
        (rules, game)
    }

    fn guess(game: &mut Game, rules: &Rules, number: u64) -> Outcome<Facts, Evidence> {
        game.apply(rules, &[Action { agent: "a".to_owned(), action: Guess::Guess(number) }]).unwrap()
    }

    #[test]
    fn the_number_is_found() {
        let (rules, mut game) = game();
        let number = game.number;
        assert!(!guess(&mut game, &rules, number + 1).done);
        assert_eq!(game.view(&rules, "a").unwrap().guesses, [(number + 1, "too large".to_owned())]);
        assert!(guess(&mut game, &rules, number).facts.found);
    }

    #[test]
    fn a_snapshot_goes_on_where_the_game_was() {
        let (rules, mut game) = game();
        guess(&mut game, &rules, 3);
        let mut copy: Game = serde_json::from_str(&serde_json::to_string(&game).unwrap()).unwrap();
        let (one, other) = (guess(&mut game, &rules, 5), guess(&mut copy, &rules, 5));
        assert_eq!(one.evidence.distance, other.evidence.distance);
    }

    #[test]
    fn numbers_are_guesses_and_the_rest_is_none() {
        let hints = Hints { size: 20, guesses: vec![(3, "too small".to_owned())] };
        let turn = Turn { agent: "a".to_owned(), visit: 1 };
        let request = Player::prompt(&NoSettings {}, &hints, &turn).unwrap().unwrap();
        assert!(request.messages[0].text().ends_with("3 is too small.\n"));
        for (text, action) in [(" 7.", Guess::Guess(7)), ("seven", Guess::None("not a number".to_owned()))] {
            let completion = Completion { text: text.to_owned(), tool_calls: Vec::new(), finish: Finish::Stop };
            assert_eq!(Player::parse(&NoSettings {}, &hints, &completion).unwrap(), action);
        }
    }
}
