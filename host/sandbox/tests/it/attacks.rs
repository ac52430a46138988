//! Hostile programs against both backends.
//!
//! Each file under `attacks` is a program that prints THROUGH where it gets what it wants. It is first shown to work in
//! a control: a container without any of our limits. Then it must come to nothing, with the verdict that stands in its
//! head, and leave nothing: where it is two programs, the second one looks for what the first one left.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pl_sandbox::{DockerSettings, DockerWorkers, Ending, PythonWorkers, Sandbox, SandboxLimits, Verdict};
use pl_wasm::EngineConfig;

use crate::engine::{self, Engine, python};

struct Attack {
    name: String,
    programs: Vec<String>,
    /// How the first program may end, by backend.
    docker: Vec<String>,
    wasm: Vec<String>,
    /// What it looks for is not on every machine: the control has it in a network of its own.
    needs_services: bool,
}

fn attacks(port: u16) -> Vec<Attack> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap().replace("PORT", &port.to_string());
        let expected = |backend: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("# {backend}: ")));
            let line = line.unwrap_or_else(|| panic!("{} expects nothing of {backend}", path.display()));
            // Endings of two words stand alone.
            match line {
                "process limit" | "output limit" => vec![line.to_owned()],
                _ => line.split(' ').map(str::to_owned).collect(),
            }
        };
        Attack {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            docker: expected("docker"),
            wasm: expected("wasm"),
            needs_services: text.contains("# control: services\n"),
            programs: text.split("# --- next job ---\n").map(str::to_owned).collect(),
        }
    };
    paths.iter().map(read).collect()
}

/// Answers each byte with itself, on TCP and UDP, as long as the test runs.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let datagrams = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    std::thread::spawn(move || {
        for mut link in listener.incoming().flatten() {
            let mut byte = [0];
            if link.read_exact(&mut byte).is_ok() {
                let _ = link.write_all(&byte);
            }
        }
    });
    std::thread::spawn(move || {
        let mut byte = [0];
        while let Ok((_, from)) = datagrams.recv_from(&mut byte) {
            let _ = datagrams.send_to(&byte, from);
        }
    });
    port
}

fn limits() -> SandboxLimits {
    SandboxLimits {
        workers: 1,
        // A busy machine takes a second for what takes a tenth of it.
        timeout: Duration::from_secs(4),
        memory: 256 << 20,
        output: 64 << 10,
        fuel: None,
    }
}

/// The attack in a container that nothing holds back, beside a process to be attacked.
fn control(engine: &Engine, attack: &Attack) -> String {
    let folder = std::env::temp_dir().join(format!("pl-host-attack-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (at, program) in attack.programs.iter().enumerate() {
        std::fs::write(folder.join(format!("{at}.py")), program).unwrap();
    }
    let volume = format!("{}:/attack:ro", folder.display());
    let services = format!("{}/tests/it/engine/services.py:/services.py:ro", env!("CARGO_MANIFEST_DIR"));
    let (network, prepare) = if attack.needs_services {
        ("--network=none", "python3 /services.py")
    } else {
        ("--network=host", "true")
    };
    let script = format!(
        "{prepare}; sleep 60 & cd /root; for program in /attack/*.py; do python3 $program; done; true"
    );
    let open = "--cap-add=SYS_ADMIN --cap-add=SYS_PTRACE --cap-add=SYS_NICE --cap-add=NET_ADMIN \
                --security-opt=seccomp=unconfined --security-opt=systempaths=unconfined --shm-size=1g";
    let mut arguments = vec!["run", "--rm", network];
    arguments.extend(open.split_whitespace());
    arguments.extend(["-v", &volume, "-v", &services, engine::IMAGE, "sh", "-c", &script]);
    let printed = engine.docker(&arguments);
    std::fs::remove_dir_all(folder).unwrap();
    printed
}

fn came_to_nothing(backend: &str, attack: &Attack, expected: &[String], verdicts: &[Verdict]) {
    let first = &verdicts[0];
    let ending = first.ending.as_str();
    assert!(expected.iter().any(|one| one == ending), "{} on {backend}: {first:?}", attack.name);
    for verdict in verdicts {
        assert!(!verdict.stdout.contains("THROUGH"), "{} on {backend}: {verdict:?}", attack.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_holds() {
    let Some(engine) = Engine::start("attacks").await else { return };
    let settings = DockerSettings { limits: limits(), ..engine.settings() };
    let workers = DockerWorkers::start(settings, |_| ()).await.unwrap();
    let look = "import os\nprint(os.listdir('/work'), os.listdir('/tmp'), os.listdir('/dev/shm'), os.listdir('/dev/mqueue'))\n\
                print(sum(name.isdigit() and int(name) != os.getpid() for name in os.listdir('/proc')))\n\
                print(os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0)) == list(range(os.cpu_count())))";
    let clean = workers.run(python(look)).await;
    // Beside the job there are its supervisor and the interpreter that it was forked from.
    assert_eq!(clean.stdout, "['main.py'] [] [] []\n2\n0 True\n");
    let mut useless = Vec::new();
    for attack in attacks(echo()) {
        if !control(&engine, &attack).contains("THROUGH") {
            useless.push(attack.name.clone());
        }
        let mut verdicts = Vec::new();
        for program in &attack.programs {
            verdicts.push(workers.run(python(program)).await);
        }
        came_to_nothing("docker", &attack, &attack.docker, &verdicts);
        let after = workers.run(python(look)).await;
        assert_eq!((after.ending, &after.stdout), (Ending::Ok, &clean.stdout), "after {}", attack.name);
        eprintln!("{}: {}", attack.name, verdicts[0].ending.as_str());
    }
    assert_eq!(useless, Vec::<String>::new(), "these do not even work where nothing holds them back");
    workers.shut_down().await;
}

#[tokio::test]
async fn wasm_holds() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/python.wasm");
    let component = std::fs::read(path).unwrap_or_else(|e| panic!("{e}; `cargo xtask setup` builds it"));
    let engine =
        pl_wasm::Engine::new(EngineConfig::workers().cache_dir(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let workers = PythonWorkers::new(&engine, &component, limits()).unwrap();
    for attack in attacks(echo()) {
        let mut verdicts = Vec::new();
        for program in &attack.programs {
            verdicts.extend(workers.execute(vec![python(program)]).await);
        }
        came_to_nothing("wasm", &attack, &attack.wasm, &verdicts);
    }
}
