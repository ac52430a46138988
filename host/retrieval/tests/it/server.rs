//! A retrieval server that fails on demand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pl_retrieval::{RemoteConfig, RemoteCorpus};
use pl_servers::Backoff;
use pl_types::{Passage, Retrieve};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Requests that a server got: their first lines, keys and bodies.
type Requests = Arc<Mutex<Vec<(String, String, Value)>>>;

/// Answers of a server in order: status and body. The last one is repeated.
async fn start(answers: &'static [(u16, &'static str)]) -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let requests = Requests::default();
    let seen = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            serve(stream, answers, &seen).await;
        }
    });
    (address, requests)
}

async fn serve(stream: TcpStream, answers: &[(u16, &str)], requests: &Requests) {
    let mut stream = BufReader::new(stream);
    let (mut request, mut length, mut key) = (String::new(), 0, String::new());
    stream.read_line(&mut request).await.unwrap();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        let Some((name, value)) = line.split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap(),
            "authorization" => key = value.trim().to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let (status, answer) = {
        let mut requests = requests.lock().unwrap();
        requests.push((request.trim().to_owned(), key, serde_json::from_slice(&body).unwrap()));
        *answers.get(requests.len() - 1).or(answers.last()).unwrap()
    };
    let answer = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
        answer.len()
    );
    stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
}

fn corpus(address: String, key: Option<&str>) -> RemoteCorpus {
    let backoff = Backoff { shortest: Duration::from_millis(2), longest: Duration::from_millis(10) };
    let timeout = Duration::from_secs(20);
    let (name, key) = ("wiki".to_owned(), key.map(str::to_owned));
    RemoteCorpus::new(RemoteConfig { name, address, key, timeout, retries: 2, backoff }).unwrap()
}

const GOOD: &str = r#"{"result": [[{"document": {"id": "7", "contents": "Cats purr."}, "score": 2.5}]]}"#;

#[tokio::test]
async fn a_query_is_answered_in_the_protocol_of_search_r1() {
    let (address, requests) = start(&[(200, GOOD)]).await;
    let corpus = corpus(address, Some("secret"));
    let found = corpus.retrieve("Do cats purr?", 3).await.unwrap();
    assert_eq!(found, [Passage { id: "7".to_owned(), text: "Cats purr.".to_owned(), score: 2.5 }]);
    assert!(!corpus.is_reproducible());
    let requests = requests.lock().unwrap();
    let (line, key, body) = &requests[0];
    assert_eq!((line.as_str(), key.as_str()), ("POST /retrieve HTTP/1.1", "Bearer secret"));
    let sent = serde_json::json!({ "queries": ["Do cats purr?"], "topk": 3, "return_scores": true });
    assert_eq!((body, requests.len()), (&sent, 1));
}

#[tokio::test]
async fn a_path_of_the_address_is_kept() {
    let (address, requests) = start(&[(200, GOOD)]).await;
    corpus(format!("{address}/v1/search/"), None).retrieve("cats", 1).await.unwrap();
    assert_eq!(requests.lock().unwrap()[0].0, "POST /v1/search HTTP/1.1");
}

#[tokio::test]
async fn failures_that_may_pass_are_retried() {
    let (address, requests) = start(&[(503, "loading"), (200, "{}"), (200, GOOD)]).await;
    let found = corpus(address, None).retrieve("cats", 1).await.unwrap();
    assert_eq!((found.len(), requests.lock().unwrap().len()), (1, 3));
}

#[tokio::test]
async fn an_error_names_corpus_server_and_reason() {
    let (address, requests) = start(&[(500, "no memory")]).await;
    let error = corpus(address.clone(), None).retrieve("cats", 1).await.unwrap_err().to_string();
    let expected = format!(
        "corpus `wiki`: server {address}, request for passages: the server failed with status 500: no memory"
    );
    assert_eq!((error, requests.lock().unwrap().len()), (expected, 3));

    let (address, requests) = start(&[(422, "{\"detail\": \"no field queries\"}")]).await;
    let error = corpus(address, None).retrieve("cats", 1).await.unwrap_err().to_string();
    assert!(error.ends_with("refused with status 422: no field queries"), "{error}");
    assert_eq!(requests.lock().unwrap().len(), 1);
}

#[test]
fn an_address_without_http_is_refused() {
    let backoff = Backoff::default();
    let (name, address) = ("wiki".to_owned(), "ftp://somewhere".to_owned());
    let config =
        RemoteConfig { name, address, key: None, timeout: Duration::from_secs(1), retries: 0, backoff };
    let message = RemoteCorpus::new(config).err().unwrap().to_string();
    assert!(message.contains("ftp://somewhere"), "{message}");
}
