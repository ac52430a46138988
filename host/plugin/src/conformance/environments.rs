//! What an environment promises: equal starts, futures that a snapshot holds whole, tasks of their own.

use pl_types::Item;

use super::drive::{Driven, Played, SEED};
use super::{Outcome, Report, Trouble, broken};
use crate::{Cause, Environment, Episode, Error, Snapshot};

/// Actions that no agent makes.
const ODD_ACTIONS: [&str; 8] =
    ["null", "true", "1e308", "\"\"", "[]", "{}", "[[[[[[[[]]]]]]]]", "{\"\\u0000\": [null]}"];

pub async fn examine(
    item: &Item,
    environment: &Environment,
    driven: &Driven,
    level: u32,
    report: &mut Report,
) {
    let generated = generates(environment, level).await;
    report.note(item, "makes the same tasks in whatever block they are asked for", generated);
    let played: Vec<&Played> = driven.of(&item.name).collect();
    let stuck = driven.stuck.iter().find(|(name, _)| *name == item.name);
    let none = || match stuck {
        Some((_, why)) => Err(Trouble::Missing(format!("no episode could be played: {why}"))),
        None => Err(Trouble::Missing("no episode could be played".to_owned())),
    };
    if played.is_empty() {
        report.note(item, "starts equal episodes from equal arguments", none());
        return;
    }
    report.note(item, "starts equal episodes from equal arguments", starts(environment, &played).await);
    let moved = played.iter().any(|played| !played.steps.is_empty());
    let futures = match moved {
        true => futures(environment, &played).await,
        false => Err(Trouble::Missing(
            "no agent acts on its views: give actions, or a plugin whose agents do".to_owned(),
        )),
    };
    report.note(item, "goes on from a snapshot as it would have gone on itself", futures);
    report.note(
        item,
        "refuses or takes actions that no agent makes, and does not trap",
        odd(environment, &played).await,
    );
}

/// Equal arguments, equal tasks; two halves make the whole; splits share none.
async fn generates(environment: &Environment, level: u32) -> Outcome {
    const COUNT: u32 = 8;
    let make =
        async |split: &str, start: u64, count: u32| environment.tasks(split, start, count, level).await;
    let whole = match make("train", 0, COUNT).await {
        Err(error) if error.refusal().is_some() => return Err(Trouble::Missing(error.to_string())),
        made => made?,
    };
    let mut halves = make("train", 0, COUNT / 2).await?;
    halves.extend(make("train", u64::from(COUNT / 2), COUNT / 2).await?);
    if let Some((one, other)) = whole.iter().zip(&halves).find(|(one, other)| one != other) {
        let (one, other) = (&one.data, &other.data);
        return Err(broken(format!("one task is {one} in a block of {COUNT} and {other} in a smaller one")));
    }
    let test = match make("test", 0, COUNT).await {
        Err(error) if error.refusal().is_some() => return Ok(()),
        made => made?,
    };
    match whole.iter().find(|task| test.iter().any(|other| other.data == task.data)) {
        Some(shared) => Err(broken(format!("`train` and `test` share the task {}", shared.data))),
        None => Ok(()),
    }
}

async fn start(environment: &Environment, played: &Played) -> Result<Episode, Error> {
    environment.start(&played.task, SEED, played.stream()).await
}

async fn starts(environment: &Environment, played: &[&Played]) -> Outcome {
    for played in played {
        let (mut one, mut other) = (start(environment, played).await?, start(environment, played).await?);
        same(&one.snapshot().await?, &other.snapshot().await?, "two episodes were started alike")?;
    }
    Ok(())
}

/// At every step, a copy is restored from the episode's snapshot, and both take the step.
async fn futures(environment: &Environment, played: &[&Played]) -> Outcome {
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
            let what = format!("an episode and its copy took step {} of task {}", at + 1, played.task.id);
            same(&episode.snapshot().await?, &copy.snapshot().await?, &what)?;
        }
    }
    Ok(())
}

async fn odd(environment: &Environment, played: &[&Played]) -> Outcome {
    let Some(played) = played.first() else { return Ok(()) };
    for action in ODD_ACTIONS {
        let mut episode = start(environment, played).await?;
        let agent = played.steps.first().map_or("agent", |step| step.agent.as_str());
        if let Err(error) = episode.apply(vec![(agent.to_owned(), action.to_owned())]).await
            && !matches!(error.cause(), Some(Cause::Refused { .. }))
        {
            return Err(broken(format!("on the action {action}: {error}")));
        }
    }
    Ok(())
}

fn same(one: &Snapshot, other: &Snapshot, when: &str) -> Outcome {
    if one.stream != other.stream {
        return Err(broken(format!("{when}, and their random streams stand at different places")));
    }
    let text = |snapshot: &Snapshot| String::from_utf8_lossy(&snapshot.bytes).into_owned();
    if one.bytes == other.bytes {
        Ok(())
    } else {
        differs(&text(one), &text(other), &format!("{when}, the snapshot"))
    }
}

/// Shows where two texts part.
fn differs(one: &str, other: &str, what: &str) -> Outcome {
    const AROUND: usize = 60;
    if one == other {
        return Ok(());
    }
    let at = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let part = |text: &str| {
        let (from, to) = (at.saturating_sub(AROUND / 2), at + AROUND);
        text[text.floor_char_boundary(from)..text.ceil_char_boundary(to.min(text.len()))].to_owned()
    };
    Err(broken(format!("{what}: {:?} there, {:?} in the copy", part(one), part(other))))
}
