//! A registry with one image, with the part of the distribution protocol (version 2) that a pull needs.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use sha2::{Digest, Sha256};

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";

/// A registry that serves as long as the test runs.
pub struct Registry {
    port: u16,
}

/// Media types and contents by path.
type Resources = HashMap<String, (&'static str, Vec<u8>)>;

impl Registry {
    /// Starts a registry with the image `name:latest`, made of the archive of a root file system.
    pub fn start(name: &str, root: &Path) -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let resources = Arc::new(resources(name, std::fs::read(root).unwrap()));
        std::thread::spawn(move || {
            for link in listener.incoming().flatten() {
                let resources = Arc::clone(&resources);
                std::thread::spawn(move || serve(link, &resources));
            }
        });
        Registry { port }
    }

    /// Returns the address on this machine, for which engines need no encryption.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

fn resources(name: &str, layer: Vec<u8>) -> Resources {
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {},
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    });
    let config = config.to_string().into_bytes();
    let part =
        |kind: &str, bytes: &[u8]| json!({ "mediaType": kind, "size": bytes.len(), "digest": digest(bytes) });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": part(CONFIG, &config),
        "layers": [part(LAYER, &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    HashMap::from([
        ("/v2/".to_owned(), ("application/json", b"{}".to_vec())),
        (format!("/v2/{name}/manifests/{}", digest(&manifest)), (MANIFEST, manifest.clone())),
        (format!("/v2/{name}/manifests/latest"), (MANIFEST, manifest)),
        (format!("/v2/{name}/blobs/{}", digest(&config)), ("application/octet-stream", config)),
        (format!("/v2/{name}/blobs/{}", digest(&layer)), ("application/octet-stream", layer)),
    ])
}

fn digest(bytes: &[u8]) -> String {
    let digits: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// Serves one request.
fn serve(mut link: TcpStream, resources: &Resources) {
    let mut lines = BufReader::new(link.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    // The rest of the request's head, which ends with an empty line, is ignored.
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let mut words = request.split(' ');
    let (verb, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let nothing = ("application/json", b"{}".to_vec());
    let (status, (kind, bytes)) =
        resources.get(path).map_or(("404 Not Found", &nothing), |found| ("200 OK", found));
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {}\r\n\
         Connection: close\r\n\r\n",
        bytes.len(),
        digest(bytes)
    );
    let body: &[u8] = if verb == "HEAD" { b"" } else { bytes };
    // An engine may close the connection early.
    let _ = link.write_all(head.as_bytes()).and_then(|()| link.write_all(body));
}
