//! The environment of every game: a puzzle, the newest program, the newest plan.

use std::collections::BTreeMap;

use pl_sdk::Value;
use pl_sdk::prelude::*;
use pl_sdk::sandbox::Job;
use serde_json::json;

use crate::game::{Game, GameKind, StateForm};
use crate::program::{self, ProgramRun};
use crate::rules::{Play, Rules, reference};
use crate::{tasks, text};

/// Characters shown of a plan.
const MAX_PLAN: usize = 500;

/// An episode with one puzzle. It ends when the puzzle is solved, or at its horizon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "G: Game")]
pub struct Puzzle<G> {
    play: Play<G>,
    /// Number of steps of the environment so far.
    round: u32,
    /// The newest program.
    program: Option<ProgramRun>,
    /// The newest plan that was played.
    plan: Option<PlayedPlan>,
    /// Sum of the values of all plans that were played.
    earned: f64,
    /// Value that each agent has been paid for its programs so far.
    proposed: BTreeMap<String, f64>,
    /// Reward of the state after the newest plan, by the reference's rules.
    state_reward: f64,
}

/// A plan that was played.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlayedPlan {
    /// The plan, as the agent wrote it. Empty if there was none.
    pub plan: String,
    /// Place of the first invalid move, from 1 on.
    pub first_invalid: Option<u32>,
}

/// Settings of the environments.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Number of the set of generated puzzles. Train and test never share a puzzle, for any seed.
    pub seed: u64,
    /// Rules of moves, rewards and success: `sound`, or `reference` to compare with published numbers.
    pub rules: Rules,
    /// Form of the state that agents see: `board`, or `words` for small models that make one move at a time. Only
    /// `plan_path` has words: the free directions, and how far the goal lies in each.
    pub state: StateForm,
}

/// View of every agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The game.
    pub game: GameKind,
    /// The current state, as text.
    pub state: String,
    /// Form of the state. Left out if it is the board.
    #[serde(default, skip_serializing_if = "StateForm::is_board")]
    pub form: StateForm,
    /// Number of steps so far.
    pub round: u32,
    /// The newest program, its output and the plan that it printed.
    pub program: Option<ProgramRun>,
    /// The newest plan that was played.
    pub plan: Option<PlayedPlan>,
}

/// Action of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Run a Python program that prints a plan. The state stays. An empty text stands for an answer without a program.
    Python(String),
    /// Play the plan in this text.
    Answer(String),
    /// No usable action, with the reason.
    None(String),
}

/// Facts for the conditions of workflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// True if the puzzle is solved.
    pub solved: bool,
    /// True if the newest plan that was played had no invalid move.
    pub valid: bool,
    /// Number of moves so far.
    pub steps: u32,
    /// Number of invalid moves so far.
    pub invalid: u32,
    /// True if the newest program printed a plan.
    pub proposed: bool,
}

/// Evidence for the reward. Agents never see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Score that all agents share.
    pub team: f64,
    /// True if the puzzle is solved.
    pub solved: bool,
    /// Score of each agent that has just acted.
    pub own: BTreeMap<String, OwnScore>,
}

/// Score of an agent's own action.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OwnScore {
    /// Its reward.
    pub reward: f64,
    /// True if its plan solves the puzzle.
    pub solves: bool,
}

impl<G: Game> Environment for Puzzle<G> {
    const NAME: &'static str = G::NAME;
    const DOC: &'static str = G::DOC;
    type Settings = Settings;
    type View = View;
    type Action = Action;
    type Facts = Facts;
    type Evidence = Evidence;

    fn start(settings: &Settings, task: &Task, _seed: u64) -> Result<Self> {
        settings.check::<G>()?;
        let game = G::start(task.read()?)
            .map_err(|error| Error { message: format!("task {}: {}", task.id, error.message), ..error })?;
        Ok(Self {
            play: Play::new(game),
            round: 0,
            program: None,
            plan: None,
            earned: 0.0,
            proposed: BTreeMap::new(),
            state_reward: 0.0,
        })
    }

    fn view(&self, settings: &Settings, _agent: &str) -> Result<View> {
        Ok(View {
            game: G::KIND,
            state: match settings.state {
                StateForm::Board => self.play.game.show(),
                StateForm::Words => self.play.game.describe(),
            },
            form: settings.state,
            round: self.round,
            program: self.program.clone(),
            plan: self.plan.clone(),
        })
    }

    fn apply(
        &mut self,
        settings: &Settings,
        actions: &[pl_sdk::Action<Action>],
    ) -> Result<Outcome<Facts, Evidence>> {
        let programs = actions.iter().filter_map(|action| match &action.action {
            Action::Python(code) if !code.is_empty() => Some(code.as_str()),
            _ => None,
        });
        // All programs of a turn at once: the sandbox runs them in parallel.
        let jobs: Vec<Job> = programs.map(program::job).collect();
        let mut verdicts = if jobs.is_empty() { Vec::new() } else { sandbox::execute(&jobs) }.into_iter();
        self.round += 1;
        let mut evidence = Evidence { team: 0.0, solved: false, own: BTreeMap::new() };
        for pl_sdk::Action { agent, action } in actions {
            let (team, own) = match action {
                Action::Python(code) => {
                    let run = match code.as_str() {
                        "" => ProgramRun::missing(),
                        code => ProgramRun::new(code, verdicts.next(), |output| {
                            Some(text::find::<G>(output)?.source.to_owned())
                        }),
                    };
                    self.propose(settings.rules, agent, run)
                }
                Action::Answer(answer) => self.play(settings.rules, answer),
                Action::None(_) => self.play(settings.rules, ""),
            };
            evidence.team += team;
            evidence.own.insert(agent.clone(), own);
        }
        evidence.solved = self.play.solved;
        let truncated = settings.rules == Rules::Sound && !self.play.solved && self.play.at_horizon();
        Ok(Outcome { done: self.play.solved || truncated, truncated, facts: self.facts(), evidence })
    }

    fn oracle(&self, _settings: &Settings, _agent: &str) -> Result<Option<Value>> {
        if self.play.solved {
            return Ok(None);
        }
        let answer = |plan: Vec<G::Move>| json!(Action::Answer(format!("#### {}", G::write(&plan))));
        Ok(self.play.game.solution().map(answer))
    }

    fn draw(&self, _settings: &Settings, form: DrawingForm) -> Result<Option<String>> {
        Ok(Some(match form {
            DrawingForm::Svg => self.play.game.draw().finish(),
            DrawingForm::Text => self.play.game.show(),
        }))
    }

    fn tasks(settings: &Settings, request: &TaskRequest) -> Result<Vec<Task>> {
        settings.check::<G>()?;
        tasks::tasks::<G>(settings.seed, request)
    }
}

impl Settings {
    /// Checks that the game has a state of the form.
    ///
    /// # Errors
    /// [`Error::settings`] if it has no words.
    fn check<G: Game>(&self) -> Result<()> {
        if self.state == StateForm::Words && !G::HAS_WORDS {
            return Err(Error::settings(format!("{} has no state in words: leave `state` out", G::NAME)));
        }
        Ok(())
    }
}

impl<G: Game> Puzzle<G> {
    /// Plays the plan of a text. Returns the team's score and the agent's own.
    fn play(&mut self, rules: Rules, answer: &str) -> (f64, OwnScore) {
        let found = text::find::<G>(answer);
        let plan = found.as_ref().map(|found| found.moves.as_slice());
        let mut first_invalid = None;
        let solved_before = self.play.solved;
        let (team, reward) = match rules {
            Rules::Sound => {
                let worth = self.play.run(plan);
                first_invalid = worth.first_invalid;
                self.earned += worth.total();
                (worth.ending, worth.conduct)
            }
            Rules::Reference => {
                // The reference plays an answer without a plan as an empty one.
                self.state_reward = self.play.run_by_reference(plan.or(Some(&[])));
                (self.state_reward, reference::planner(self.state_reward, plan.is_some()))
            }
        };
        let plan = found.map_or("", |found| found.source).chars().take(MAX_PLAN).collect();
        self.plan = Some(PlayedPlan { plan, first_invalid });
        (team, OwnScore { reward, solves: self.play.solved && !solved_before })
    }

    /// Tries the plan that a program printed on a copy of the state. Returns the team's score and the agent's own.
    ///
    /// By the sound rules, a program is worth what the episode would earn if its plan ended it, and pays the difference
    /// to the agent's program before. An agent's programs thus earn the worth of its last one, however many there are.
    fn propose(&mut self, rules: Rules, agent: &str, run: ProgramRun) -> (f64, OwnScore) {
        let found = run.plan.as_deref().and_then(text::find::<G>);
        let plan = found.as_ref().map(|found| found.moves.as_slice());
        let mut trial = self.play.clone();
        let (team, reward) = match rules {
            Rules::Sound => {
                let worth = self.earned + trial.run(plan).total();
                let before = self.proposed.insert(agent.to_owned(), worth).unwrap_or(0.0);
                (0.0, worth - before)
            }
            Rules::Reference => {
                let reward = trial.run_by_reference(plan);
                (self.state_reward, reference::tool(G::KIND, reward, plan.is_some()))
            }
        };
        self.program = Some(run);
        (team, OwnScore { reward, solves: trial.solved && !self.play.solved })
    }

    fn facts(&self) -> Facts {
        Facts {
            solved: self.play.solved,
            valid: self
                .plan
                .as_ref()
                .is_some_and(|plan| !plan.plan.is_empty() && plan.first_invalid.is_none()),
            steps: self.play.steps,
            invalid: self.play.invalid,
            proposed: self.program.as_ref().is_some_and(|program| program.plan.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use pl_sdk::services::testing;

    use super::*;
    use crate::laws::close;
    use crate::plan_path::PlanPath;
    use crate::sudoku::Sudoku;

    fn start(rules: Rules) -> (Settings, Puzzle<PlanPath>) {
        let task = Task::new("1", &json!({"grid": ["S..", ".#G"]})).unwrap();
        let settings = Settings { rules, ..Settings::default() };
        (settings, Puzzle::start(&settings, &task, 0).unwrap())
    }

    fn act(agent: &str, action: Action) -> pl_sdk::Action<Action> {
        pl_sdk::Action { agent: agent.to_owned(), action }
    }

    fn answer(text: &str) -> Action {
        Action::Answer(text.to_owned())
    }

    fn python() -> Action {
        Action::Python("solve()".to_owned())
    }

    /// Applies one action. Returns the team's score, the agent's own, and whether its plan solves the puzzle.
    fn apply(
        (settings, puzzle): &mut (Settings, Puzzle<PlanPath>),
        action: Action,
    ) -> (f64, f64, bool, Outcome<Facts, Evidence>) {
        let outcome = puzzle.apply(settings, &[act("a", action)]).unwrap();
        let OwnScore { reward, solves } = outcome.evidence.own["a"];
        (outcome.evidence.team, reward, solves, outcome)
    }

    #[test]
    fn a_tool_proposes_and_a_planner_moves() {
        testing::set_sandbox(|job| {
            assert_eq!((job.language.as_str(), job.source.as_str()), ("python", "solve()"));
            testing::printed("thinking [1]\n**Actions List**: ['R', 'R', 'D']\n")
        });
        let mut episode = start(Rules::Sound);
        let (team, own, solves, outcome) = apply(&mut episode, python());
        // Three steps, three cells nearer, goal and bonus.
        assert!(team == 0.0 && close(own, 3.0 * 0.99 + 1.5) && solves);
        let facts = Facts { solved: false, valid: false, steps: 0, invalid: 0, proposed: true };
        assert_eq!((outcome.facts, outcome.done), (facts, false));
        let view = episode.1.view(&episode.0, "b").unwrap();
        assert_eq!(view.program.unwrap().plan.as_deref(), Some("['R', 'R', 'D']"));
        assert!(view.state.starts_with("S..\n.#G\n"), "the state stays");
        let (team, own, solves, outcome) = apply(&mut episode, answer("#### [\"R\", \"D\", \"L\"]"));
        assert!(team == 0.0 && close(own, -0.01 - 0.1 - 0.01) && !solves);
        assert_eq!(outcome.facts, Facts { steps: 3, invalid: 1, ..facts });
        let view = episode.1.view(&episode.0, "b").unwrap();
        let played = PlayedPlan { plan: "[\"R\", \"D\", \"L\"]".to_owned(), first_invalid: Some(2) };
        assert_eq!(view.plan, Some(played));
        // With the same program, the episode would now earn less: the moves have cost 0.12, and the way has no bonus.
        let (team, own, ..) = apply(&mut episode, python());
        assert!(team == 0.0 && close(own, -0.12 - 0.5), "{own}");
        let (team, own, _, outcome) = apply(&mut episode, answer("R R D and so on"));
        assert!(team == 0.0 && own == -1.0 && !outcome.done, "a sentence is not a plan");
        let (team, own, solves, outcome) = apply(&mut episode, answer("[R, R, D, D]"));
        assert!(team == 1.0 && close(own, 3.0 * 0.99) && solves && outcome.done && !outcome.truncated);
        assert_eq!(outcome.facts, Facts { solved: true, valid: true, steps: 6, ..outcome.facts });
    }

    #[test]
    fn an_episode_is_truncated_at_its_horizon() {
        let mut episode = start(Rules::Sound);
        let (team, own, solves, outcome) = apply(&mut episode, answer(&format!("[{}]", "U,".repeat(100))));
        assert_eq!((outcome.done, outcome.truncated, outcome.facts.steps, solves), (true, true, 24, false));
        assert!(team == -1.0 && close(own, -2.4));
    }

    #[test]
    fn a_state_in_words_is_for_games_that_have_them() {
        let (_, puzzle) = start(Rules::Sound);
        let settings = Settings { state: StateForm::Words, ..Settings::default() };
        let view = puzzle.view(&settings, "a").unwrap();
        assert_eq!(
            (view.form, view.state.as_str()),
            (StateForm::Words, "Free directions: down, right. Goal: 1 down and 2 right.")
        );
        let task = Task::new("1", &json!({"puzzle": "1.3434.221.3432."})).unwrap();
        let error = Puzzle::<Sudoku>::start(&settings, &task, 0).unwrap_err();
        assert_eq!(error.message, "sudoku has no state in words: leave `state` out");
        let request = TaskRequest { split: "train".to_owned(), start: 0, count: 1, level: 0 };
        assert_eq!(Puzzle::<Sudoku>::tasks(&settings, &request).unwrap_err(), error);
    }

    #[test]
    fn answers_without_a_plan() {
        for action in [answer("[]"), answer("no idea"), Action::None("empty".to_owned()), python()] {
            testing::set_sandbox(|_| testing::printed("nothing"));
            let (team, own, solves, outcome) = apply(&mut start(Rules::Sound), action.clone());
            assert!(team == 0.0 && own == -1.0 && !solves && !outcome.facts.valid, "{action:?}");
        }
    }

    #[test]
    fn a_missing_program_is_no_plan() {
        testing::set_sandbox(|_| testing::printed("[R]"));
        let missing = || Action::Python(String::new());
        let mut episode = start(Rules::Sound);
        apply(&mut episode, answer("[R]"));
        let (team, own, solves, outcome) = apply(&mut episode, missing());
        assert!(team == 0.0 && close(own, 0.99 - 1.0) && !solves && !outcome.facts.proposed);
        let view = episode.1.view(&episode.0, "b").unwrap();
        assert_eq!(view.plan.unwrap().plan, "[R]", "the planner's plan stays");
        let (_, own, ..) = apply(&mut start(Rules::Reference), missing());
        assert_eq!(own, 0.0);
    }

    #[test]
    fn an_ending_is_paid_once_to_agents_side_by_side() {
        let (settings, mut puzzle) = start(Rules::Sound);
        let both = [act("a", answer("[R, R, D]")), act("b", answer("[R, R, D]"))];
        let evidence = puzzle.apply(&settings, &both).unwrap().evidence;
        assert!(evidence.team == 1.5 && close(evidence.own["a"].reward, 3.0 * 0.99));
        assert_eq!(evidence.own["b"], OwnScore { reward: 0.0, solves: false });
        let (settings, mut puzzle) = start(Rules::Sound);
        let long = answer(&format!("[{}]", "U,".repeat(100)));
        let evidence = puzzle.apply(&settings, &[act("a", long.clone()), act("b", long)]).unwrap().evidence;
        assert!(evidence.team == -1.0 && evidence.own["b"].reward == 0.0);
    }

    #[test]
    fn the_reference_counts_a_planners_reward_twice() {
        testing::set_sandbox(|_| testing::printed("**Actions List**: [\"R\"]"));
        let mut episode = start(Rules::Reference);
        let right = -0.01 + 0.99 * -2.0 + 3.0;
        let (team, own, solves, _) = apply(&mut episode, python());
        assert!(team == 0.0 && close(own, right) && !solves);
        let (team, own, ..) = apply(&mut episode, answer("[\"R\"]"));
        assert!(close(team, right) && close(own, right));
        // The tool shares the reward of the planner's last turn.
        let (team, own, ..) = apply(&mut episode, python());
        assert!(close(team, right) && close(own, -0.01 - 0.99 + 2.0));
        let (team, own, ..) = apply(&mut episode, answer("nothing"));
        assert!(team == 0.0 && own == -2.0);
        testing::set_sandbox(|_| testing::printed("nothing"));
        let (_, own, ..) = apply(&mut episode, python());
        assert_eq!(own, 0.0);
    }

    #[test]
    fn a_bad_record_names_its_task() {
        let task = Task::new("7", &json!({"grid": ["S#G"]})).unwrap();
        let error = Puzzle::<PlanPath>::start(&Settings::default(), &task, 0).unwrap_err();
        assert_eq!(error, Error::task("task 7: no path leads from start to goal"));
    }
}
