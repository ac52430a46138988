//! A TCP proxy that delays, cuts or swallows what passes through it.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// State of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum State {
    /// Bytes arrive after a while.
    Delayed(Duration),
    /// Connections stay open, and nothing passes.
    Silent,
    /// Connections are closed, and new ones too.
    Cut,
}

/// A link to a server on this machine.
pub struct Link {
    pub url: String,
    state: watch::Sender<State>,
}

impl Link {
    /// Makes a link to the server with this address.
    pub async fn to(url: &str) -> Link {
        let server = url.trim_start_matches("nats://").to_owned();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let (state, states) = watch::channel(State::Delayed(Duration::ZERO));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, states) = (server.clone(), states.clone());
                tokio::spawn(async move { pass(client, &server, states).await });
            }
        });
        Link { url, state }
    }

    pub fn set(&self, state: State) {
        self.state.send_replace(state);
    }
}

async fn pass(client: TcpStream, server: &str, mut states: watch::Receiver<State>) {
    if *states.borrow() == State::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = pump(from_client, to_server, states.clone()) => {}
        () = pump(from_server, to_client, states.clone()) => {}
        _ = states.wait_for(|state| *state == State::Cut) => {}
    }
}

/// Copies bytes from one side to the other, each after the delay at the time when they came.
async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut states: watch::Receiver<State>,
) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let reading = {
        let states = states.clone();
        async move {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(length @ 1..) = from.read(&mut buffer).await {
                let delay = match *states.borrow() {
                    State::Delayed(delay) => delay,
                    State::Silent | State::Cut => Duration::ZERO,
                };
                drop(sender.send((Instant::now() + delay, buffer[..length].to_vec())));
            }
        }
    };
    let writing = async {
        while let Some((time, bytes)) = receiver.recv().await {
            tokio::time::sleep_until(time).await;
            if states.wait_for(|state| *state != State::Silent).await.is_err()
                || to.write_all(&bytes).await.is_err()
            {
                return;
            }
        }
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
    }
}
