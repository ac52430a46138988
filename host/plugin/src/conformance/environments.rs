//! Checks of environments: repeatable starts, complete snapshots, disjoint splits.

use pl_types::Item;

use super::drive::{EpisodeFailure, SEED, SampleEpisode, SampleEpisodes, Stage};
use super::report::{CheckFailure, CheckOutcome, Report, violation};
use crate::environment::{Environment, Episode};
use crate::error::{Cause, Error};
use crate::snapshot::Snapshot;
use crate::values::DrawingForm;

const PLAYS: &str = "plays episodes without a fault";

/// Unusual actions.
const ODD_ACTIONS: [&str; 8] =
    ["null", "true", "1e308", "\"\"", "[]", "{}", "[[[[[[[[]]]]]]]]", "{\"\\u0000\": [null]}"];

pub async fn check_environment(
    item: &Item,
    environment: &Environment,
    episodes: &SampleEpisodes,
    level: u32,
    report: &mut Report,
) {
    let generated = generates(environment, level).await;
    report.add(item, "generates the same tasks in batches of any size", generated);
    let played: Vec<&SampleEpisode> = episodes.of_environment(&item.name).collect();
    let failed = || episodes.failed.iter().filter(|failure| failure.environment == item.name);
    // A refusal may be due to the samples; every other error is the environment's.
    let is_fault = |failure: &&EpisodeFailure| failure.error.refusal().is_none();
    let ends_all = |failure: &&EpisodeFailure| failure.is_environments() && played.is_empty();
    if let Some(fault) = failed().find(is_fault) {
        report.add(item, PLAYS, Err(violation(fault.error.to_string())));
    } else if let Some(failure) = failed().find(ends_all) {
        let observation = match failure.stage {
            Stage::Turn => format!(
                "every episode ends with an error: {}; agents have the names of their items, or are called `agent` where \
                 actions are given for an environment without any",
                failure.error
            ),
            _ => format!("no episode starts: {}", failure.error),
        };
        report.add(item, PLAYS, Err(violation(observation)));
    }
    let none = || match failed().next() {
        Some(why) => Err(CheckFailure::Untestable(format!("no episode could be run: {}", why.error))),
        None => Err(CheckFailure::Untestable("no episode could be run".to_owned())),
    };
    if played.is_empty() {
        report.add(item, "starts equal episodes from equal arguments", none());
        return;
    }
    report.add(item, "starts equal episodes from equal arguments", starts(environment, &played).await);
    let moved = played.iter().any(|played| !played.steps.is_empty());
    let futures = match moved {
        true => futures(environment, &played).await,
        false => Err(CheckFailure::Untestable(
            "no agent acts on its views: pass actions, or a plugin with such agents".to_owned(),
        )),
    };
    report.add(item, "continues from a snapshot exactly as without it", futures);
    report.add(item, "draws and advises without a change of its state", looks(environment, &played).await);
    report.add(item, "accepts or refuses unusual actions without a trap", odd(environment, &played).await);
}

/// Checks that two halves are equal to the whole and that splits share no task.
async fn generates(environment: &Environment, level: u32) -> CheckOutcome {
    const COUNT: u32 = 8;
    let make =
        async |split: &str, start: u64, count: u32| environment.tasks(split, start, count, level).await;
    let whole = match make("train", 0, COUNT).await {
        Err(error) if error.refusal().is_some() => return Err(CheckFailure::Untestable(error.to_string())),
        made => made?,
    };
    let mut halves = make("train", 0, COUNT / 2).await?;
    halves.extend(make("train", u64::from(COUNT / 2), COUNT / 2).await?);
    if let Some((one, other)) = whole.iter().zip(&halves).find(|(one, other)| one != other) {
        let (one, other) = (&one.data, &other.data);
        return Err(violation(format!(
            "a task is {one} in a batch of {COUNT} and {other} in a smaller batch"
        )));
    }
    let test = match make("test", 0, COUNT).await {
        Err(error) if error.refusal().is_some() => return Ok(()),
        made => made?,
    };
    match whole.iter().find(|task| test.iter().any(|other| other.data == task.data)) {
        Some(shared) => Err(violation(format!("`train` and `test` share the task {}", shared.data))),
        None => Ok(()),
    }
}

async fn start(environment: &Environment, played: &SampleEpisode) -> Result<Episode, Error> {
    environment.start(&played.task, SEED, played.stream()).await
}

async fn starts(environment: &Environment, played: &[&SampleEpisode]) -> CheckOutcome {
    for played in played {
        let (mut one, mut other) = (start(environment, played).await?, start(environment, played).await?);
        same(
            &one.snapshot().await?,
            &other.snapshot().await?,
            "two episodes were started with equal arguments",
        )?;
    }
    Ok(())
}

/// Restores a copy from a snapshot before every step, and compares both after the step.
async fn futures(environment: &Environment, played: &[&SampleEpisode]) -> CheckOutcome {
    for played in played {
        let mut episode = start(environment, played).await?;
        for (at, step) in played.steps.iter().enumerate() {
            let saved = episode.snapshot().await?;
            let mut copy = environment.restore(&saved).await?;
            let before = format!("before step {} of task {}", at + 1, played.task.id);
            same(&saved, &copy.snapshot().await?, &format!("a copy was restored {before}"))?;
            let (view, seen) = (episode.view(&step.agent).await?, copy.view(&step.agent).await?);
            differs(&view, &seen, &format!("{before}, the view of {}", step.agent))?;
            let actions = || vec![(step.agent.clone(), step.action.clone())];
            let (outcome, other) = (episode.apply(actions()).await?, copy.apply(actions()).await?);
            differs(
                &format!("{outcome:?}"),
                &format!("{other:?}"),
                &format!("{before}, the outcome of {}", step.action),
            )?;
            let event = format!("an episode and its copy took step {} of task {}", at + 1, played.task.id);
            same(&episode.snapshot().await?, &copy.snapshot().await?, &event)?;
        }
    }
    Ok(())
}

/// Asks for drawings and the oracle before every step, and follows the oracle in a copy for one step.
async fn looks(environment: &Environment, played: &[&SampleEpisode]) -> CheckOutcome {
    for played in played {
        let mut episode = start(environment, played).await?;
        for (at, step) in played.steps.iter().enumerate() {
            let when = format!("before step {} of task {}", at + 1, played.task.id);
            let before = episode.snapshot().await?;
            for form in [DrawingForm::Svg, DrawingForm::Text] {
                let (one, other) = (episode.draw(form).await?, episode.draw(form).await?);
                if one != other {
                    return Err(violation(format!("{when}, the same state is drawn in two ways")));
                }
            }
            let advice = episode.oracle(&step.agent).await?;
            same(
                &before,
                &episode.snapshot().await?,
                &format!("{when}, a drawing or the oracle was asked for"),
            )?;
            if let Some(action) = advice {
                environment.restore(&before).await?.apply(vec![(step.agent.clone(), action)]).await?;
            }
            episode.apply(vec![(step.agent.clone(), step.action.clone())]).await?;
        }
    }
    Ok(())
}

async fn odd(environment: &Environment, played: &[&SampleEpisode]) -> CheckOutcome {
    let Some(played) = played.first() else { return Ok(()) };
    for action in ODD_ACTIONS {
        let mut episode = start(environment, played).await?;
        let agent = played.steps.first().map_or("agent", |step| step.agent.as_str());
        if let Err(error) = episode.apply(vec![(agent.to_owned(), action.to_owned())]).await
            && !matches!(error.cause(), Some(Cause::Refused { .. }))
        {
            return Err(violation(format!("on the action {action}: {error}")));
        }
    }
    Ok(())
}

fn same(one: &Snapshot, other: &Snapshot, when: &str) -> CheckOutcome {
    if one.stream != other.stream {
        return Err(violation(format!("{when}, and their random streams differ in position")));
    }
    let text = |snapshot: &Snapshot| String::from_utf8_lossy(&snapshot.bytes).into_owned();
    if one.bytes == other.bytes {
        Ok(())
    } else {
        differs(&text(one), &text(other), &format!("{when}, the snapshot"))
    }
}

/// Fails with the first difference of two texts.
fn differs(one: &str, other: &str, what: &str) -> CheckOutcome {
    const AROUND: usize = 60;
    if one == other {
        return Ok(());
    }
    let at = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let part = |text: &str| {
        let (from, to) = (at.saturating_sub(AROUND / 2), at + AROUND);
        text[text.floor_char_boundary(from)..text.ceil_char_boundary(to.min(text.len()))].to_owned()
    };
    Err(violation(format!("{what}: {:?} in the first, {:?} in the second", part(one), part(other))))
}
