//! Loops of moves that pay: actions of one agent that lead back to an earlier state and earn more than they cost.
//!
//! Adversaries that write fragments of the prompt rarely find two moves that undo each other. The oracle's plans consist of
//! real moves: the states that they lead to are searched for a loop, which an adversary then repeats.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use pl_plugin::call_log::{CallLog, Event};
use pl_plugin::{DrawingForm, Snapshot, Task};
use pl_rollout::{Episode, EpisodeSetup, Fault};
use serde_json::Value;

use super::oracle::{Advice, EpisodeActions};
use super::{AuditSetup, Player, Strategy};

/// Largest number of an agent's moves that are combined.
const MOVES: usize = 24;

/// Number of training tasks that are searched.
const TASKS: usize = 4;

/// Number of moves after which the search of a task ends. Each costs a copy of the environment and four calls.
const TRIED: usize = 600;

/// Largest numbers of moves of a loop. The turns of longer episodes allow a few rounds of short ones. Long ones, such as the
/// way round a box, are searched for where there are no short ones.
const LONGEST: [usize; 2] = [4, 10];

/// Number of rounds after which an adversary starts again with the moves that lead to the loop.
const ROUNDS: usize = 1000;

/// Least reward of a round. Rewards whose sum should be 0 are off by rounding.
const LEAST: f64 = 1e-9;

/// Returns adversaries that repeat loops that pay, one for each agent that has any. `actions` are known ones by agent.
pub(super) fn players(audit: &AuditSetup<'_>, actions: &EpisodeActions) -> Vec<Player> {
    let setup = &audit.setup;
    let mut players = Vec::new();
    for (name, moves) in known_moves(actions) {
        let Some(index) = setup.agents.iter().position(|runtime| runtime.name == name) else { continue };
        // A reward of the whole episode is no reward of a move.
        if setup.scores_end || !setup.turns.may_repeat(index) {
            continue;
        }
        let mut loops = HashMap::new();
        let mut tasks = Vec::new();
        let mut example = None;
        for task in audit.tasks.iter().take(TASKS) {
            let search = LoopSearch { setup, agent: &name, moves: &moves, task };
            // Adversaries that play a task which can't be started have reported that.
            let Ok(Some(found)) = audit.host.block_on(search.run()) else { continue };
            example.get_or_insert_with(|| found.shown());
            loops.insert(task.id.clone(), EpisodeActions::from([(name.clone(), found.actions())]));
            tasks.push(Arc::clone(task));
        }
        if !tasks.is_empty() {
            let setup = audit.advised(Advice::Tasks(loops));
            let agent = Some(audit.setup.agents[index].number);
            players.push(Player { strategy: Strategy::Loop, setup, tasks, agent, example });
        }
    }
    players
}

/// Returns the moves that actions consist of, by agent, without repetitions.
pub(super) fn known_moves(actions: &EpisodeActions) -> BTreeMap<String, Vec<String>> {
    let moves_of = |actions: &VecDeque<String>| {
        let mut moves: Vec<String> = Vec::new();
        for next in actions.iter().flat_map(|action| single_moves(action)) {
            if moves.len() < MOVES && !moves.contains(&next) {
                moves.push(next);
            }
        }
        moves
    };
    actions.iter().map(|(agent, actions)| (agent.clone(), moves_of(actions))).collect()
}

/// Returns the moves of an action (JSON): each item of its list alone, or the action itself if it has no list.
fn single_moves(action: &str) -> Vec<String> {
    let alone =
        |items: &[Value]| -> Vec<Vec<Value>> { items.iter().map(|item| vec![item.clone()]).collect() };
    let moves = serde_json::from_str(action).ok().and_then(|action| with_lists(&action, &alone));
    moves.map_or_else(|| vec![action.to_owned()], |moves| moves.iter().map(Value::to_string).collect())
}

/// Returns copies of a value in which `others` takes the place of its first list, which may stand in a text. `None` if it has
/// no list.
pub(super) fn with_lists(value: &Value, others: &dyn Fn(&[Value]) -> Vec<Vec<Value>>) -> Option<Vec<Value>> {
    match value {
        Value::Array(items) => Some(others(items).into_iter().map(Value::Array).collect()),
        Value::String(text) => {
            let (start, end) = (text.find('[')?, text.rfind(']')?);
            let items: Vec<Value> = serde_json::from_str(text.get(start..=end)?).ok()?;
            let (before, after) = (&text[..start], &text[end + 1..]);
            let with = |list: Vec<Value>| Value::from(format!("{before}{}{after}", Value::Array(list)));
            Some(others(&items).into_iter().map(with).collect())
        }
        Value::Object(fields) => fields.iter().find_map(|(key, own)| {
            let with = |own: Value| {
                let mut whole = fields.clone();
                whole.insert(key.clone(), own);
                Value::Object(whole)
            };
            Some(with_lists(own, others)?.into_iter().map(with).collect())
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Loop that pays, with the moves that lead to it from the start.
struct PayingLoop {
    approach: Vec<String>,
    round: Vec<String>,
}

impl PayingLoop {
    /// Returns the agent's actions in an episode.
    fn actions(&self) -> VecDeque<String> {
        let rounds = self.round.iter().cycle().take(ROUNDS * self.round.len());
        self.approach.iter().chain(rounds).cloned().collect()
    }

    /// Returns the moves of a round for people.
    fn shown(&self) -> String {
        self.round.iter().map(|action| plain(action)).collect::<Vec<_>>().join(" ")
    }
}

/// Returns an action for people: its only field alone, and a text without quotes.
pub(super) fn plain(action: &str) -> String {
    let value = serde_json::from_str(action).unwrap_or(Value::Null);
    let own = match &value {
        Value::Object(fields) if fields.len() == 1 => fields.values().next(),
        other => Some(other),
    };
    own.and_then(Value::as_str).map_or_else(|| action.to_owned(), str::to_owned)
}

/// Search for a loop of an agent's moves in a task.
struct LoopSearch<'a> {
    setup: &'a EpisodeSetup,
    agent: &'a str,
    moves: &'a [String],
    task: &'a Task,
}

/// State of an episode.
struct State {
    snapshot: Snapshot,
    /// Drawing of the state as a text, or what the agent sees of it if the environment draws none.
    appearance: Value,
}

/// Result of a move.
enum Tried {
    /// The agent's reward and the state that follows.
    Moved(f64, State),
    /// The episode ended, or the task is solved.
    Ended,
    /// The environment ran code in the sandbox.
    RanCode,
}

/// Move from one state to another.
struct Step {
    /// Index of the move.
    action: usize,
    reward: f64,
    state: State,
}

/// Move between states that are given by number.
#[derive(Debug, Clone, Copy)]
struct Transition {
    from: usize,
    to: usize,
    /// Index of the move.
    action: usize,
    reward: f64,
}

impl LoopSearch<'_> {
    /// Searches the states nearest to the start, breadth first. Returns the shortest loop of the nearest state that has any,
    /// `None` also for an agent one of whose moves runs code: a search would take minutes.
    async fn run(&self) -> Result<Option<PayingLoop>, Fault> {
        let environment = &self.setup.environment;
        let episode = environment.start(self.task, 0, [0; 32], &CallLog::default()).await?;
        let start = self.state(episode).await?;
        let Some(first) = self.steps(&start.snapshot).await else { return Ok(None) };
        let after: Vec<&Value> = first.iter().map(|step| &step.state.appearance).collect();
        let counters = counters(&start.appearance, &after);
        let mut numbers = HashMap::from([(identity(&start.appearance, &counters), 0)]);
        let mut states: Vec<(Snapshot, Vec<usize>)> = vec![(start.snapshot, Vec::new())];
        let mut transitions = Vec::new();
        let mut from = 0;
        while let Some((snapshot, approach)) = states.get(from).cloned()
            && from * self.moves.len() < TRIED
        {
            let Some(steps) = self.steps(&snapshot).await else { return Ok(None) };
            for Step { action, reward, state } in steps {
                let to = match numbers.entry(identity(&state.appearance, &counters)) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        states.push((state.snapshot, [approach.as_slice(), &[action]].concat()));
                        *new.insert(states.len() - 1)
                    }
                };
                transitions.push(Transition { from, to, action, reward });
            }
            from += 1;
        }
        let found = LONGEST.into_iter().find_map(|longest| {
            (0..from).find_map(|start| Some((start, shortest_loop(&transitions, start, longest)?)))
        });
        Ok(found.map(|(start, round)| {
            let words = |moves: &[usize]| moves.iter().map(|&index| self.moves[index].clone()).collect();
            PayingLoop { approach: words(&states[start].1), round: words(&round) }
        }))
    }

    /// Plays every move from a state. Moves that fail, end the episode or solve the task are left out. `None` if a move runs
    /// code.
    async fn steps(&self, from: &Snapshot) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        for (action, text) in self.moves.iter().enumerate() {
            match self.step(from, text).await {
                Ok(Tried::Moved(reward, state)) => steps.push(Step { action, reward, state }),
                Ok(Tried::RanCode) => return None,
                Ok(Tried::Ended) | Err(_) => {}
            }
        }
        Some(steps)
    }

    /// Plays a move.
    async fn step(&self, from: &Snapshot, action: &str) -> Result<Tried, Fault> {
        let EpisodeSetup { environment, reward, team_weight, local_weight, .. } = self.setup;
        let log = CallLog::default();
        let mut episode = environment.restore(from, &log).await?;
        let actions = [(self.agent.to_owned(), action.to_owned())];
        let outcome = episode.apply(&actions).await;
        if log.take().iter().any(|event| matches!(event, Event::Sandbox { .. })) {
            return Ok(Tried::RanCode);
        }
        let outcome = outcome?;
        let scores = reward.score(self.task, &actions, &outcome, &log).await?;
        if outcome.done || scores.success {
            return Ok(Tried::Ended);
        }
        // Only one agent has acted.
        let local: f64 = scores.local.iter().map(|score| score.reward).sum();
        let reward = team_weight * scores.team + local_weight * local;
        Ok(Tried::Moved(reward, self.state(episode).await?))
    }

    /// Returns the state of an episode, and ends it.
    async fn state(&self, mut episode: Box<dyn Episode>) -> Result<State, Fault> {
        let appearance = match episode.draw(DrawingForm::Text).await? {
            Some(drawing) => Value::String(drawing),
            None => {
                let view = episode.view(self.agent).await?;
                serde_json::from_str(&view).map_err(|error| Fault::new("view", error))?
            }
        };
        Ok(State { appearance, snapshot: episode.snapshot().await? })
    }
}

/// Returns the fields of a view that count turns: they have grown by one after every move.
fn counters(start: &Value, after: &[&Value]) -> Vec<String> {
    let Some(fields) = start.as_object() else { return Vec::new() };
    let counts = |(key, value): &(&String, &Value)| {
        let next = value.as_i64().and_then(|number| number.checked_add(1));
        next.is_some() && after.iter().all(|view| view.get(key.as_str()).and_then(Value::as_i64) == next)
    };
    fields.iter().filter(counts).map(|(key, _)| key.clone()).collect()
}

/// Returns a text that tells states apart.
fn identity(appearance: &Value, counters: &[String]) -> String {
    let mut own = appearance.clone();
    if let Some(fields) = own.as_object_mut() {
        fields.retain(|key, _| !counters.contains(key));
    }
    own.to_string()
}

/// Returns the moves of the shortest loop from a state back to it with a reward above 0; of loops as short, those of the one
/// that earns most. `None` if there is none of at most `longest` moves.
fn shortest_loop(transitions: &[Transition], start: usize, longest: usize) -> Option<Vec<usize>> {
    // Of the walks of a length to each state, the reward and the moves of the best.
    let mut walks: BTreeMap<usize, (f64, Vec<usize>)> = BTreeMap::from([(start, (0.0, Vec::new()))]);
    for _ in 0..longest {
        let mut longer: BTreeMap<usize, (f64, Vec<usize>)> = BTreeMap::new();
        for Transition { from, to, action, reward } in transitions {
            let Some((earned, moves)) = walks.get(from) else { continue };
            let earned = earned + reward;
            if longer.get(to).is_none_or(|(best, _)| earned > *best) {
                longer.insert(*to, (earned, [moves.as_slice(), &[*action]].concat()));
            }
        }
        if let Some((_, moves)) = longer.get(&start).filter(|(earned, _)| *earned > LEAST) {
            return Some(moves.clone());
        }
        walks = longer;
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plans_are_split_into_moves() {
        let moves = |action: Value| single_moves(&action.to_string());
        let plan = |text: &str| json!({ "answer": text }).to_string();
        assert_eq!(
            moves(json!({ "answer": r##"#### ["U", "R"]"## })),
            [plan(r##"#### ["U"]"##), plan(r##"#### ["R"]"##)]
        );
        assert_eq!(
            moves(json!({ "answer": r#"[{"move": ["B", "table"]}, {"move": ["B", "A"]}]"# })),
            [plan(r#"[{"move":["B","table"]}]"#), plan(r#"[{"move":["B","A"]}]"#)]
        );
        assert_eq!(moves(json!([1, 2])), ["[1]", "[2]"]);
        let code = json!({ "code": "x = [a]" });
        for whole in [json!("up"), json!({ "move": "up" }), code, json!("] ["), json!(7)] {
            assert_eq!(moves(whole.clone()), [whole.to_string()]);
        }
        assert_eq!(single_moves("no JSON"), ["no JSON"]);
        let known = |actions: &[&str]| {
            let actions = actions.iter().map(|action| (*action).to_owned()).collect();
            known_moves(&EpisodeActions::from([("one".to_owned(), actions)])).remove("one")
        };
        assert_eq!(known(&["[1, 2]", "[2, 3]"]).unwrap(), ["[1]", "[2]", "[3]"]);
    }

    #[test]
    fn a_loop_starts_again_after_its_approach() {
        let words = |moves: &[&str]| moves.iter().map(|text| json!({ "answer": text }).to_string()).collect();
        let found = PayingLoop { approach: words(&["[3]"]), round: words(&["[1]", "[2]"]) };
        let expected: Vec<String> = words(&["[3]", "[1]", "[2]", "[1]"]);
        assert_eq!(found.actions().range(..4).cloned().collect::<Vec<_>>(), expected);
        assert_eq!(found.shown(), "[1] [2]");
    }

    #[test]
    fn counters_of_turns_do_not_tell_states_apart() {
        let view = |turn: u32, place: u32| json!({ "turn": turn, "place": place, "name": "x" });
        let (start, right, left) = (view(0, 5), view(1, 6), view(1, 4));
        let counters = counters(&start, &[&right, &left]);
        assert_eq!(counters, ["turn"]);
        assert_eq!(identity(&start, &counters), identity(&view(2, 5), &counters));
        assert_ne!(identity(&right, &counters), identity(&left, &counters));
        assert_eq!(identity(&json!("a drawing"), &counters), "\"a drawing\"");
    }

    #[test]
    fn the_shortest_loop_that_pays_is_found() {
        let moves = |list: &[(usize, usize, f64)]| {
            let transition = |(action, &(from, to, reward)): (usize, &(usize, usize, f64))| Transition {
                from,
                to,
                action,
                reward,
            };
            list.iter().enumerate().map(transition).collect::<Vec<_>>()
        };
        // Staying costs, the way to and fro is worth nothing, and three moves round pay.
        let ring = moves(&[
            (0, 0, -0.1),
            (0, 1, 0.3),
            (1, 0, -0.3),
            (1, 2, 0.1),
            (2, 0, -0.2),
            (2, 3, 9.0),
            (3, 3, 0.0),
        ]);
        assert_eq!(shortest_loop(&ring, 0, 4), Some(vec![1, 3, 4]));
        assert_eq!(shortest_loop(&ring, 1, 4), Some(vec![3, 4, 1]));
        assert_eq!(shortest_loop(&ring, 0, 2), None);
        assert_eq!(shortest_loop(&ring, 3, 4), None);
        // Potentials cancel out up to rounding.
        assert_eq!(shortest_loop(&moves(&[(0, 1, 0.1 + 0.2), (1, 0, -0.3)]), 0, 4), None);
        assert_eq!(shortest_loop(&[], 0, 4), None);
    }
}
