//! Connections to an engine and sources of an image: mutual TLS and a registry.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use pl_sandbox::{DockerSettings, DockerWorkers, Ending, ImageSource};
use pl_testing::{Requirement, skip_or_fail};

use crate::engine::{self, TestEngine, python};
use crate::registry::Registry;

/// One engine for all checks: starting one takes longer than any of them.
#[tokio::test(flavor = "multi_thread")]
async fn endpoints() {
    if !engine::on_path("openssl") {
        return skip_or_fail(Requirement::Docker, "openssl is not installed");
    }
    let folder = std::env::temp_dir().join(format!("pl-host-certificates-{}", std::process::id()));
    let port = free_port();
    let certificate = |file: &str| folder.join("own").join(file).display().to_string();
    let arguments = [
        format!("--host=tcp://127.0.0.1:{port}"),
        "--tlsverify".to_owned(),
        format!("--tlscacert={}", certificate("ca.pem")),
        format!("--tlscert={}", certificate("cert.pem")),
        format!("--tlskey={}", certificate("key.pem")),
    ];
    make_certificates(&folder.join("own"));
    make_certificates(&folder.join("foreign"));
    if let Some(engine) = TestEngine::start_with("endpoints", &arguments).await {
        both_sides_of_tls_are_checked(&engine, &folder, port).await;
        an_image_comes_from_a_registry(&engine).await;
    }
    std::fs::remove_dir_all(folder).unwrap();
}

async fn both_sides_of_tls_are_checked(engine: &TestEngine, folder: &Path, port: u16) {
    let settings = |endpoint: &str, certificates: &str| DockerSettings {
        endpoints: vec![format!("{endpoint}://127.0.0.1:{port}")],
        certificates: Some(folder.join(certificates)),
        ..engine.settings()
    };
    runs_a_job(settings("https", "own")).await;
    // Certificates of another authority, and no certificates.
    for settings in [settings("https", "foreign"), settings("tcp", "own")] {
        let message = DockerWorkers::check(&settings).await.unwrap_err().to_string();
        assert!(message.contains("no Docker engine answers at"), "{message}");
        assert!(DockerWorkers::start(settings, |_| ()).await.is_err());
    }
}

async fn an_image_comes_from_a_registry(engine: &TestEngine) {
    let registry = Registry::start("python", &engine::root_fs());
    let settings = DockerSettings { image: "fetched:1".to_owned(), ..engine.settings() };
    let absent = ImageSource::Registry(format!("{}/nothing:1", registry.address()));
    let error = DockerWorkers::make_image(&settings, absent, &|_| ()).await.unwrap_err().to_string();
    assert!(error.contains("can't make the image"), "{error}");

    let steps = Mutex::new(Vec::new());
    let source = ImageSource::Registry(format!("{}/python:latest", registry.address()));
    DockerWorkers::make_image(&settings, source, &|step| steps.lock().unwrap().push(step)).await.unwrap();
    let steps = steps.into_inner().unwrap();
    assert!(steps.iter().any(|step| step.contains("Pull complete")), "{steps:?}");
    runs_a_job(settings).await;
}

async fn runs_a_job(settings: DockerSettings) {
    DockerWorkers::check(&settings).await.unwrap();
    let workers = DockerWorkers::start(settings, |_| ()).await.unwrap();
    let verdict = workers.run(python("print(1)")).await;
    assert_eq!((verdict.ending, verdict.stdout.as_str()), (Ending::Ok, "1\n"), "{verdict:?}");
    workers.shut_down().await;
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Makes an authority and a certificate for 127.0.0.1 and its clients, under the names that `docker` expects.
fn make_certificates(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let openssl = |arguments: &str| {
        let output = Command::new("openssl").current_dir(folder).args(arguments.split(' ')).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let uses = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n";
    std::fs::write(folder.join("uses"), uses).unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca-key.pem -out ca.pem -subj /CN=authority -days 2"));
    openssl(&format!("req {key} -keyout key.pem -out request.pem -subj /CN=127.0.0.1"));
    openssl(
        "x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -out cert.pem -days 2 -extfile uses",
    );
}
