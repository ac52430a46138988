//! One episode, played for a person who watches it.

use std::sync::Arc;

use pl_data::exact_json;
use pl_plugin::Task;
use pl_rollout::{EpisodeEvent, EpisodeSummary};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::error::Error;
use crate::host::Host;
use crate::player::Player;
use crate::session::Session;
use crate::workflow::CheckedWorkflow;

/// Id of a task that a person has given. By it, plugins tell such a task, whose right answer may be unknown, from the record of a
/// task file.
const GIVEN: &str = "given";

/// Returns a task from a record as JSON, or from a question in words.
///
/// # Errors
/// If it begins as a record, and isn't valid JSON or has a whole number of more than 64 bits.
pub fn task_from_text(text: &str) -> Result<Task, Error> {
    let data = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(_)) => {
            let record = exact_json(text).map_err(|error| not_a_record(error.to_string()))?;
            record.to_string()
        }
        // Not a set in words, as in "{1, 2} is a set".
        Err(error) if begins_record(text) => {
            let cause = format!(
                "the task begins with `{{` as a record does, but is no JSON: {error}; a question that begins so is written as \
                 {{\"question\": …}}"
            );
            return Err(not_a_record(cause));
        }
        _ => json!({ "question": text }).to_string(),
    };
    Ok(Task { id: GIVEN.to_owned(), data })
}

/// Returns true for a text that begins with a brace and then a quote, as a record does, or ends.
fn begins_record(text: &str) -> bool {
    let inside = text.trim_start().strip_prefix('{').map(str::trim_start);
    inside.is_some_and(|inside| inside.is_empty() || inside.starts_with(['"', '}']))
}

fn not_a_record(cause: String) -> Error {
    Error::Task { stage: "start".to_owned(), cause }
}

/// Returns the first task of a scenario.
///
/// # Errors
/// If the tasks can't be read, or there are no tasks.
pub fn first_task(
    host: &Host,
    checked: &CheckedWorkflow,
    session: &Session,
    scenario: usize,
) -> Result<Task, Error> {
    let block = &checked.workflow.scenarios[scenario].environment;
    let environment = &session.scenarios[scenario].environment;
    let tasks = host.block_on(async {
        let source = checked.tasks(host, scenario, &block.tasks, environment, None).await?;
        source.take(0, 1).await.map_err(Error::Tasks)
    })?;
    let first = tasks.into_iter().next().map(Arc::unwrap_or_clone);
    first.ok_or_else(|| Error::NoTasks { environment: block.name.clone() })
}

/// Plays one episode of a player. Its events go to `watch`, which ends when the episode does. Returns the episode's
/// summary, or `None` if it failed in every attempt.
///
/// # Errors
/// If the episode can't be played, or `watch` fails.
pub fn play<E, W>(
    host: &Host,
    player: &Player,
    seed: u64,
    task: Task,
    watch: impl FnOnce(UnboundedReceiver<EpisodeEvent>) -> W,
) -> Result<Option<EpisodeSummary>, E>
where
    E: From<Error>,
    W: Future<Output = Result<(), E>>,
{
    let playing = async |sender| player.play(seed, task, sender).await.map_err(E::from);
    Ok(watched(host, playing, watch)?.summary)
}

/// Plays an episode, whose events go to `watch`. They end when `play` has dropped the sender.
pub(crate) fn watched<T, E, W>(
    host: &Host,
    play: impl AsyncFnOnce(UnboundedSender<EpisodeEvent>) -> Result<T, E>,
    watch: impl FnOnce(UnboundedReceiver<EpisodeEvent>) -> W,
) -> Result<T, E>
where
    W: Future<Output = Result<(), E>>,
{
    let (sender, events) = unbounded_channel();
    let (played, ()) = host.block_on(async { tokio::try_join!(play(sender), watch(events)) })?;
    Ok(played)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_in_words_is_a_question_and_large_whole_numbers_are_refused() {
        assert_eq!(task_from_text("12").unwrap().data, r#"{"question":"12"}"#);
        assert_eq!(
            task_from_text(r#"{"answer": 18446744073709551615}"#).unwrap().data,
            r#"{"answer":18446744073709551615}"#
        );
        let error = task_from_text(r#"{"answer": 18446744073709551617}"#).unwrap_err().to_string();
        assert!(error.contains("more than 64 bits"), "{error}");
        let error = task_from_text("{\"broken").unwrap_err().to_string();
        assert!(error.contains("no JSON: EOF while parsing a string at line 1 column 8"), "{error}");
        assert_eq!(task_from_text("{1, 2} is a set").unwrap().data, r#"{"question":"{1, 2} is a set"}"#);
    }
}
