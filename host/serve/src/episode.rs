//! An episode of the team as a chat completion: its turns are played, and the last one is the answer.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;

use crate::chat_request::ChatRequest;
use crate::chat_response::{Envelope, usage};
use crate::error::ApiError;
use crate::response;
use crate::service::{Permit, Service};
use crate::stream::{self, Progress};
use crate::team::{Team, TeamError, TeamEvent, TeamResult, TeamTurn};

/// Answers with an episode of the team.
pub(crate) async fn play(
    service: &Arc<Service>,
    team: Arc<dyn Team>,
    chat: ChatRequest,
) -> Result<Response, ApiError> {
    refuse_options(&chat)?;
    let (task, seed) = (task(&chat)?, chat.sampling.episode_seed());
    let envelope = Envelope::new(chat.model.as_deref().unwrap_or_default());
    let permit = service.admit()?;
    if chat.stream {
        let include_usage = chat.stream_options.include_usage;
        return stream_episode(service, team, task, seed, envelope, include_usage, permit).await;
    }
    let (sender, mut receiver) = unbounded_channel();
    let ending = team.play(&task, seed, sender).await?;
    drop(permit);
    let mut turns = Vec::new();
    while let Ok(event) = receiver.try_recv() {
        if let TeamEvent::Turn(turn) = event {
            turns.push(turn);
        }
    }
    let prompt = turns.iter().map(|turn| turn.prompt_tokens).sum();
    let tokens = turns.iter().map(|turn| turn.tokens).sum();
    service.count_tokens(prompt, tokens);
    let finish = finish_reason(ending, turns.last())?;
    let content = turns.last().map(|turn| turn.content.as_str()).unwrap_or_default();
    let earlier = turns.split_last().map(|(_, earlier)| earlier).unwrap_or_default();
    let reasoning: String = earlier.iter().map(transcript).collect();
    let choice = json!({
        "index": 0,
        "message": { "role": "assistant", "content": content, "reasoning_content": reasoning },
        "logprobs": null,
        "finish_reason": finish,
    });
    let mut response = envelope.object("chat.completion", &[choice]);
    response.insert("usage".to_owned(), usage(prompt, tokens));
    response.insert("turns".to_owned(), json!(turns));
    Ok(response::ok(&response))
}

/// Refuses options that have no meaning for a team, and those of sampling, which its workflow sets.
fn refuse_options(chat: &ChatRequest) -> Result<(), ApiError> {
    let options = [
        ("n", chat.sampling.n.is_some_and(|n| n != 1)),
        ("tools", !chat.tools.is_empty()),
        ("logprobs", chat.logprobs),
        ("return_token_ids", chat.return_token_ids),
        ("response_format", chat.response_format.as_ref().is_some_and(|format| format.grammar().is_some())),
        ("chat_template_kwargs", chat.chat_template_kwargs.enable_thinking.is_some()),
    ];
    if let Some((name, _)) = options.into_iter().find(|(_, is_given)| *is_given) {
        return Err(ApiError::field(name, format!("`{name}` has no meaning for a team; leave it out")));
    }
    if let Some(name) = chat.sampling.effective_parameter() {
        let message = format!("`{name}` is not taken for a team, whose workflow sets it; leave it out");
        return Err(ApiError::field(name, message));
    }
    Ok(())
}

/// Returns the task that a conversation has.
fn task(chat: &ChatRequest) -> Result<String, ApiError> {
    let [message] = chat.messages.as_slice() else {
        let message = "a team works on one task: send one message with the role `user`";
        return Err(ApiError::field("messages", message));
    };
    if message.role != "user" {
        return Err(ApiError::field("messages", "a team's task has the role `user`"));
    }
    message.text()
}

/// Returns the reason for which an episode ended.
///
/// # Errors
/// If it was truncated before the first turn.
fn finish_reason(ending: TeamResult, last: Option<&TeamTurn>) -> Result<&'static str, ApiError> {
    match (ending.truncated, last) {
        (true, None) => Err(ApiError::task_too_long()),
        (true, Some(_)) => Ok("length"),
        (false, _) => Ok("stop"),
    }
}

impl From<TeamError> for ApiError {
    fn from(error: TeamError) -> Self {
        let message = error.to_string();
        match error {
            TeamError::Task(_) => ApiError::field("messages", message),
            TeamError::Episode(_) => ApiError::with_status(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

/// Returns a turn as a part of the reasoning.
fn transcript(turn: &TeamTurn) -> String {
    format!("{}: {}\n\n", turn.agent, turn.content)
}

/// Streams an episode: each turn as reasoning once the next one begins, the last one as content.
///
/// # Errors
/// Those of the episode, if it fails before its first turn has ended and within [`stream::FIRST_PART`].
async fn stream_episode(
    service: &Arc<Service>,
    team: Arc<dyn Team>,
    task: String,
    seed: u64,
    envelope: Envelope,
    include_usage: bool,
    permit: Permit,
) -> Result<Response, ApiError> {
    let (sender, mut events) = unbounded_channel();
    let (values, receiver) = unbounded_channel();
    let shared = Arc::clone(service);
    let choice = |delta: Value, finish: Value| json!({ "index": 0, "delta": delta, "finish_reason": finish });
    let opening = envelope.chunk(choice(json!({ "role": "assistant", "content": "" }), Value::Null));
    let playing = async move {
        let _permit = permit;
        let send = |delta: Value, finish: Value| {
            // A client that is gone ends the stream, and with it this future.
            let _ = values.send(envelope.chunk(choice(delta, finish)));
        };
        let mut last: Option<TeamTurn> = None;
        let relay = async {
            let (mut prompt, mut tokens) = (0, 0);
            // Part of the reasoning that the last turn is if another one follows.
            let mut held: Option<String> = None;
            while let Some(event) = events.recv().await {
                if let Some(text) = held.take() {
                    send(json!({ "reasoning_content": text }), Value::Null);
                }
                let TeamEvent::Turn(turn) = event else { continue };
                prompt += turn.prompt_tokens;
                tokens += turn.tokens;
                shared.count_tokens(turn.prompt_tokens, turn.tokens);
                held = Some(transcript(&turn));
                last = Some(turn);
            }
            (prompt, tokens)
        };
        let (ending, (prompt, tokens)) = tokio::join!(team.play(&task, seed, sender), relay);
        let finish = finish_reason(ending?, last.as_ref())?;
        let content = last.map(|turn| turn.content).unwrap_or_default();
        send(json!({ "content": content }), Value::Null);
        send(json!({}), json!(finish));
        if include_usage {
            let _ = values.send(envelope.usage_chunk(usage(prompt, tokens)));
        }
        Ok::<_, ApiError>(())
    };
    let mut parts = Box::pin(stream::while_running(playing, receiver));
    let first = match tokio::time::timeout(stream::FIRST_PART, parts.next()).await {
        Ok(Some(Progress::Ended(Err(error)))) => return Err(error),
        first => first.ok().flatten(),
    };
    let parts = futures::stream::iter([Progress::Sent(opening)].into_iter().chain(first)).chain(parts);
    Ok(stream::events(parts.filter_map(async |part| match part {
        Progress::Sent(value) => Some(value),
        Progress::Ended(ending) => ending.err().map(|error| error.to_json()),
    })))
}
