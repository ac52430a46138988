//! A small hub on a local port, with the routes and the headers of the real one: listings, files, redirects
//! to another server for large files, parts of files, refusals. And with its bad days.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use sha1::Sha1;
use sha2::{Digest, Sha256};

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Faults of the server.
#[derive(Default)]
pub struct Faults {
    /// Status and `x-error-code` of every response; an empty code leaves the header out.
    pub status: Option<(u16, &'static str)>,
    /// Number of responses with large files that are truncated, and their length.
    pub truncate: Option<(u32, usize)>,
    /// Sends large files from the start, whatever the range.
    pub ignore_ranges: bool,
    /// Difference of the stated and the real size of large files.
    pub size_error: i64,
    /// Sends files with a wrong byte.
    pub corrupt: bool,
}

/// A received request.
#[derive(Debug, Clone)]
pub struct Request {
    /// `GET /path`.
    pub line: String,
    pub host: String,
    pub range: Option<String>,
    pub token: Option<String>,
}

pub struct Server {
    port: u16,
    state: Arc<State>,
}

struct State {
    repo: String,
    port: u16,
    files: BTreeMap<String, Vec<u8>>,
    pub faults: Mutex<Faults>,
    log: Mutex<Vec<Request>>,
}

impl Server {
    /// Serves the files of one repository; those of 4 kB and more are large.
    pub fn start(repo: &str, files: BTreeMap<String, Vec<u8>>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (faults, log) = (Mutex::default(), Mutex::default());
        let state = Arc::new(State { repo: repo.to_owned(), port, files, faults, log });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || state.respond(stream));
            }
        });
        Server { port, state }
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn set(&self, faults: Faults) {
        *self.state.faults.lock().unwrap() = faults;
    }

    /// Returns the requests since the last call.
    pub fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.state.log.lock().unwrap())
    }
}

/// Returns git's hash of a small file, and the SHA-256 of a large one.
pub fn etag(content: &[u8]) -> String {
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    match content.len() {
        length @ 0..4096 => {
            hex(&Sha1::new().chain_update(format!("blob {length}\0")).chain_update(content).finalize())
        }
        _ => hex(&Sha256::digest(content)),
    }
}

impl State {
    fn respond(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let header = |name: &str| {
            lines
                .iter()
                .skip(1)
                .filter_map(|line| line.split_once(": "))
                .find_map(|(key, value)| key.eq_ignore_ascii_case(name).then(|| value.to_owned()))
        };
        let line = lines[0].trim_end_matches(" HTTP/1.1").to_owned();
        let request = Request {
            line: line.clone(),
            host: header("host").unwrap_or_default(),
            range: header("range"),
            token: header("authorization"),
        };
        self.log.lock().unwrap().push(request.clone());
        let (method, path) = line.split_once(' ').unwrap();
        let mut out = stream;
        let mut send = |status: u16, headers: &[(&str, String)], body: &[u8], sent: usize| {
            let length = ("Content-Length", body.len().to_string());
            let stated = headers.iter().any(|(name, _)| *name == "Content-Length");
            let mut head = format!("HTTP/1.1 {status} Whatever\r\nConnection: close\r\n");
            for (name, value) in headers.iter().chain((!stated).then_some(&length)) {
                head += &format!("{name}: {value}\r\n");
            }
            let body = if method == "HEAD" { &[] } else { &body[..sent.min(body.len())] };
            // A closed connection is not an error of the server.
            let _ = out.write_all(head.as_bytes()).and_then(|()| out.write_all(b"\r\n"));
            let _ = out.write_all(body);
        };
        let mut faults = self.faults.lock().unwrap();
        if let Some((status, code)) = faults.status {
            let code = (!code.is_empty()).then(|| ("X-Error-Code", code.to_owned()));
            send(status, code.as_slice(), b"{\"error\": \"no and no\"}", usize::MAX);
            return;
        }
        if let Some(name) = path.strip_prefix("/cdn/") {
            let mut content = self.files[name].clone();
            if faults.corrupt {
                content[0] ^= 1;
            }
            let range = request.range.filter(|_| !faults.ignore_ranges);
            let from: usize = range
                .map_or(0, |range| range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap());
            if from >= content.len() {
                return send(416, &[], b"", 0);
            }
            let mut sent = usize::MAX;
            if let Some((left @ 1.., bytes)) = &mut faults.truncate {
                *left -= 1;
                sent = *bytes;
            }
            let part = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
            let status = if from > 0 { 206 } else { 200 };
            return send(status, &[("Content-Range", part)], &content[from..], sent);
        }
        let lists =
            |collection: &str| path.starts_with(&format!("/api/{collection}/{}/revision/", self.repo));
        if lists("models") || lists("datasets") {
            let files: Vec<_> =
                self.files.keys().map(|name| serde_json::json!({ "rfilename": name })).collect();
            let listing = serde_json::json!({ "sha": COMMIT, "siblings": files });
            return send(200, &[], listing.to_string().as_bytes(), usize::MAX);
        }
        let path = path.strip_prefix("/datasets").unwrap_or(path);
        let file = path.strip_prefix(&format!("/{}/resolve/{COMMIT}/", self.repo));
        let Some((name, content)) = file.and_then(|name| Some((name, self.files.get(name)?))) else {
            return send(404, &[("X-Error-Code", "EntryNotFound".into())], b"", 0);
        };
        let checksum = format!("\"{}\"", etag(content));
        if content.len() < 4096 {
            let mut content = content.clone();
            if faults.corrupt {
                content[0] ^= 1;
            }
            return send(200, &[("ETag", checksum)], &content, usize::MAX);
        }
        let size = content.len() as i64 + faults.size_error;
        let location = format!("http://localhost:{}/cdn/{name}", self.port);
        send(
            302,
            &[("X-Linked-ETag", checksum), ("X-Linked-Size", size.to_string()), ("Location", location)],
            b"",
            0,
        );
    }
}
