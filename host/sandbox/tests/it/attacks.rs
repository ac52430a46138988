//! Hostile programs against both backends.
//!
//! Each file under `attacks` is a program that prints THROUGH if it succeeds. It must first succeed in a
//! control: a container without any of the backend's limits. Then it must fail in the backend, with one of
//! the endings in its header, and leave nothing: in a file of two programs the second one looks for remains
//! of the first one.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pl_sandbox::{DockerSettings, DockerWorkers, Ending, Sandbox, SandboxLimits, Verdict};

use crate::engine::{self, TestEngine, python};
use crate::process::processes;
use crate::python::workers as instances;

struct Attack {
    name: String,
    programs: Vec<String>,
    /// Allowed endings of the first program, by backend.
    docker: Vec<String>,
    wasm: Vec<String>,
    /// True if the control must run the services of `services.py`, which not every machine has.
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
            let line = line.unwrap_or_else(|| panic!("{} names no ending for {backend}", path.display()));
            // An ending of two words is the only one of its line.
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

/// Starts an echo server on TCP and UDP, which runs as long as the test, and returns its port.
fn start_echo_server() -> u16 {
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
        // Enough for a busy machine, which takes ten times as long.
        timeout: Duration::from_secs(4),
        memory: 256 << 20,
        output: 64 << 10,
        fuel: None,
    }
}

/// Returns the output of an attack in a container without limits, next to a process that it can attack.
fn run_control(engine: &TestEngine, attack: &Attack) -> String {
    let folder = std::env::temp_dir().join(format!("pl-host-attack-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (number, program) in attack.programs.iter().enumerate() {
        std::fs::write(folder.join(format!("{number}.py")), program).unwrap();
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

fn assert_harmless(backend: &str, attack: &Attack, expected: &[String], verdicts: &[Verdict]) {
    let first = &verdicts[0];
    let ending = first.ending.as_str();
    assert!(expected.iter().any(|one| one == ending), "{} on {backend}: {first:?}", attack.name);
    for verdict in verdicts {
        assert!(!verdict.stdout.contains("THROUGH"), "{} on {backend}: {verdict:?}", attack.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_fail_in_docker() {
    let Some(engine) = TestEngine::start("attacks").await else { return };
    let settings = DockerSettings { limits: limits(), ..engine.settings() };
    let workers = DockerWorkers::start(settings, |_| ()).await.unwrap();
    let look = "import os\nprint(os.listdir('/work'), os.listdir('/tmp'), os.listdir('/dev/shm'), os.listdir('/dev/mqueue'))\n\
                print(sum(name.isdigit() and int(name) != os.getpid() for name in os.listdir('/proc')))\n\
                print(os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0)) == list(range(os.cpu_count())))";
    let clean = workers.run(python(look)).await;
    // The supervisor is the only process besides the job.
    assert_eq!(clean.stdout, "['main.py'] [] [] []\n1\n0 True\n");
    let mut useless = Vec::new();
    for attack in attacks(start_echo_server()) {
        if !run_control(&engine, &attack).contains("THROUGH") {
            useless.push(attack.name.clone());
        }
        let mut verdicts = Vec::new();
        for program in &attack.programs {
            verdicts.push(workers.run(python(program)).await);
        }
        assert_harmless("docker", &attack, &attack.docker, &verdicts);
        let after = workers.run(python(look)).await;
        assert_eq!((after.ending, &after.stdout), (Ending::Ok, &clean.stdout), "after {}", attack.name);
        eprintln!("{}: {}", attack.name, verdicts[0].ending.as_str());
    }
    assert_eq!(useless, Vec::<String>::new(), "these attacks do not succeed even in the control");
    workers.shut_down().await;
}

async fn assert_attacks_fail(workers: &impl Sandbox) {
    for attack in attacks(start_echo_server()) {
        let mut verdicts = Vec::new();
        for program in &attack.programs {
            verdicts.extend(workers.execute(vec![python(program)]).await);
        }
        assert_harmless("wasm", &attack, &attack.wasm, &verdicts);
    }
}

#[tokio::test]
async fn attacks_fail_in_wasm() {
    assert_attacks_fail(&instances(limits())).await;
}

#[tokio::test]
async fn attacks_fail_in_worker_processes() {
    assert_attacks_fail(&processes(limits()).await).await;
}
