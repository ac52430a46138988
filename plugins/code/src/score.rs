//! The reward: 1 for the team if all hidden tests pass; for each agent what its newest work adds to its best.

use pl_sdk::prelude::*;

use crate::problems::{Action, Evidence, Facts};
use crate::work::{Work, WorkHistory};

/// Worth of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgramWorth {
    /// The share of the hidden tests that hold.
    #[default]
    Share,
    /// 1 if all of them hold, else 0.
    All,
}

/// Settings of the reward.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-range" = [0, 1]))]
pub struct Settings {
    /// Worth of a program: `share` of the hidden tests that hold, which distinguishes wrong programs, or `all` of them.
    pub programs: ProgramWorth,
    /// Part of a tester's reward that a test earns which a right program holds and the newest, wrong program fails. The rest
    /// is for tests that a right program holds. With 0 trivial tests earn as much as others.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub catch: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { programs: ProgramWorth::Share, catch: 0.5 }
    }
}

impl Settings {
    /// Returns the worth of work, 0 to 1.
    fn worth(&self, work: &Work) -> f64 {
        match (work, self.programs) {
            (Work::Program(tally), ProgramWorth::Share) => tally.share(),
            (Work::Program(tally), ProgramWorth::All) => amount(tally.passed()),
            (Work::Tests(tests), _) => {
                let share = f64::from(tests.right.min(tests.wanted)) / f64::from(tests.wanted.max(1));
                match tests.wrong_program {
                    true => (1.0 - self.catch) * share + self.catch * amount(tests.caught),
                    // There is nothing to catch.
                    false => share,
                }
            }
        }
    }

    /// Returns by how much an agent's newest work is worth more than its best until then.
    fn gain(&self, history: &WorkHistory) -> f64 {
        let before = history.earlier.iter().map(|work| self.worth(work)).fold(0.0, f64::max);
        let now = history.latest.as_ref().map_or(0.0, |work| self.worth(work));
        (now - before).clamp(0.0, 1.0)
    }
}

/// The team gets 1 if its newest program passes all hidden tests, else 0; each agent's steps are paid for that once. An agent
/// gets the difference by which the worth of its newest work exceeds that of its best until then: work that is repeated, or
/// made worse and repaired, earns nothing. So no reward is outside of 0 to 1, and neither is an agent's sum over an episode.
pub struct Score;

impl Reward for Score {
    const NAME: &'static str = "score";
    const DOC: &'static str = "For the team 1 if all hidden tests pass; for each agent what its newest program, by the share of \
                               hidden tests that hold, or its newest tests add to its best.";
    type Settings = Settings;
    type Action = Action;
    type Facts = Facts;
    type Evidence = Evidence;

    fn score(settings: &Settings, transition: &Transition<Action, Facts, Evidence>) -> Result<Scores> {
        if !(0.0..=1.0).contains(&settings.catch) {
            return Err(Error::settings(format!("catch = {}, but it is a part: set 0 to 1", settings.catch)));
        }
        let Evidence { team, paid, work } = &transition.evidence;
        let local = transition.actions.iter().map(|action| {
            let history = work.get(&action.agent);
            let success = history.and_then(|history| history.latest.as_ref()).is_some_and(succeeded);
            let reward = history.map_or(0.0, |history| settings.gain(history));
            AgentScore { agent: action.agent.clone(), reward, success }
        });
        let success = team.passed();
        Ok(Scores { team: amount(success && !paid), local: local.collect(), success })
    }
}

/// Returns true if a program passed, or if all tests are right and one of them catches the wrong program, if there is one.
fn succeeded(work: &Work) -> bool {
    match work {
        Work::Program(tally) => tally.passed(),
        Work::Tests(tests) => tests.right == tests.wanted && tests.caught == tests.wrong_program,
    }
}

fn amount(success: bool) -> f64 {
    if success { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::attempt::Tally;
    use crate::work::TestWork;

    fn program(held: u32, total: u32) -> Work {
        Work::Program(Tally { held, total })
    }

    fn tests(right: u32, wanted: u32, wrong_program: bool, caught: bool) -> Work {
        Work::Tests(TestWork { right, wanted, wrong_program, caught })
    }

    /// Returns the team's and the agent's reward and success. The last work is the newest.
    fn score_by(
        settings: Settings,
        own: &[Option<Work>],
        team: (u32, u32),
        paid: bool,
    ) -> (f64, bool, f64, bool) {
        let mut history = WorkHistory::default();
        own.iter().for_each(|work| history.push(*work));
        let transition = Transition {
            task: Task::new("1", &()).unwrap(),
            actions: vec![pl_sdk::Action { agent: "a".to_owned(), action: Action::Python(String::new()) }],
            done: false,
            truncated: false,
            facts: Facts { passed: false, ran: false, tested: false, agreed: false },
            evidence: Evidence {
                team: Tally { held: team.0, total: team.1 },
                paid,
                work: BTreeMap::from([("a".to_owned(), history)]),
            },
        };
        let scores = Score::score(&settings, &transition).unwrap();
        (scores.team, scores.success, scores.local[0].reward, scores.local[0].success)
    }

    fn score(own: Option<Work>, team: (u32, u32)) -> (f64, bool, f64, bool) {
        score_by(Settings::default(), &[own], team, false)
    }

    fn gains(settings: Settings, own: &[Option<Work>]) -> Vec<f64> {
        (1..=own.len()).map(|count| score_by(settings, &own[..count], (0, 1), false).2).collect()
    }

    #[test]
    fn team_and_local_rewards_are_independent() {
        assert_eq!(score(Some(program(4, 4)), (4, 4)), (1.0, true, 1.0, true));
        assert_eq!(score(Some(program(3, 4)), (3, 4)), (0.0, false, 0.75, false));
        assert_eq!(score(Some(program(1, 4)), (4, 4)), (1.0, true, 0.25, false));
        assert_eq!(
            score(None, (4, 4)),
            (1.0, true, 0.0, false),
            "an agent without work gets no reward for the team's"
        );
        assert_eq!(score(Some(program(0, 0)), (0, 0)), (0.0, false, 0.0, false));
    }

    #[test]
    fn the_teams_success_is_paid_once() {
        assert_eq!(
            score_by(Settings::default(), &[Some(program(4, 4))], (4, 4), true),
            (0.0, true, 1.0, true)
        );
    }

    #[test]
    fn tests_earn_by_what_is_right_and_what_they_catch() {
        // Right tests of three, a wrong program, a catch; reward with `catch` at 0.5, 0 and 1, success.
        let table = [
            (0, false, false, [0.0, 0.0, 0.0], false),
            (1, false, false, [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0], false),
            (3, false, false, [1.0, 1.0, 1.0], true),
            (0, true, false, [0.0, 0.0, 0.0], false),
            (3, true, false, [0.5, 1.0, 0.0], false),
            (1, true, true, [0.5 / 3.0 + 0.5, 1.0 / 3.0, 1.0], false),
            (3, true, true, [1.0, 1.0, 1.0], true),
        ];
        for (right, wrong_program, caught, rewards, success) in table {
            for (catch, expected) in [0.5, 0.0, 1.0].into_iter().zip(rewards) {
                let settings = Settings { catch, ..Settings::default() };
                let own = [Some(tests(right, 3, wrong_program, caught))];
                let (_, _, reward, succeeded) = score_by(settings, &own, (0, 1), false);
                assert!((reward - expected).abs() < 1e-12, "{own:?} with {catch}: {reward}");
                assert_eq!(succeeded, success, "{own:?}");
            }
        }
    }

    #[test]
    fn only_better_work_earns() {
        let settings = Settings::default();
        let (half, whole) = (Some(program(1, 2)), Some(program(2, 2)));
        assert_eq!(gains(settings, &[half, half, None, whole, half, whole]), [0.5, 0.0, 0.0, 0.5, 0.0, 0.0]);
        let all = Settings { programs: ProgramWorth::All, ..settings };
        assert_eq!(gains(all, &[half, half, whole, whole]), [0.0, 0.0, 1.0, 0.0]);
        let (trivial, catching) = (Some(tests(2, 2, true, false)), Some(tests(2, 2, true, true)));
        assert_eq!(gains(settings, &[trivial, trivial, catching, trivial]), [0.5, 0.0, 0.5, 0.0]);
    }

    #[test]
    fn impossible_numbers_stay_in_range() {
        assert_eq!(score(Some(tests(9, 3, false, false)), (0, 1)).2, 1.0);
        assert_eq!(score(Some(tests(0, 0, false, false)), (0, 1)).2, 0.0);
        let settings = Settings { catch: 1.5, ..Settings::default() };
        let transition = Transition {
            task: Task::new("1", &()).unwrap(),
            actions: Vec::new(),
            done: false,
            truncated: false,
            facts: Facts { passed: false, ran: false, tested: false, agreed: false },
            evidence: Evidence { team: Tally::default(), paid: false, work: BTreeMap::new() },
        };
        let error = Score::score(&settings, &transition).unwrap_err();
        assert_eq!(
            (error.kind, error.message.as_str()),
            (pl_sdk::ErrorKind::Settings, "catch = 1.5, but it is a part: set 0 to 1")
        );
    }

    #[test]
    fn the_declared_range_is_0_to_1() {
        let schema = schemars::schema_for!(Settings);
        assert_eq!(schema.get("x-range"), Some(&serde_json::json!([0, 1])));
    }

    proptest::proptest! {
        /// However an agent acts, its rewards of an episode sum up to its best work at most, repeating adds nothing, and
        /// each is within the declared range.
        #[test]
        fn no_loop_pays(
            numbers in proptest::collection::vec((0_u32..5, 0_u32..5, proptest::bool::ANY, proptest::bool::ANY, 0_u8..3), 1..24),
            catch in 0.0..=1.0_f64,
            all: bool,
        ) {
            let programs = if all { ProgramWorth::All } else { ProgramWorth::Share };
            let settings = Settings { programs, catch };
            let work: Vec<Option<Work>> = numbers
                .into_iter()
                .map(|(a, b, wrong, caught, kind)| match kind {
                    0 => Some(program(a, b)),
                    1 => Some(tests(a, b, wrong, wrong && caught)),
                    _ => None,
                })
                .collect();
            let best = work.iter().flatten().map(|work| settings.worth(work)).fold(0.0, f64::max);
            let twice: Vec<Option<Work>> = work.iter().flat_map(|work| [*work, *work]).collect();
            let gains = gains(settings, &twice);
            proptest::prop_assert!((gains.iter().sum::<f64>() - best).abs() < 1e-9);
            proptest::prop_assert!(best <= 1.0 && gains.iter().skip(1).step_by(2).all(|gain| *gain == 0.0));
            proptest::prop_assert!(gains.iter().all(|gain| (0.0..=1.0).contains(gain)));
        }
    }
}
