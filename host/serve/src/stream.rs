//! Completions as they are generated, and their events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream, StreamExt};
use pl_types::{Chunk, Completion, Request};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::error::ApiError;
use crate::service::{Permit, Service};

/// A part of the completions of a request.
pub(crate) enum Generated {
    /// More of one completion.
    Chunk(Chunk),
    /// All completions, after their last chunks.
    Finished(Vec<Completion>),
    Failed(ApiError),
}

/// Time that a response waits for the first part of its completions. A request that is not valid has failed by then, and its
/// status says so; one that waits for its turn begins with status 200, before its client gives up on a silent server.
pub(crate) const FIRST_PART: Duration = Duration::from_secs(10);

/// Generates, and returns the completions part by part. Counts the tokens of each part. Dropping the stream cancels the request.
///
/// # Errors
/// Those of the engine, if generation fails before the first part.
pub(crate) async fn generate(
    service: &Arc<Service>,
    mut request: Request,
    permit: Permit,
) -> Result<impl Stream<Item = Generated> + Send + use<>, ApiError> {
    let (sender, chunks) = unbounded_channel();
    request.listener = Some(sender);
    let mut prompt = Some(request.prompt.len());
    let (shared, generator) = (Arc::clone(service), Arc::clone(&service.generator));
    let generation = async move { generator.generate(request).await };
    let parts = while_running(generation, chunks).map(move |part| {
        // A request is in progress until its client has read the end.
        let _held = &permit;
        match part {
            Progress::Sent(chunk) => {
                shared.count_tokens(prompt.take().unwrap_or(0), chunk.tokens.len());
                Generated::Chunk(chunk)
            }
            Progress::Ended(Ok(completions)) => Generated::Finished(completions),
            Progress::Ended(Err(error)) => Generated::Failed(error.into()),
        }
    });
    let mut parts = Box::pin(parts);
    match tokio::time::timeout(FIRST_PART, parts.next()).await {
        Ok(Some(Generated::Failed(error))) => Err(error),
        first => Ok(stream::iter(first.ok().flatten()).chain(parts)),
    }
}

/// Progress of some work.
pub(crate) enum Progress<T, R> {
    /// A value that it sent.
    Sent(T),
    /// Its result, after all values.
    Ended(R),
}

/// Returns the values that `work` sends, and then its result. Dropping the stream drops `work`.
pub(crate) fn while_running<T: Send, R: Send>(
    work: impl Future<Output = R> + Send + 'static,
    values: UnboundedReceiver<T>,
) -> impl Stream<Item = Progress<T, R>> + Send {
    let work: Pin<Box<dyn Future<Output = R> + Send>> = Box::pin(work);
    stream::unfold((Some(work), values, None), |(mut work, mut values, mut result)| async move {
        while let Some(running) = &mut work {
            tokio::select! {
                // Values first: the result is passed on after the last of them.
                biased;
                Some(value) = values.recv() => return Some((Progress::Sent(value), (work, values, result))),
                ended = running => {
                    result = Some(ended);
                    work = None;
                }
            }
        }
        let part = match values.try_recv() {
            Ok(value) => Progress::Sent(value),
            Err(_) => Progress::Ended(result.take()?),
        };
        Some((part, (work, values, result)))
    })
}

/// Returns a response of server-sent events, one per value, that ends as OpenAI's do: with `[DONE]`.
pub(crate) fn events(values: impl Stream<Item = Value> + Send + 'static) -> Response {
    let values = values.map(|value| value.to_string()).chain(stream::iter(["[DONE]".to_owned()]));
    let events = values.map(|data| Ok::<_, Infallible>(Event::default().data(data)));
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}
