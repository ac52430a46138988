//! Models of a hub, against a hub on this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pl_model::{Fetched, Hub, HubData, HubModel, Model};
use pl_types::Dtype;
use tch::Device;
use tempfile::TempDir;

use crate::data;
use crate::hub_server::{COMMIT, Faults, Request, Server, etag};

const REPO: &str = "some-org/Tiny-1.0";

/// A hub with a sharded model, a GGUF file and other files of repositories; and an empty cache.
fn hub() -> (Server, Hub, TempDir) {
    let folder = data("conformance/logits/multi-tied-sharded");
    let mut files: BTreeMap<String, Vec<u8>> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.remove("expected.safetensors");
    files.insert("README.md".into(), b"no".to_vec());
    files.insert("pytorch_model.bin".into(), vec![7; 9000]);
    files.insert("onnx/model.safetensors".into(), vec![7; 9000]);
    files.insert("q8/small.gguf".into(), fs::read(data("conformance/text/small-gpt2.gguf")).unwrap());
    serve(files)
}

fn serve(files: BTreeMap<String, Vec<u8>>) -> (Server, Hub, TempDir) {
    let server = Server::start(REPO, files);
    let cache = tempfile::tempdir().unwrap();
    let hub =
        Hub { endpoint: server.endpoint(), cache: cache.path().join("hub"), token: None, offline: false };
    (server, hub, cache)
}

/// A model of one large file; the file.
fn one_large() -> (Server, Hub, TempDir, Vec<u8>) {
    let content: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let (server, hub, cache) = serve(BTreeMap::from([("m.gguf".to_owned(), content.clone())]));
    (server, hub, cache, content)
}

fn fetch(hub: &Hub, model: &str) -> Result<Fetched, String> {
    let model: HubModel = model.parse().map_err(|e: pl_model::Error| e.to_string())?;
    hub.fetch(&model, &mut |_| ()).map_err(|e| e.to_string())
}

fn refusal(hub: &Hub, model: &str, parts: &[&str]) {
    let message = fetch(hub, model).unwrap_err();
    assert!(parts.iter().chain(&[model]).all(|part| message.contains(part)), "{message}");
}

/// Files of a data set are fetched once, and used from the cache without a hub only if all of their parts are there.
#[test]
fn files_of_a_data_set() {
    let part = |byte: u8| vec![byte; 5000];
    let files = BTreeMap::from([
        ("main/train-00000-of-00002.parquet".to_owned(), part(1)),
        ("main/train-00001-of-00002.parquet".to_owned(), part(2)),
        ("main/test-00000-of-00001.parquet".to_owned(), part(3)),
        ("main/train-notes.md".to_owned(), b"no".to_vec()),
    ]);
    let (server, mut hub, _cache) = serve(files);
    let data = |prefix: &str| HubData { repo: REPO.to_owned(), prefix: prefix.to_owned() };
    let fetch = |hub: &Hub, prefix: &str| {
        hub.fetch_data(&data(prefix), &|name| name.ends_with(".parquet"), &mut |_| ())
    };
    let train = fetch(&hub, "main/train-").unwrap();
    let contents: Vec<Vec<u8>> = train.files.iter().map(|path| fs::read(path).unwrap()).collect();
    assert_eq!(contents, [part(1), part(2)]);
    let folder = format!("datasets--{}", REPO.replace('/', "--"));
    assert!(train.files.iter().all(|path| path.starts_with(hub.cache.join(&folder))));
    let requests = server.requests();
    assert!(requests[0].line.starts_with(&format!("GET /api/datasets/{REPO}/revision/main")));
    assert_eq!(requested_files(&requests).len(), 2);
    // The listing is requested again, the files are not.
    assert_eq!(fetch(&hub, "main/train-").unwrap(), train);
    assert!(requested_files(&server.requests()).is_empty());
    let message = fetch(&hub, "main/dev-").unwrap_err().to_string();
    assert!(message.contains("no file main/dev-…"), "{message}");
    hub.offline = true;
    assert_eq!(fetch(&hub, "main/train-").unwrap().files, train.files);
    fs::remove_file(&train.files[0]).unwrap();
    let message = fetch(&hub, "main/train-").unwrap_err().to_string();
    assert!(message.contains("the data set is not (completely) in"), "{message}");
}

fn requested_files(requests: &[Request]) -> Vec<&str> {
    requests.iter().filter_map(|r| r.line.strip_prefix("HEAD ")?.rsplit('/').next()).collect()
}

#[test]
fn a_sharded_model() {
    let (server, mut hub, _cache) = hub();
    hub.token = Some("secret".into());
    let mut reports: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let model: HubModel = format!("hf:{REPO}").parse().unwrap();
    let fetched = hub
        .fetch(&model, &mut |p| {
            reports.insert(p.file.to_owned(), (p.done, p.total));
        })
        .unwrap();
    assert_eq!((fetched.commit.as_str(), fetched.cache_reason), (COMMIT, None));
    assert!(Model::load(&fetched.path, Device::Cpu, Dtype::F32).is_ok());
    // What a model needs, and nothing else.
    let requests = server.requests();
    let asked = requested_files(&requests);
    let shards: Vec<_> = (1..=4).map(|i| format!("model-0000{i}-of-00004.safetensors")).collect();
    let mut wanted = vec!["config.json", "tokenizer.json", "model.safetensors.index.json"];
    wanted.extend(shards.iter().map(String::as_str));
    assert_eq!(asked, wanted);
    assert!(wanted.iter().all(|file| reports[*file].0 == reports[*file].1 && reports[*file].1 > 0));
    // The token is for the hub alone.
    for request in &requests {
        let signed = request.token.as_deref() == Some("Bearer secret");
        assert_eq!(signed, request.host.starts_with("127."), "{request:?}");
    }
    assert!(requests.iter().any(|r| r.line.contains("/cdn/")), "a shard is large");
    // As Python's library lays it out.
    let repo = hub.cache.join("models--some-org--Tiny-1.0");
    assert_eq!(fetched.path, repo.join("snapshots").join(COMMIT));
    assert_eq!(fs::read_to_string(repo.join("refs/main")).unwrap(), COMMIT);
    let link = fs::read_link(fetched.path.join("config.json")).unwrap();
    assert!(link.starts_with("../../blobs"), "{}", link.display());
    let left = |name: &str| name.ends_with(".incomplete");
    assert!(
        fs::read_dir(repo.join("blobs")).unwrap().all(|e| !left(e.unwrap().file_name().to_str().unwrap()))
    );

    // The second time, only the revision is requested.
    assert_eq!(fetch(&hub, &format!("hf:{REPO}")).unwrap().path, fetched.path);
    assert_eq!(server.requests().len(), 1);
    // A commit in the cache needs no request.
    assert_eq!(fetch(&hub, &format!("hf:{REPO}@{COMMIT}")).unwrap().path, fetched.path);
    assert!(server.requests().is_empty());
    // Only a missing shard is downloaded again.
    fs::remove_file(fs::canonicalize(fetched.path.join(&shards[1])).unwrap()).unwrap();
    assert_eq!(fetch(&hub, &format!("hf:{REPO}")).unwrap().path, fetched.path);
    assert_eq!(requested_files(&server.requests()), [&shards[1]]);
}

#[test]
fn one_gguf_file_of_a_branch() {
    let (server, hub, _cache) = hub();
    let fetched = fetch(&hub, &format!("hf:{REPO}/q8/small.gguf@refs/pr/1")).unwrap();
    assert!(Model::load(&fetched.path, Device::Cpu, Dtype::F32).is_ok());
    let requests = server.requests();
    assert!(requests[0].line.ends_with("/revision/refs%2Fpr%2F1"), "{}", requests[0].line);
    assert_eq!(requested_files(&requests), ["small.gguf"]);
    let link = fs::read_link(&fetched.path).unwrap();
    assert!(link.starts_with("../../../blobs"), "{}", link.display());
    refusal(&hub, &format!("hf:{REPO}/q4.gguf"), &["no file q4.gguf", "q8/small.gguf"]);
}

#[test]
fn error_statuses_of_the_hub() {
    let (server, mut hub, _cache) = hub();
    let model = format!("hf:{REPO}");
    let mut refused = |status, code, token: Option<&str>, parts: &[&str]| {
        server.set(Faults { status: Some((status, code)), ..Faults::default() });
        hub.token = token.map(str::to_owned);
        refusal(&hub, &model, parts);
    };
    refused(401, "GatedRepo", None, &["gated", "accept the licence of some-org/Tiny-1.0", "set HF_TOKEN"]);
    refused(403, "GatedRepo", Some("t"), &["gated", "the account of HF_TOKEN has no access"]);
    refused(401, "RepoNotFound", None, &["spelling of some-org/Tiny-1.0", "set HF_TOKEN if it is private"]);
    refused(404, "", None, &["spelling of some-org/Tiny-1.0", "set HF_TOKEN if it is private"]);
    refused(404, "RepoNotFound", Some("t"), &["spelling of some-org/Tiny-1.0"]);
    refused(401, "", Some("t"), &["the hub does not know the token in HF_TOKEN", "no and no"]);
    refused(404, "RevisionNotFound", None, &["no revision main"]);
    refused(429, "", None, &["too many requests"]);
    refused(500, "", None, &["500"]);
}

#[test]
fn repositories_without_a_model() {
    let gguf = || ("q4.gguf".to_owned(), vec![0; 10]);
    let (_server, hub, _cache) = serve(BTreeMap::from([gguf()]));
    refusal(&hub, &format!("hf:{REPO}"), &["no config.json", "hf:some-org/Tiny-1.0/q4.gguf"]);
    let part = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    let parts = || [part("config.json", "{}"), part("tokenizer.json", "{}")];
    let (_server, hub, _cache) = serve(parts().into());
    refusal(&hub, &format!("hf:{REPO}"), &["no model.safetensors", "published in safetensors"]);
    // An index with paths outside of the repository.
    let index = r#"{"weight_map": {"a": "../../../evil.safetensors"}}"#;
    let mut files: BTreeMap<_, _> = parts().into();
    files.extend([part("model.safetensors.index.json", index)]);
    let (_server, hub, _cache) = serve(files);
    refusal(&hub, &format!("hf:{REPO}"), &["names files of another kind"]);
}

#[test]
fn without_a_network() {
    let (server, mut hub, _cache) = hub();
    let model = format!("hf:{REPO}");
    hub.offline = true;
    refusal(&hub, &model, &["HF_HUB_OFFLINE is set"]);
    let unused_port = "http://127.0.0.1:9".to_owned();
    let unreachable = Hub { endpoint: unused_port, offline: false, ..hub.clone() };
    refusal(&unreachable, &model, &["can't be reached", "HF_ENDPOINT"]);
    let with_password = Hub { endpoint: "http://me:pass@127.0.0.1:9".to_owned(), ..unreachable.clone() };
    refusal(&with_password, &model, &["http://REDACTED@127.0.0.1:9 can't be reached"]);
    assert!(server.requests().is_empty());

    let fetched = fetch(&Hub { offline: false, ..hub.clone() }, &model).unwrap();
    server.requests();
    assert_eq!(fetch(&hub, &model).unwrap(), fetched);
    assert!(server.requests().is_empty());
    let found = fetch(&unreachable, &model).unwrap();
    assert_eq!((&found.path, &found.commit), (&fetched.path, &fetched.commit));
    assert!(found.cache_reason.unwrap().contains("can't be reached"));
    // An incomplete model in the cache is not used.
    fs::remove_file(fetched.path.join("tokenizer.json")).unwrap();
    refusal(&hub, &model, &["not (completely) in"]);
}

#[test]
fn an_interrupted_download_is_resumed() {
    let (server, hub, _cache, content) = one_large();
    let model = format!("hf:{REPO}/m.gguf");
    server.set(Faults { truncate: Some((3, 150_000)), ..Faults::default() });
    let path = fetch(&hub, &model).unwrap().path;
    assert_eq!(fs::read(path).unwrap(), content);
    let requests = server.requests();
    let ranges: Vec<_> =
        requests.iter().filter(|r| r.line.contains("/cdn/")).map(|r| r.range.as_deref()).collect();
    assert_eq!(ranges, [None, Some("bytes=150000-"), Some("bytes=300000-")]);
}

#[test]
fn a_download_is_resumed_in_the_next_run() {
    let (server, hub, _cache, content) = one_large();
    let model = format!("hf:{REPO}/m.gguf");
    server.set(Faults { truncate: Some((1, 150_000)), ..Faults::default() });
    let mut interrupted = false;
    let parsed: HubModel = model.parse().unwrap();
    // After the first part, the server sends nothing.
    let error = hub.fetch(&parsed, &mut |p| {
        if p.done == 150_000 && !interrupted {
            interrupted = true;
            server.set(Faults { truncate: Some((u32::MAX, 0)), ..Faults::default() });
        }
    });
    let message = error.unwrap_err().to_string();
    assert!(message.contains("m.gguf was interrupted") && message.contains("start again"), "{message}");
    server.set(Faults::default());
    server.requests();
    assert_eq!(fs::read(fetch(&hub, &model).unwrap().path).unwrap(), content);
    let requests = server.requests();
    assert!(requests.iter().any(|r| r.range.as_deref() == Some("bytes=150000-")), "{requests:?}");
}

#[test]
fn a_server_without_support_for_ranges() {
    let (server, hub, _cache, content) = one_large();
    server.set(Faults { truncate: Some((2, 150_000)), ignore_ranges: true, ..Faults::default() });
    let path = fetch(&hub, &format!("hf:{REPO}/m.gguf")).unwrap().path;
    assert_eq!(fs::read(path).unwrap(), content);
}

#[test]
fn damaged_files() {
    let (server, hub, _cache, content) = one_large();
    let model = format!("hf:{REPO}/m.gguf");
    for (faults, problem) in [
        (Faults { size_error: 5, ..Faults::default() }, "is shorter than 400005 bytes"),
        (Faults { size_error: -5, ..Faults::default() }, "is longer than 399995 bytes"),
        (Faults { corrupt: true, ..Faults::default() }, "does not have its checksum"),
    ] {
        server.set(faults);
        refusal(&hub, &model, &["m.gguf", problem, "start again"]);
    }
    // No damaged part is left over.
    server.set(Faults::default());
    assert_eq!(fs::read(fetch(&hub, &model).unwrap().path).unwrap(), content);
}

/// Small files have the hash that git gives them.
#[test]
fn damaged_small_files() {
    let content = b"hello\n".to_vec();
    // As `git hash-object` prints it.
    assert_eq!(etag(&content), "ce013625030ba8dba906f756967f9e9ca394464a");
    let (server, hub, _cache) = serve(BTreeMap::from([("m.gguf".to_owned(), content.clone())]));
    let model = format!("hf:{REPO}/m.gguf");
    server.set(Faults { corrupt: true, ..Faults::default() });
    refusal(&hub, &model, &["m.gguf", "does not have its checksum", "start again"]);
    server.set(Faults::default());
    assert_eq!(fs::read(fetch(&hub, &model).unwrap().path).unwrap(), content);
}

#[test]
fn a_token_is_not_sent_as_it_is_through_a_network() {
    let (server, mut hub, _cache, content) = one_large();
    let model = format!("hf:{REPO}/m.gguf");
    hub.token = Some("secret".into());
    // Another name of this machine, which is no loopback address.
    hub.endpoint = server.endpoint().replace("127.0.0.1", "0.0.0.0");
    server.set(Faults { status: Some((401, "GatedRepo")), ..Faults::default() });
    refusal(&hub, &model, &["gated", "was not sent the token", "https://"]);
    server.set(Faults::default());
    assert_eq!(fs::read(fetch(&hub, &model).unwrap().path).unwrap(), content);
    let requests = server.requests();
    assert!(requests.len() >= 4 && requests.iter().all(|request| request.token.is_none()), "{requests:?}");
}

#[test]
fn a_cache_that_is_full_or_not_a_folder() {
    let (_server, mut hub, cache, content) = one_large();
    let model = format!("hf:{REPO}/m.gguf");
    let blobs = hub.cache.join("models--some-org--Tiny-1.0/blobs");
    fs::create_dir_all(&blobs).unwrap();
    std::os::unix::fs::symlink("/dev/full", blobs.join(format!("{}.incomplete", etag(&content)))).unwrap();
    refusal(&hub, &model, &["is full", "HF_HUB_CACHE"]);
    let file = cache.path().join("file");
    fs::write(&file, "").unwrap();
    hub.cache = file;
    refusal(&hub, &model, &["can't be used"]);
}

#[test]
fn names_of_models() {
    let good = |text: &str| {
        let model: HubModel = text.parse().unwrap();
        assert_eq!(model.to_string(), text);
        (model.repo.clone(), model.file.clone(), model.revision().to_owned())
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(good("hf:Qwen/Qwen3-1.7B"), ("Qwen/Qwen3-1.7B".into(), None, "main".into()));
    assert_eq!(good("hf:a/b@v1.0"), ("a/b".into(), None, "v1.0".into()));
    assert_eq!(good("hf:a/b/q/c.gguf@refs/pr/2"), ("a/b".into(), some("q/c.gguf"), "refs/pr/2".into()));
    for bad in [
        "hf:",
        "hf:a",
        "hf:/b",
        "hf:a/",
        "hf:../b",
        "hf:a/b/",
        "hf:a/b/c",
        "hf:a/b/c.bin",
        "hf:a/b/../c.gguf",
        "hf:a/b@",
        "hf:a/b@../x",
        "hf:a/b c",
        "hf:a/b@v?x",
        "a/b",
    ] {
        let message = bad.parse::<HubModel>().unwrap_err().to_string();
        assert!(message.contains(bad) && message.contains("hf:OWNER/NAME"), "{message}");
    }
}

#[test]
fn settings_from_environment_variables() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let hub = |variables: &[(&str, &str)]| {
        let get =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Hub::from_variables(get, Some(home.to_path_buf())).unwrap()
    };
    let plain = hub(&[]);
    assert_eq!(plain.endpoint, "https://huggingface.co");
    assert_eq!(plain.cache, home.join(".cache/huggingface/hub"));
    assert_eq!((plain.token, plain.offline), (None, false));
    fs::create_dir_all(home.join(".cache/huggingface")).unwrap();
    fs::write(home.join(".cache/huggingface/token"), "stored\n").unwrap();
    assert_eq!(hub(&[]).token.as_deref(), Some("stored"));
    assert_eq!(hub(&[("HF_TOKEN", "given")]).token.as_deref(), Some("given"));
    assert_eq!(hub(&[("HF_HOME", "/h")]).cache, Path::new("/h/hub"));
    assert_eq!(hub(&[("HF_HOME", "/h")]).token, None);
    assert_eq!(hub(&[("XDG_CACHE_HOME", "/x")]).cache, Path::new("/x/huggingface/hub"));
    assert_eq!(hub(&[("HF_HOME", "/h"), ("HF_HUB_CACHE", "/c")]).cache, Path::new("/c"));
    assert_eq!(hub(&[("HF_ENDPOINT", "https://m.example/")]).endpoint, "https://m.example");
    assert!(hub(&[("HF_HUB_OFFLINE", "yes")]).offline && !hub(&[("HF_HUB_OFFLINE", "0")]).offline);
    assert!(Hub::from_variables(|_| None, None).is_err());
}
