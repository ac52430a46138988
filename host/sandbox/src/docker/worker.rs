//! One container and the protocol with its supervisor.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bollard::container::{AttachContainerResults, LogOutput};
use bollard::errors::Error as BollardError;
use bollard::query_parameters::AttachContainerOptionsBuilder;
use bytes::{Buf, BytesMut};
use futures::{Stream, StreamExt};
use pl_supervisor::{RunReport, SupervisorMessage, SupervisorTask};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::container;
use super::engine::{DockerEngine, LoadGuard};
use super::error::{DockerError, WorkerError};

/// Time from the start of a container to the supervisor's first message, and time to send it a task.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Time of a supervisor in addition to that of a program: it kills processes and empties folders.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(15);

const OUT_OF_TURN: WorkerError = WorkerError::Protocol("a message out of turn");

/// A container that accepts jobs.
pub struct Worker {
    engine: Arc<DockerEngine>,
    load: LoadGuard,
    id: String,
    input: Pin<Box<dyn AsyncWrite + Send>>,
    output: Pin<Box<dyn Stream<Item = Result<LogOutput, BollardError>> + Send>>,
    /// Received bytes that are not a complete message yet.
    received: BytesMut,
    max_message: usize,
    /// Number of jobs so far.
    pub served: u32,
}

impl Worker {
    /// Starts a container and waits for its supervisor. `number` identifies the container within the pool.
    pub async fn start(
        engine: &Arc<DockerEngine>,
        number: u32,
        max_message: usize,
    ) -> Result<Worker, DockerError> {
        let load = LoadGuard::new(Arc::clone(engine));
        let id = container::create(engine, number).await?;
        let AttachContainerResults { input, output } = match attach_and_start(engine, &id).await {
            Ok(streams) => streams,
            Err(error) => {
                engine.remove(&id).await;
                return Err(error);
            }
        };
        let mut worker = Worker {
            engine: Arc::clone(engine),
            load,
            id,
            input,
            output,
            received: BytesMut::new(),
            max_message,
            served: 0,
        };
        match worker.wait_until_ready().await {
            Ok(()) => Ok(worker),
            Err(source) => {
                engine.remove(&worker.id).await;
                Err(DockerError::Container { endpoint: engine.endpoint().to_owned(), source })
            }
        }
    }

    async fn wait_until_ready(&mut self) -> Result<(), WorkerError> {
        match self.receive_within(STARTUP_TIMEOUT).await? {
            SupervisorMessage::Ready(None) => Ok(()),
            SupervisorMessage::Ready(Some(reason)) => Err(WorkerError::NotIsolated(reason)),
            _ => Err(OUT_OF_TURN),
        }
    }

    /// Runs a task and returns the reports of its cases, or that of its compiler alone. After an error the
    /// container is lost.
    pub async fn run(&mut self, task: &SupervisorTask) -> Result<Vec<RunReport>, WorkerError> {
        self.served += 1;
        let frame = pl_supervisor::encode_frame(task).map_err(|_| WorkerError::TaskTooLong)?;
        let send = async {
            self.input.write_all(&frame).await?;
            self.input.flush().await
        };
        timeout(STARTUP_TIMEOUT, send).await.map_err(|_| WorkerError::NotReading(STARTUP_TIMEOUT))??;
        let mut reports = Vec::new();
        while reports.len() < task.cases.len() {
            let run_timeout = Duration::from_millis(task.timeout_ms) + CLEANUP_TIMEOUT;
            match self.receive_within(run_timeout).await? {
                SupervisorMessage::Ran(report) => {
                    let is_last = report.is_compiler;
                    reports.push(*report);
                    if is_last {
                        break;
                    }
                }
                SupervisorMessage::Clean(Some(remains)) => return Err(WorkerError::Unclean(remains)),
                _ => return Err(OUT_OF_TURN),
            }
        }
        Ok(reports)
    }

    /// Waits until the supervisor has removed everything that the task left.
    pub async fn wait_until_clean(&mut self) -> Result<(), WorkerError> {
        match self.receive_within(CLEANUP_TIMEOUT).await? {
            SupervisorMessage::Clean(None) => Ok(()),
            SupervisorMessage::Clean(Some(remains)) => Err(WorkerError::Unclean(remains)),
            _ => Err(OUT_OF_TURN),
        }
    }

    /// Waits until an idle container is lost: it is gone, or it sends a message out of turn.
    pub async fn wait_until_lost(&mut self) -> WorkerError {
        match self.receive().await {
            Ok(_) => OUT_OF_TURN,
            Err(reason) => reason,
        }
    }

    /// Takes the container out of its engine's load at once and returns a future that removes it.
    pub fn remove(self) -> impl Future<Output = ()> + Send + use<> {
        let Worker { engine, load, id, input, output, .. } = self;
        drop(load);
        // Without its input the supervisor ends by itself, which is quicker than killing it.
        drop((input, output));
        async move { engine.remove(&id).await }
    }

    async fn receive_within(&mut self, limit: Duration) -> Result<SupervisorMessage, WorkerError> {
        timeout(limit, self.receive()).await.map_err(|_| WorkerError::Silent(limit))?
    }

    /// Returns the next message. Cancel-safe.
    async fn receive(&mut self) -> Result<SupervisorMessage, WorkerError> {
        loop {
            if let Some(message) = self.take_message()? {
                return Ok(message);
            }
            match self.output.next().await {
                Some(Ok(LogOutput::StdOut { message })) => self.received.extend_from_slice(&message),
                Some(Ok(other)) => {
                    return Err(WorkerError::Stderr(
                        String::from_utf8_lossy(other.as_ref()).trim().to_owned(),
                    ));
                }
                Some(Err(error)) => return Err(error.into()),
                None => return Err(WorkerError::Gone),
            }
        }
    }

    /// Returns the first message of the received bytes if it is complete.
    fn take_message(&mut self) -> Result<Option<SupervisorMessage>, WorkerError> {
        let Some(&length) = self.received.first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes(length) as usize;
        if length > self.max_message {
            return Err(WorkerError::Protocol("a message that is too long"));
        }
        if self.received.len() < 4 + length {
            return Ok(None);
        }
        self.received.advance(4);
        let content = self.received.split_to(length);
        pl_supervisor::decode(&content).map(Some).ok_or(WorkerError::Protocol("a malformed message"))
    }
}

async fn attach_and_start(engine: &DockerEngine, id: &str) -> Result<AttachContainerResults, DockerError> {
    let docker = engine.docker().await?;
    let options =
        AttachContainerOptionsBuilder::default().stdin(true).stdout(true).stderr(true).stream(true).build();
    let attached = docker.attach_container(id, Some(options)).await;
    let attached = attached.map_err(engine.request_error("attach to a container"))?;
    docker.start_container(id, None).await.map_err(engine.request_error("start a container"))?;
    Ok(attached)
}
