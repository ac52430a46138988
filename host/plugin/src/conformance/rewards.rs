//! Checks of rewards: equal scores for equal steps.

use pl_types::Item;

use super::drive::SampleEpisodes;
use super::report::{CheckFailure, CheckOutcome, Report, violation};
use crate::call_log::CallLog;
use crate::reward::Reward;

/// Checks a reward on the steps of episodes. `is_for_them` says that it has to score at least one of them.
pub async fn check_reward(
    item: &Item,
    reward: &Reward,
    episodes: &SampleEpisodes,
    is_for_them: bool,
    report: &mut Report,
) {
    let call_log = CallLog::default();
    let scored = scores(&reward.with_call_log(&call_log), episodes, is_for_them).await;
    if scored.is_ok() {
        report.record_usage("score", &call_log);
    }
    report.add(item, "returns the same scores for a step, independent of earlier calls", scored);
}

async fn scores(reward: &Reward, episodes: &SampleEpisodes, is_for_them: bool) -> CheckOutcome {
    let mut first = Vec::new();
    let mut refusal = None;
    for (played, step) in episodes.steps() {
        let actions = [(step.agent.clone(), step.action.clone())];
        match reward.score(&played.task, &actions, &step.outcome).await {
            Ok(scores) => first.push((played, step, actions, scores)),
            Err(error) if error.refusal().is_some() => refusal = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    if first.is_empty() {
        return Err(CheckFailure::Untestable(match refusal {
            Some(error) if is_for_them && !error.refuses_settings() => {
                return Err(violation(format!("it scores no step: {error}")));
            }
            Some(error) => format!("it can't score any step: {error}"),
            None => "there is no step: pass a plugin with an environment and agents".to_owned(),
        }));
    }
    for (played, step, actions, scores) in first.iter().rev() {
        let again = reward.score(&played.task, actions, &step.outcome).await?;
        if again != *scores {
            let action = &step.action;
            return Err(violation(format!(
                "the action {action} is scored {scores:?} at first and {again:?} later"
            )));
        }
    }
    Ok(())
}
