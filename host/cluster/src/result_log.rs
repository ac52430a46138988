//! The log of results: appended by workers, read by the coordinator from its beginning.

use std::time::Duration;

use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream};
use bytes::Bytes;
use futures::StreamExt;

use crate::connection::Connection;
use crate::error::Error;
use crate::lease::{Outcome, ResultMessage};
use crate::names::Names;
use crate::streams::create_stream;

/// Time in which the server drops a result that was published before.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(900);

/// Pause before the log is read again after an error.
const PAUSE: Duration = Duration::from_millis(200);

/// Creates the stream of results.
pub(crate) async fn create(connection: &Connection, names: &Names) -> Result<Stream, Error> {
    let config = Config {
        name: names.results(),
        subjects: names.result_subjects(),
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        duplicate_window: DUPLICATE_WINDOW,
        ..Config::default()
    };
    create_stream(connection, "create the stream of results", config).await
}

/// Appends a result of a lease of a coordinator. A worker that publishes it twice appends it once; that of a later coordinator's
/// lease is appended, because its coordinator may not have kept the first.
pub(crate) async fn append(
    connection: &Connection,
    names: &Names,
    epoch: u64,
    message: &ResultMessage,
) -> Result<(), Error> {
    let encoded: Bytes = postcard::to_allocvec(message).map_err(connection.failed("encode a result"))?.into();
    let subject = names.result_subject(message.queue, message.step);
    let id = match &message.outcome {
        Outcome::Part { index, .. } => format!("{}-{epoch}-{}-{index}", message.key, message.worker),
        _ => format!("{}-{epoch}-{}", message.key, message.worker),
    };
    let publish = || async {
        let message = PublishMessage::build().payload(encoded.clone()).message_id(&id);
        connection.context.send_publish(subject.clone(), message).await?.await
    };
    connection.persist("store a result", publish).await?;
    Ok(())
}

/// Hands every result in the log to `receive`, those from before first, until the task is aborted. A server that is away
/// is waited for.
pub(crate) async fn follow(
    connection: Connection,
    names: Names,
    stream: Stream,
    receive: impl Fn(ResultMessage),
) {
    // Sequence of the next message.
    let mut next = 1;
    loop {
        tokio::select! {
            ended = read(&names, &stream, &mut next, &receive) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "the log of results is read again");
                }
            }
            () = connection.reconnected() => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn read(
    names: &Names,
    stream: &Stream,
    next: &mut u64,
    receive: &impl Fn(ResultMessage),
) -> Result<(), async_nats::Error> {
    let config = OrderedConfig {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: *next },
        replay_policy: ReplayPolicy::Instant,
        ..OrderedConfig::default()
    };
    let consumer = stream.create_consumer(config).await?;
    let mut messages = consumer.messages().await?;
    while let Some(message) = messages.next().await {
        let message = message?;
        let sequence = message.info()?.stream_sequence;
        match postcard::from_bytes::<ResultMessage>(&message.payload) {
            Ok(result) if *message.subject == *names.result_subject(result.queue, result.step) => {
                receive(result)
            }
            Ok(result) => tracing::warn!(
                sequence,
                worker = result.worker,
                "a result is on a subject that is not its own, and is dropped"
            ),
            Err(error) => tracing::warn!(sequence, %error, "a message in the log of results is not a result"),
        }
        *next = sequence + 1;
    }
    Ok(())
}
