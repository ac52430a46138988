//! Models of a hub, against a hub on this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pl_model::{Fetched, Hub, HubModel, Model};
use pl_types::Dtype;
use tch::Device;
use tempfile::TempDir;

use crate::data;
use crate::hub_server::{COMMIT, Mood, Request, Server, etag};

const REPO: &str = "some-org/Tiny-1.0";

/// A hub with a sharded model, a GGUF file and what else lies about in repositories; and an empty cache.
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
    let said = fetch(hub, model).unwrap_err();
    assert!(parts.iter().chain(&[model]).all(|part| said.contains(part)), "{said}");
}

fn files_asked_for(requests: &[Request]) -> Vec<&str> {
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
    assert_eq!((fetched.commit.as_str(), fetched.unasked), (COMMIT, None));
    assert!(Model::load(&fetched.path, Device::Cpu, Dtype::F32).is_ok());
    // What a model needs, and nothing else.
    let requests = server.requests();
    let asked = files_asked_for(&requests);
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

    // Again: the hub is asked where the revision stands, and nothing is fetched.
    assert_eq!(fetch(&hub, &format!("hf:{REPO}")).unwrap().path, fetched.path);
    assert_eq!(server.requests().len(), 1);
    // A commit that is here: not even that.
    assert_eq!(fetch(&hub, &format!("hf:{REPO}@{COMMIT}")).unwrap().path, fetched.path);
    assert!(server.requests().is_empty());
    // A shard that went missing comes back alone.
    fs::remove_file(fs::canonicalize(fetched.path.join(&shards[1])).unwrap()).unwrap();
    assert_eq!(fetch(&hub, &format!("hf:{REPO}")).unwrap().path, fetched.path);
    assert_eq!(files_asked_for(&server.requests()), [&shards[1]]);
}

#[test]
fn one_gguf_file_of_a_branch() {
    let (server, hub, _cache) = hub();
    let fetched = fetch(&hub, &format!("hf:{REPO}/q8/small.gguf@refs/pr/1")).unwrap();
    assert!(Model::load(&fetched.path, Device::Cpu, Dtype::F32).is_ok());
    let requests = server.requests();
    assert!(requests[0].line.ends_with("/revision/refs%2Fpr%2F1"), "{}", requests[0].line);
    assert_eq!(files_asked_for(&requests), ["small.gguf"]);
    let link = fs::read_link(&fetched.path).unwrap();
    assert!(link.starts_with("../../../blobs"), "{}", link.display());
    refusal(&hub, &format!("hf:{REPO}/q4.gguf"), &["no file q4.gguf", "q8/small.gguf"]);
}

#[test]
fn what_the_hub_refuses() {
    let (server, mut hub, _cache) = hub();
    let model = format!("hf:{REPO}");
    let mut refused = |status, code, token: Option<&str>, parts: &[&str]| {
        server.set(Mood { refuse: Some((status, code)), ..Mood::default() });
        hub.token = token.map(str::to_owned);
        refusal(&hub, &model, parts);
    };
    refused(401, "GatedRepo", None, &["gated", "accept the licence of some-org/Tiny-1.0", "set HF_TOKEN"]);
    refused(403, "GatedRepo", Some("t"), &["gated", "the account behind HF_TOKEN has no access"]);
    refused(401, "RepoNotFound", None, &["spelling of some-org/Tiny-1.0", "set HF_TOKEN if it is private"]);
    refused(404, "", None, &["spelling of some-org/Tiny-1.0", "set HF_TOKEN if it is private"]);
    refused(404, "RepoNotFound", Some("t"), &["spelling of some-org/Tiny-1.0"]);
    refused(401, "", Some("t"), &["HF_TOKEN is not a token that the hub knows", "no and no"]);
    refused(404, "RevisionNotFound", None, &["no revision main"]);
    refused(429, "", None, &["too many requests"]);
    refused(500, "", None, &["500"]);
}

#[test]
fn repositories_that_hold_no_model() {
    let gguf = || ("q4.gguf".to_owned(), vec![0; 10]);
    let (_server, hub, _cache) = serve(BTreeMap::from([gguf()]));
    refusal(&hub, &format!("hf:{REPO}"), &["no config.json", "hf:some-org/Tiny-1.0/q4.gguf"]);
    let part = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    let parts = || [part("config.json", "{}"), part("tokenizer.json", "{}")];
    let (_server, hub, _cache) = serve(parts().into());
    refusal(&hub, &format!("hf:{REPO}"), &["no model.safetensors", "published in safetensors"]);
    // An index that would write elsewhere.
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
    let port_of_nobody = "http://127.0.0.1:9".to_owned();
    let nowhere = Hub { endpoint: port_of_nobody, offline: false, ..hub.clone() };
    refusal(&nowhere, &model, &["can't be reached", "HF_ENDPOINT"]);
    assert!(server.requests().is_empty());

    let fetched = fetch(&Hub { offline: false, ..hub.clone() }, &model).unwrap();
    server.requests();
    assert_eq!(fetch(&hub, &model).unwrap(), fetched);
    assert!(server.requests().is_empty());
    let found = fetch(&nowhere, &model).unwrap();
    assert_eq!((&found.path, &found.commit), (&fetched.path, &fetched.commit));
    assert!(found.unasked.unwrap().contains("can't be reached"));
    // Half a model in the cache is none.
    fs::remove_file(fetched.path.join("tokenizer.json")).unwrap();
    refusal(&hub, &model, &["not (whole) in"]);
}

#[test]
fn a_transfer_that_breaks_off_goes_on() {
    let (server, hub, _cache, content) = one_large();
    let model = format!("hf:{REPO}/m.gguf");
    server.set(Mood { cut: Some((3, 150_000)), ..Mood::default() });
    let path = fetch(&hub, &model).unwrap().path;
    assert_eq!(fs::read(path).unwrap(), content);
    let requests = server.requests();
    let ranges: Vec<_> =
        requests.iter().filter(|r| r.line.contains("/cdn/")).map(|r| r.range.as_deref()).collect();
    assert_eq!(ranges, [None, Some("bytes=150000-"), Some("bytes=300000-")]);
}

#[test]
fn a_transfer_goes_on_in_the_next_run() {
    let (server, hub, _cache, content) = one_large();
    let model = format!("hf:{REPO}/m.gguf");
    server.set(Mood { cut: Some((1, 150_000)), ..Mood::default() });
    let mut stuck = 0;
    let parsed: HubModel = model.parse().unwrap();
    // Once something has come, nothing does any more.
    let error = hub.fetch(&parsed, &mut |p| {
        if p.done == 150_000 && stuck == 0 {
            stuck = 1;
            server.set(Mood { cut: Some((u32::MAX, 0)), ..Mood::default() });
        }
    });
    let said = error.unwrap_err().to_string();
    assert!(said.contains("m.gguf broke off") && said.contains("start again"), "{said}");
    server.set(Mood::default());
    server.requests();
    assert_eq!(fs::read(fetch(&hub, &model).unwrap().path).unwrap(), content);
    let requests = server.requests();
    assert!(requests.iter().any(|r| r.range.as_deref() == Some("bytes=150000-")), "{requests:?}");
}

#[test]
fn a_server_that_always_begins_at_the_start() {
    let (server, hub, _cache, content) = one_large();
    server.set(Mood { cut: Some((2, 150_000)), ignore_ranges: true, ..Mood::default() });
    let path = fetch(&hub, &format!("hf:{REPO}/m.gguf")).unwrap().path;
    assert_eq!(fs::read(path).unwrap(), content);
}

#[test]
fn damaged_files() {
    let (server, hub, _cache, content) = one_large();
    let model = format!("hf:{REPO}/m.gguf");
    for (mood, what) in [
        (Mood { lie: 5, ..Mood::default() }, "is shorter than the 400005 bytes"),
        (Mood { lie: -5, ..Mood::default() }, "is longer than the 399995 bytes"),
        (Mood { spoil: true, ..Mood::default() }, "does not have the checksum"),
    ] {
        server.set(mood);
        refusal(&hub, &model, &["m.gguf", what, "start again"]);
    }
    // None of it is left to build on.
    server.set(Mood::default());
    assert_eq!(fs::read(fetch(&hub, &model).unwrap().path).unwrap(), content);
}

#[test]
fn a_cache_that_takes_nothing() {
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
fn sources() {
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
        let said = bad.parse::<HubModel>().unwrap_err().to_string();
        assert!(said.contains(bad) && said.contains("hf:OWNER/NAME"), "{said}");
    }
}

#[test]
fn where_the_variables_point() {
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
