//! One container and the conversation with its supervisor.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bollard::container::{AttachContainerResults, LogOutput};
use bollard::errors::Error as Fault;
use bollard::query_parameters::AttachContainerOptionsBuilder;
use bytes::{Buf, BytesMut};
use futures::{Stream, StreamExt};
use pl_supervisor::{Message, Run, Task};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::engine::{Engine, Place};

/// From the engine's start of a container to the supervisor's first word.
const STARTING: Duration = Duration::from_secs(60);

/// What a supervisor may take beyond the time of a program: it ends processes and empties folders.
const GRACE: Duration = Duration::from_secs(15);

/// A container that is ready for a job.
pub struct Worker {
    engines: Arc<[Engine]>,
    /// Which of the engines it is on.
    at: usize,
    id: String,
    input: Pin<Box<dyn AsyncWrite + Send>>,
    output: Pin<Box<dyn Stream<Item = Result<LogOutput, Fault>> + Send>>,
    heard: BytesMut,
    longest: usize,
    /// Jobs so far.
    pub served: u32,
}

impl Worker {
    /// Starts a container on an engine.
    pub async fn start(
        engines: &Arc<[Engine]>,
        at: usize,
        number: u32,
        longest: usize,
    ) -> Result<Worker, String> {
        let engine = engines.get(at).ok_or("there is no such engine")?;
        let id = engine.create(number).await?;
        let started = attach_and_start(engine, &id).await;
        let started = match started {
            Ok(AttachContainerResults { input, output }) => {
                let engines = Arc::clone(engines);
                let heard = BytesMut::new();
                let mut worker =
                    Worker { engines, at, id: id.clone(), input, output, heard, longest, served: 0 };
                worker.hear_ready().await.map(|()| worker)
            }
            Err(error) => Err(error.to_string()),
        };
        if started.is_err() {
            engine.remove(&id).await;
        }
        started.map_err(|reason| format!("{} starts no container: {reason}", engine.endpoint()))
    }

    async fn hear_ready(&mut self) -> Result<(), String> {
        match timeout(STARTING, self.hear()).await {
            Ok(Ok(Message::Ready(None))) => Ok(()),
            Ok(Ok(Message::Ready(Some(reason)))) => Err(format!("it is not closed: {reason}")),
            Ok(Ok(_)) => Err("its supervisor speaks out of turn".to_owned()),
            Ok(Err(reason)) => Err(reason),
            Err(_) => Err(format!("its supervisor says nothing for {} s", STARTING.as_secs())),
        }
    }

    /// Runs a task to the verdicts of its cases. The error says how the container was lost.
    pub async fn run(&mut self, task: &Task) -> Result<Vec<Run>, String> {
        self.served += 1;
        let content = task.encode();
        let length = u32::try_from(content.len()).map_err(|_| "the job is too long".to_owned())?;
        let frame = [&length.to_le_bytes()[..], &content].concat();
        // What does not read its task in this time is broken, however slow.
        let sent = async {
            self.input.write_all(&frame).await?;
            self.input.flush().await
        };
        match timeout(STARTING, sent).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("it takes no job".to_owned()),
        }
        let mut runs = Vec::new();
        while runs.len() < task.cases.len() {
            let patience = Duration::from_millis(task.timeout) + GRACE;
            match timeout(patience, self.hear()).await {
                Ok(Ok(Message::Ran(run))) => {
                    let over = run.compiling;
                    runs.push(*run);
                    if over {
                        break;
                    }
                }
                Ok(Ok(Message::Clean(Some(left)))) => return Err(format!("{left} could not be removed")),
                Ok(Ok(_)) => return Err("its supervisor speaks out of turn".to_owned()),
                Ok(Err(reason)) => return Err(reason),
                Err(_) => return Err(format!("it was silent for {} s", patience.as_secs())),
            }
        }
        Ok(runs)
    }

    /// Waits until nothing of the task is left. The error says what is.
    pub async fn settle(&mut self) -> Result<(), String> {
        match timeout(GRACE, self.hear()).await {
            Ok(Ok(Message::Clean(None))) => Ok(()),
            Ok(Ok(Message::Clean(Some(left)))) => Err(left),
            Ok(Ok(_)) => Err("its supervisor speaks out of turn".to_owned()),
            Ok(Err(reason)) => Err(reason),
            Err(_) => Err("it does not come to an end".to_owned()),
        }
    }

    /// Waits until the container is gone or says something that nobody asked for.
    pub async fn lost(&mut self) -> String {
        match self.hear().await {
            Ok(_) => "its supervisor speaks out of turn".to_owned(),
            Err(reason) => reason,
        }
    }

    /// Removes the container.
    pub async fn remove(self) {
        let Worker { engines, at, id, input, output, .. } = self;
        // Its supervisor ends by itself, which is quicker than being killed.
        drop((input, output));
        if let Some(engine) = engines.get(at) {
            engine.remove(&id).await;
        }
    }

    /// The next message. Nothing is lost where this is cancelled.
    async fn hear(&mut self) -> Result<Message, String> {
        loop {
            if let Some(message) = self.message()? {
                return Ok(message);
            }
            match self.output.next().await {
                Some(Ok(LogOutput::StdOut { message })) => self.heard.extend_from_slice(&message),
                Some(Ok(other)) => return Err(String::from_utf8_lossy(other.as_ref()).trim().to_owned()),
                Some(Err(error)) => return Err(error.to_string()),
                None => return Err("its container is gone".to_owned()),
            }
        }
    }

    fn message(&mut self) -> Result<Option<Message>, String> {
        let Some(&length) = self.heard.first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes(length) as usize;
        if length > self.longest {
            return Err("its supervisor says too much".to_owned());
        }
        if self.heard.len() < 4 + length {
            return Ok(None);
        }
        self.heard.advance(4);
        let content = self.heard.split_to(length);
        Message::decode(&content).map(Some).ok_or_else(|| "its supervisor is not understood".to_owned())
    }

    /// Keeps its engine's load right as long as it lives.
    pub fn place<'a>(engines: &'a [Engine], at: usize) -> Option<Place<'a>> {
        engines.get(at).map(Place::on)
    }
}

async fn attach_and_start(engine: &Engine, id: &str) -> Result<AttachContainerResults, String> {
    let docker = engine.docker().await?;
    let options =
        AttachContainerOptionsBuilder::default().stdin(true).stdout(true).stderr(true).stream(true).build();
    let attached = docker.attach_container(id, Some(options)).await.map_err(|error| error.to_string())?;
    docker.start_container(id, None).await.map_err(|error| error.to_string())?;
    Ok(attached)
}
