//! Long plans of one move: an environment that counts an episode as solved after a number of moves is solved by them.

use std::collections::VecDeque;
use std::sync::Arc;

use pl_plugin::Task;
use serde_json::Value;

use super::loops::{known_moves, plain, with_lists};
use super::oracle::{Advice, EpisodeActions};
use super::{AuditSetup, Player, Strategy};

/// Number of moves of a plan.
const LENGTH: usize = 10_000;

/// Largest number of an agent's moves of which plans are made.
const MOVES: usize = 4;

/// Number of training tasks that are played. Episodes hold the whole plan of each turn in memory.
const TASKS: usize = 16;

/// Returns adversaries in whose episodes every agent always plays a long plan of one of its known moves. `actions` are
/// known ones by agent.
pub(super) fn players(audit: &AuditSetup<'_>, actions: &EpisodeActions) -> Vec<Player> {
    let moves = known_moves(actions);
    let player = |index: usize| {
        let plan = |(agent, moves): (&String, &Vec<String>)| {
            let single = moves.get(index)?.clone();
            Some((agent.clone(), long_plan(&single)?, single))
        };
        let plans: Vec<(String, String, String)> = moves.iter().filter_map(plan).collect();
        let example = Some(plain(&plans.first()?.2));
        let own: EpisodeActions =
            plans.into_iter().map(|(agent, plan, _)| (agent, VecDeque::from([plan]))).collect();
        let tasks: Vec<Arc<Task>> = audit.tasks.iter().take(TASKS).map(Arc::clone).collect();
        let advice = tasks.iter().map(|task| (task.id.clone(), own.clone())).collect();
        let setup = audit.advised(Advice::Tasks(advice));
        Some(Player { strategy: Strategy::LongPlan, setup, tasks, agent: None, example })
    };
    (0..MOVES).filter_map(player).collect()
}

/// Returns an action (JSON) with the first item of its list many times. `None` if it has no list.
fn long_plan(action: &str) -> Option<String> {
    let action: Value = serde_json::from_str(action).ok()?;
    let repeated = |items: &[Value]| -> Vec<Vec<Value>> {
        items.first().map(|item| vec![item.clone(); LENGTH]).into_iter().collect()
    };
    with_lists(&action, &repeated)?.first().map(Value::to_string)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_move_is_repeated_in_its_plan() {
        let long = long_plan(&json!({ "answer": "#### [\"U\"]" }).to_string()).unwrap();
        let action: Value = serde_json::from_str(&long).unwrap();
        let items = vec!["\"U\""; LENGTH].join(",");
        assert_eq!(action, json!({ "answer": format!("#### [{items}]") }));
        for whole in ["\"up\"", "[]", "{\"code\":\"x = [a]\"}", "no JSON"] {
            assert_eq!(long_plan(whole), None, "{whole}");
        }
    }
}
