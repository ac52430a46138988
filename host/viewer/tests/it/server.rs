//! A server on a free port, and requests byte by byte: tests send headers that no client would.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use pl_viewer::{AccessToken, Viewer, serve};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::player::ScriptedPlayer;
use crate::recorded::viewer;

/// A running server. It ends when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    pub token: String,
    pub player: Arc<ScriptedPlayer>,
    _stop: oneshot::Sender<()>,
}

/// Response to a request.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// In lower case.
    pub head: String,
    pub body: String,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

impl Server {
    pub fn start(runs: &Path) -> Server {
        let player = Arc::new(ScriptedPlayer::default());
        Server::serve(viewer(runs).with_player(player.clone()), player)
    }

    pub fn without_player(runs: &Path) -> Server {
        Server::serve(viewer(runs), Arc::default())
    }

    fn serve(viewer: Viewer, player: Arc<ScriptedPlayer>) -> Server {
        let token = AccessToken::random();
        let (stop, stopped) = oneshot::channel();
        let (sender, address) = std::sync::mpsc::channel();
        let shown = token.as_str().to_owned();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                serve(listener, viewer, token, async { drop(stopped.await) }).await.unwrap();
            });
        });
        Server { address: address.recv().unwrap(), token: shown, player, _stop: stop }
    }

    /// Sends a request with the headers of a page of the server itself, except for `headers`.
    pub fn send(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        self.request("GET", path, headers, "")
    }

    /// Sends a request with a body.
    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !body.is_empty() {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        if !headers.iter().any(|(name, _)| *name == "Host") {
            request.push_str(&format!("Host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        request.push_str(body);
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    /// Sends JSON as the page does.
    pub fn post(&self, path: &str, body: &Value) -> Response {
        let (bearer, origin) = (format!("Bearer {}", self.token), format!("http://{}", self.address));
        let headers =
            [("Authorization", bearer.as_str()), ("Origin", &origin), ("Content-Type", "application/json")];
        self.request("POST", path, &headers, &body.to_string())
    }

    /// Sends a request with the token.
    pub fn get(&self, path: &str) -> Response {
        self.send(path, &[("Authorization", &format!("Bearer {}", self.token))])
    }
}
