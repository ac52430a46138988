//! Position of a run in the tasks of its scenarios, part of every checkpoint.

use pl_dsl::workflow::{Curriculum, Rise};
use serde::{Deserialize, Deserializer, Serialize};

/// Position of a scenario in its tasks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScenarioCursor {
    /// Position in its stream of tasks after those of the finished steps.
    pub next_task: u64,
    /// Number of tasks that the mixture dealt to it.
    #[serde(default)]
    pub dealt: u64,
    /// Level of its curriculum. `None` before the first step, and without a curriculum that rises by success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LevelState>,
}

/// Level of a curriculum that rises by success.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelState {
    pub level: u32,
    /// Success of the last steps with tasks of this level.
    pub recent: Vec<f64>,
}

impl ScenarioCursor {
    /// Returns the level of the tasks of `step`, counted from 1.
    pub(super) fn level(&self, curriculum: &Curriculum, step: u64) -> u32 {
        match curriculum.rise {
            Rise::Steps(every) => {
                let risen = step.saturating_sub(1) / u64::from(every.max(1));
                let highest = u64::from(curriculum.to);
                u64::from(curriculum.from).saturating_add(risen).min(highest) as u32
            }
            Rise::Success { .. } => self.level.as_ref().map_or(curriculum.from, |state| state.level),
        }
    }

    /// Counts a step with this mean success of its episodes: the level of later steps may rise.
    pub(super) fn count_success(&mut self, curriculum: &Curriculum, success: f64) {
        let Rise::Success { at, window } = curriculum.rise else { return };
        let state = self.level.get_or_insert(LevelState { level: curriculum.from, recent: Vec::new() });
        state.recent.push(success);
        let spare = state.recent.len().saturating_sub(window as usize);
        state.recent.drain(..spare);
        let mean = state.recent.iter().sum::<f64>() / state.recent.len() as f64;
        if state.recent.len() == window as usize && mean >= at && state.level < curriculum.to {
            *state = LevelState { level: state.level + 1, recent: Vec::new() };
        }
    }
}

/// Reads the cursors of a checkpoint. Earlier versions had one position in place of the list.
pub(super) fn cursors<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ScenarioCursor>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        NextTask(u64),
        Scenarios(Vec<ScenarioCursor>),
    }
    Ok(match Stored::deserialize(deserializer)? {
        Stored::NextTask(next_task) => vec![ScenarioCursor { next_task, ..ScenarioCursor::default() }],
        Stored::Scenarios(cursors) => cursors,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curriculum(rise: Rise) -> Curriculum {
        Curriculum { from: 2, to: 4, rise }
    }

    #[test]
    fn levels_rise_by_steps() {
        let curriculum = curriculum(Rise::Steps(3));
        let cursor = ScenarioCursor::default();
        let levels: Vec<u32> = (1..=10).map(|step| cursor.level(&curriculum, step)).collect();
        assert_eq!(levels, [2, 2, 2, 3, 3, 3, 4, 4, 4, 4]);
    }

    #[test]
    fn levels_rise_when_the_mean_of_a_full_window_reaches_the_bound() {
        let curriculum = curriculum(Rise::Success { at: 0.5, window: 2 });
        let mut cursor = ScenarioCursor::default();
        let mut levels = Vec::new();
        for success in [1.0, 0.0, 0.25, 0.75, 1.0, 0.5, 1.0, 1.0] {
            levels.push(cursor.level(&curriculum, 1));
            cursor.count_success(&curriculum, success);
        }
        // After 1 and 0; the window then begins anew, and 0.25 and 0.75 fill it. The highest level is kept.
        assert_eq!(levels, [2, 2, 3, 3, 4, 4, 4, 4]);
        assert_eq!(cursor.level.unwrap().recent, [1.0, 1.0]);
    }

    #[test]
    fn cursors_of_earlier_checkpoints_are_read() {
        #[derive(Deserialize)]
        struct State {
            #[serde(alias = "next_task", deserialize_with = "cursors")]
            scenarios: Vec<ScenarioCursor>,
        }
        let read = |text: &str| serde_json::from_str::<State>(text).unwrap().scenarios;
        assert_eq!(read(r#"{"next_task": 7}"#)[0].next_task, 7);
        let two = read(r#"{"scenarios": [{"next_task": 1, "dealt": 1}, {"next_task": 4, "dealt": 3}]}"#);
        assert_eq!((two.len(), two[1].dealt), (2, 3));
    }
}
