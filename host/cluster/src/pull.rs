//! Messages of a durable pull consumer: taken one at a time, kept while they are worked on, acknowledged.

use std::time::Duration;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::{AckKind, Message};
use futures::StreamExt;
use tokio::task::JoinHandle;

use crate::connection::Connection;

/// Deliveries of a message after which it is given up.
pub(crate) const MOST_DELIVERIES: i64 = 5;

/// Time that a request for a message waits at the server. The end of a run, or of the connection, ends it before. Shorter
/// pulls from thousands of workers would saturate the server.
const LONGEST_PULL: Duration = Duration::from_secs(30);

/// Pause after a request that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits some seconds for a message. Returns `None` if there was none, or the connection was made again.
pub(crate) async fn pull(connection: &Connection, consumer: &Consumer<pull::Config>) -> Option<Message> {
    match try_pull(connection, consumer).await {
        Ok(message) => message,
        Err(error) => {
            tracing::debug!(%error, "no message was received");
            tokio::time::sleep(PAUSE).await;
            None
        }
    }
}

async fn try_pull(
    connection: &Connection,
    consumer: &Consumer<pull::Config>,
) -> Result<Option<Message>, async_nats::Error> {
    let mut batch = consumer.batch().max_messages(1).expires(LONGEST_PULL).messages().await?;
    tokio::select! {
        message = batch.next() => message.transpose(),
        () = connection.reconnected() => Ok(None),
    }
}

/// Returns true if a message has an id, as all have that this program publishes.
pub(crate) fn is_published(message: &Message) -> bool {
    message.headers.as_ref().is_some_and(|headers| headers.get(NATS_MESSAGE_ID).is_some())
}

/// Returns the number of deliveries of a message so far.
pub(crate) fn deliveries(message: &Message) -> i64 {
    message.info().map_or(1, |info| info.delivered)
}

/// Acknowledges a message and waits for the server's answer.
pub(crate) async fn acknowledge(message: &Message, kind: AckKind) {
    if let Err(error) = message.double_ack_with(kind).await {
        tracing::debug!(%error, "an acknowledgement was lost: the message may be delivered again");
    }
}

/// Repeated message to the server that a lease or a job is still worked on, while the value lives.
pub(crate) struct LeaseHeartbeat(JoinHandle<()>);

impl LeaseHeartbeat {
    /// Starts to report progress on a message of a consumer, three times in the time after which the server delivers it again.
    pub fn start(message: Message, consumer: &Consumer<pull::Config>) -> LeaseHeartbeat {
        let every = (consumer.cached_info().config.ack_wait / 3).max(Duration::from_millis(100));
        LeaseHeartbeat(tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                if let Err(error) = message.ack_with(AckKind::Progress).await {
                    tracing::debug!(%error, "the server did not learn that a message is still worked on");
                }
            }
        }))
    }
}

impl Drop for LeaseHeartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}
