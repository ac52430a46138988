//! CPU time of the client per request, beside bare hyper with the same bytes on kept connections.
//!
//! The server is a thread of its own that answers every request with the same bytes; only the client's thread is
//! measured. Prints lines of JSON.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use pl_servers::{Backoff, Fleet, FleetConfig, RemoteModel, ServerKind, SleepLevel, TokenRequest};
use pl_types::Sampling;
use serde_json::{Value, json};

/// Requests that are measured.
const REQUESTS: usize = 4000;

/// Requests in progress at a time.
const IN_FLIGHT: usize = 64;

/// Tokens of a prompt.
const PROMPT: usize = 400;

/// Largest part of the time that the client's thread has spent, from the kernel.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split_whitespace().next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

/// Answer with some tokens.
fn answer(tokens: usize) -> Value {
    let content: Vec<Value> = (0..tokens)
        .map(|token| json!({ "token": format!("token_id:{token}"), "logprob": -1.0 - token as f64 / 97.0, "top_logprobs": [] }))
        .collect();
    let ids: Vec<usize> = (0..tokens).collect();
    json!({
        "request_id": "generate-tokens-0", "model": "base",
        "choices": [{
            "index": 0, "token_ids": ids, "logprobs": { "content": content }, "finish_reason": "length",
        }],
    })
}

/// Starts a server that answers completions with `tokens` tokens. Returns its address.
fn serve(tokens: usize) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let completion: Arc<str> = answer(tokens).to_string().into();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let completion = Arc::clone(&completion);
            std::thread::spawn(move || answer_all(stream, &completion));
        }
    });
    Ok(address)
}

/// Answers the requests of one connection.
fn answer_all(stream: TcpStream, completion: &str) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    writer.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        reader.read_exact(&mut vec![0; length])?;
        let body = match head.split(' ').nth(1) {
            Some("/version") => "{\"version\": \"0\"}",
            Some("/v1/models") => "{\"data\": [{\"id\": \"base\", \"max_model_len\": 4096}]}",
            _ => completion,
        };
        write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
    }
}

fn request(tokens: usize, number: usize) -> TokenRequest {
    TokenRequest {
        model: RemoteModel::Base("".into()),
        prompt: (0..PROMPT as u32).map(|token| token + number as u32).collect(),
        seeds: vec![[number as u8; 32]],
        max_tokens: tokens as u32,
        sampling: Sampling::default(),
        stop: Arc::new([]),
        stop_ids: Arc::new([]),
        top_logprobs: 0,
        vocab: 1_000_000,
        needs_support: false,
    }
}

/// CPU time of one request by a fleet.
async fn fleet(address: &str, tokens: usize) -> Result<Duration, pl_servers::ServerError> {
    let config = FleetConfig {
        name: "fleet".into(),
        addresses: vec![format!("http://{address}")],
        kind: ServerKind::Vllm,
        key: None,
        timeout: Duration::from_secs(60),
        connections: IN_FLIGHT,
        retries: 0,
        hedge_after: None,
        sleep: SleepLevel::Never,
        backoff: Backoff::default(),
    };
    let fleet = Fleet::connect(config, Vec::new(), Arc::new(|_| {})).await?;
    let fleet = &fleet;
    let worker = async |worker: usize| {
        for number in (worker..REQUESTS).step_by(IN_FLIGHT) {
            fleet.generate(&request(tokens, number)).await?;
        }
        Ok(())
    };
    // The connections are opened before the measurement.
    futures::future::try_join_all(
        (0..IN_FLIGHT).map(|number| async move { fleet.generate(&request(tokens, number)).await }),
    )
    .await?;
    let before = cpu_time();
    futures::future::try_join_all((0..IN_FLIGHT).map(worker)).await?;
    Ok((cpu_time() - before) / REQUESTS as u32)
}

/// CPU time of one request by hyper: the body is sent as bytes, and the answer read as bytes.
async fn hyper(address: &str, tokens: usize) -> Result<Duration, Box<dyn std::error::Error>> {
    // As long as a fleet's body.
    let prompt: Vec<u32> = (0..PROMPT as u32).collect();
    let seed = "0".repeat(180);
    let body = Bytes::from(json!({ "token_ids": prompt, "filling": seed, "max_tokens": tokens }).to_string());
    let mut senders = Vec::new();
    for _ in 0..IN_FLIGHT {
        let stream = tokio::net::TcpStream::connect(address).await?;
        let (sender, connection) = handshake(hyper_io::Io(stream)).await?;
        tokio::spawn(connection);
        senders.push(sender);
    }
    let before = cpu_time();
    let workers = senders.into_iter().enumerate().map(|(worker, mut sender)| {
        let body = body.clone();
        async move {
            for _ in (worker..REQUESTS).step_by(IN_FLIGHT) {
                sender.ready().await?;
                let request = hyper::Request::post("/inference/v1/generate")
                    .header("host", address)
                    .header("content-type", "application/json")
                    .body(Full::new(body.clone()))?;
                sender.send_request(request).await?.into_body().collect().await?;
            }
            Ok::<_, Box<dyn std::error::Error>>(())
        }
    });
    futures::future::try_join_all(workers).await?;
    Ok((cpu_time() - before) / REQUESTS as u32)
}

/// tokio's streams as hyper reads them.
mod hyper_io {
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio::net::TcpStream;

    pub struct Io(pub TcpStream);

    impl hyper::rt::Read for Io {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            mut buffer: hyper::rt::ReadBufCursor<'_>,
        ) -> Poll<std::io::Result<()>> {
            let mut bytes = [0; 16 * 1024];
            let room = buffer.remaining().min(bytes.len());
            let mut part = ReadBuf::new(bytes.get_mut(..room).unwrap_or_default());
            ready!(Pin::new(&mut self.0).poll_read(context, &mut part))?;
            buffer.put_slice(part.filled());
            Poll::Ready(Ok(()))
        }
    }

    impl hyper::rt::Write for Io {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<std::io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(context)
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for tokens in [100, 200] {
        let address = serve(tokens)?;
        let start = Instant::now();
        let bare = runtime.block_on(hyper(&address, tokens))?;
        let own = runtime.block_on(fleet(&address, tokens))?;
        let line = json!({
            "name": format!("request/{tokens} tokens"),
            "client_us": own.as_secs_f64() * 1e6,
            "hyper_us": bare.as_secs_f64() * 1e6,
            "ratio": own.as_secs_f64() / bare.as_secs_f64(),
            "client_us_per_100_tokens": own.as_secs_f64() * 1e6 / tokens as f64 * 100.0,
            "seconds": start.elapsed().as_secs_f64(),
        });
        println!("{line}");
    }
    Ok(())
}
