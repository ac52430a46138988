//! An engine that answers from a table: what a real one does not answer on demand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use pl_sandbox::{DockerSettings, SandboxLimits};

/// Version of the interface that the engine has.
const VERSION: &str = r#"{"Version":"27.0.0","ApiVersion":"1.44","Arch":"amd64"}"#;

/// An engine that lives as long as the test.
pub struct ScriptedEngine {
    port: u16,
    /// Requests so far, each as its method and path.
    requests: Arc<Mutex<Vec<String>>>,
}

impl ScriptedEngine {
    /// Starts an engine that answers requests whose path has the first text with the second one. It knows its version, and
    /// answers all else with an error.
    pub fn start(answers: &[(&str, &str)]) -> ScriptedEngine {
        let answer = table(answers);
        ScriptedEngine::with(move |link, path| drop(link.write_all(answer(path).as_bytes())))
    }

    /// Starts an engine like [`ScriptedEngine::start`] that stops within its first answer to a request whose path has `part`,
    /// and is back at once.
    pub fn restarting(answers: &[(&str, &str)], part: &'static str) -> ScriptedEngine {
        let answer = table(answers);
        let mut has_stopped = false;
        ScriptedEngine::with(move |link, path| {
            let mut text = answer(path);
            if path.contains(part) && !has_stopped {
                has_stopped = true;
                text.truncate(text.len() - 10);
            }
            drop(link.write_all(text.as_bytes()));
        })
    }

    /// Starts an engine that answers every request with these bytes and closes the connection.
    pub fn broken(answer: &'static str) -> ScriptedEngine {
        ScriptedEngine::with(move |link, _| drop(link.write_all(answer.as_bytes())))
    }

    fn with(mut answer: impl FnMut(&mut TcpStream, &str) + Send + 'static) -> ScriptedEngine {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for mut link in listener.incoming().flatten() {
                let mut reader = BufReader::new(link.try_clone().unwrap());
                let mut lines = reader.by_ref().lines().map_while(Result::ok);
                let Some(request) = lines.next() else { continue };
                let fields = lines.take_while(|line| !line.is_empty());
                let length = fields.filter_map(|line| content_length(&line)).last().unwrap_or(0);
                // A connection that is closed before all of the request is read would be reset, and its answer lost.
                let _ = std::io::copy(&mut reader.take(length), &mut std::io::sink());
                let mut words = request.split(' ');
                let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                seen.lock().unwrap().push(format!("{method} {path}"));
                answer(&mut link, path);
            }
        });
        ScriptedEngine { port, requests }
    }

    pub fn endpoint(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port)
    }

    /// Returns settings for one worker on this engine.
    pub fn settings(&self) -> DockerSettings {
        DockerSettings {
            limits: SandboxLimits { workers: 1, ..SandboxLimits::default() },
            image: "python:3.12".to_owned(),
            endpoints: vec![self.endpoint()],
            ..DockerSettings::default()
        }
    }

    /// Returns the ids of the containers that it was told to remove.
    pub fn removed(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let removals = requests.iter().filter(|request| request.starts_with("DELETE "));
        let id =
            |request: &String| request.split(['/', '?']).find(|part| part.len() == 64).map(str::to_owned);
        removals.filter_map(id).collect()
    }
}

/// Returns a function from a path to the whole answer.
fn table(answers: &[(&str, &str)]) -> impl Fn(&str) -> String + Send + use<> {
    let answers: Vec<(String, String)> = [("/version", VERSION)]
        .iter()
        .chain(answers)
        .map(|(path, body)| ((*path).to_owned(), (*body).to_owned()))
        .collect();
    move |path| {
        let found = answers.iter().rev().find(|(part, _)| path.contains(part.as_str()));
        let (status, body) = found
            .map_or(("404 Not Found", r#"{"message":"nothing"}"#), |(_, body)| ("200 OK", body.as_str()));
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )
    }
}

/// Returns the length of a request's body if the line gives it.
fn content_length(line: &str) -> Option<u64> {
    let (name, value) = line.split_once(':')?;
    name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok()).flatten()
}
