//! Hoarding in containers. What a job takes there in files, in handles and in the kernel is memory of its container, which
//! has one limit for all of it.

use std::time::Duration;

use pl_sandbox::{DockerSettings, DockerWorkers, Ending, Job, SandboxLimits};
use pl_testing::{Requirement, skip_or_fail};

use super::{LIMIT, MemoryGrowth, PROGRAMS, Program, STOPPED_BY_MEMORY, is_through, run, run_job};
use crate::engine::{self, TestEngine, python};

/// Bytes that a container may hold beyond the limit of its jobs, with the default limit on output.
const ROOM: u64 = (66 << 20) + (256 << 10);

/// Bytes that a control group may have beyond its limit, for allocations that the kernel never refuses.
const NEVER_REFUSED: u64 = 1 << 20;

/// Bytes that this process may hold for a job: the largest message of a supervisor, of 9 MiB and the output twice, as bytes
/// and as values, and what the allocator has not returned.
const HOST_SLACK: u64 = 32 << 20;

/// Ways of hoarding that WebAssembly doesn't have, none of which anything but the limit on memory stops.
const CONTAINER_PROGRAMS: &[Program] = &[
    ("files of two folders", 1, 180, FILES_OF_TWO_FOLDERS),
    // The only folder without a limit on the number of files. Each takes more than a KiB.
    ("names", 10, 250_000, "import os\nfor i in range(n): os.mknod(f'/dev/shm/{i:06}' + 'x' * 249)"),
    ("files without a name", 1, 400, FILES_WITHOUT_A_NAME),
    ("memory maps", 1, 400, MEMORY_MAPS),
    ("page tables", 10, 100_000, PAGE_TABLES),
    ("shared memory", 1, 400, SHARED_MEMORY),
    ("message queues", 1, 30_000, MESSAGE_QUEUES),
    ("sockets", 5, 480, SOCKETS),
    ("pipes", 1, 50, PIPES),
    ("threads", 2, 50, THREADS),
    ("processes", 2, 50, PROCESSES),
];

/// Each folder takes as much as the limit.
const FILES_OF_TWO_FOLDERS: &str = "
for folder in ('/work', '/tmp'):
    with open(folder + '/f', 'wb') as f:
        for _ in range(n): f.write(bytes(1 << 20))";

const FILES_WITHOUT_A_NAME: &str = "
import os
for _ in range(n): os.write(os.memfd_create('f'), bytes(1 << 20))";

const MEMORY_MAPS: &str = "
import mmap
kept = []
for _ in range(n):
    kept.append(mmap.mmap(-1, 1 << 20))
    kept[-1].write(bytes(1 << 20))";

/// Reads of memory that was never written: it all is the kernel's one page of zeros, but each 2 MiB have a table.
const PAGE_TABLES: &str = "
import mmap
zeros = mmap.mmap(-1, n << 21, mmap.MAP_PRIVATE, mmap.PROT_READ)
for i in range(n): zeros[i << 21]";

/// Objects of System V, which stay when their process ends.
const SHARED_MEMORY: &str = "
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(n):
    part = libc.shmget(0, ctypes.c_size_t(1 << 20), 0o600)
    assert part >= 0
    ctypes.memset(libc.shmat(part, None, 0), 1, 1 << 20)";

const MESSAGE_QUEUES: &str = "
import ctypes
libc = ctypes.CDLL(None)
NO_WAIT = 0o4000
message = (1).to_bytes(8, 'little') + bytes(8192)
for _ in range(n):
    queue = libc.msgget(0, 0o600)
    for _ in range(2):
        assert libc.msgsnd(queue, message, ctypes.c_size_t(8192), NO_WAIT) == 0";

const SOCKETS: &str = "
import socket
kept = []
for _ in range(n):
    kept.append(socket.socketpair())
    for end in kept[-1]:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
        end.setblocking(False)
        try:
            while True: end.send(bytes(1 << 12))
        except BlockingIOError: pass";

/// Each process fills as many as it may have open, and starts the next one.
const PIPES: &str = "
import os, sys
for _ in range(n):
    os.closerange(3, 1024)
    for _ in range(480):
        end = os.pipe()[1]
        os.set_blocking(end, False)
        try:
            while True: os.write(end, bytes(1 << 12))
        except BlockingIOError: pass
    child = os.fork()
    if child: sys.exit(os.waitpid(child, 0)[1] != 0)";

const THREADS: &str = "
import threading, time
kept = []
def hold():
    kept.append(bytearray(8 << 20))
    threading.Event().wait()
for _ in range(n): threading.Thread(target=hold, daemon=True).start()
while len(kept) < n: time.sleep(0.01)";

const PROCESSES: &str = "
import os, sys
for _ in range(n):
    kept = bytearray(8 << 20)
    child = os.fork()
    if child: sys.exit(os.waitpid(child, 0)[1] != 0)";

/// Connections to itself that are closed before they are accepted: what was sent stays, without a descriptor.
const NETWORK_SOCKETS: &str = "
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
server.bind(('127.0.0.1', 0))
server.listen(n)
for _ in range(n):
    with socket.create_connection(server.getsockname()) as link:
        link.setblocking(False)
        try:
            while True: link.send(bytes(1 << 16))
        except BlockingIOError: pass";

/// Prints the bytes that sockets of TCP hold, and the largest memory of the control group.
const HELD: &str = "
import subprocess
line, = [line for line in open('/proc/net/sockstat') if line.startswith('TCP:')]
print(int(line.split()[-1]) * 4096, flush=True)
subprocess.run('cat memory.peak memory/memory.max_usage_in_bytes 2> /dev/null', shell=True, cwd='/sys/fs/cgroup')";

/// One engine for all checks: starting one takes longer than any of them.
#[tokio::test(flavor = "multi_thread")]
async fn docker_containers_hold_no_more_than_the_limit() {
    let Some(engine) = TestEngine::start("hoarding").await else { return };
    let workers = start(&engine, LIMIT).await;
    if container_peak(&workers).await.is_none() {
        return skip_or_fail(Requirement::Docker, "the kernel records no peak of a control group's memory");
    }
    assert_memory_is_limited(&engine, &workers).await;
    assert_network_sockets_are_refused(&engine, &workers).await;
    assert_returned_files_are_limited(&workers).await;
    workers.shut_down().await;
    assert_memory_is_counted(&engine).await;
}

async fn start(engine: &TestEngine, memory: u64) -> DockerWorkers {
    // Long enough for a busy machine: no program waits for it.
    let limits =
        SandboxLimits { memory, workers: 1, timeout: Duration::from_secs(60), ..SandboxLimits::default() };
    DockerWorkers::start(DockerSettings { limits, ..engine.settings() }, |_| ()).await.unwrap()
}

/// Programs that nothing but the limit on memory stops, or the sizes of folders, which are equal to it.
fn stopped_by_memory() -> impl Iterator<Item = &'static Program> {
    PROGRAMS.iter().filter(|(name, ..)| STOPPED_BY_MEMORY.contains(name)).chain(CONTAINER_PROGRAMS)
}

/// Largest memory of the only container since its start, in bytes. Returns `None` if the kernel doesn't record it, as Linux
/// before 5.19 with control groups of version 2.
async fn container_peak(workers: &DockerWorkers) -> Option<u64> {
    // One of them exists, by the version of control groups.
    let source = "cd /sys/fs/cgroup; cat memory.peak memory/memory.max_usage_in_bytes 2> /dev/null";
    let job = Job { language: "shell".to_owned(), source: source.to_owned(), ..Job::default() };
    workers.run(job).await.stdout.trim().parse().ok()
}

/// Asserts that neither the container nor this process holds more for a program than it may, and that the container survives
/// the program.
async fn assert_memory_is_limited(engine: &TestEngine, workers: &DockerWorkers) {
    let containers = engine.containers();
    for (name, small, large, source) in PROGRAMS.iter().chain(CONTAINER_PROGRAMS) {
        // The control: the program itself works.
        let verdict = run(workers, source, *small).await;
        assert!(is_through(&verdict), "{name}: {verdict:?}");
        let host = MemoryGrowth::start(std::process::id());
        let verdict = run(workers, source, *large).await;
        let grown = host.bytes();
        assert!(grown <= HOST_SLACK, "{name}: the host's memory grew by {} MiB: {verdict:?}", grown >> 20);
        let peak = container_peak(workers).await.unwrap();
        assert!(
            peak <= LIMIT + ROOM + NEVER_REFUSED,
            "{name}: the container held {} MiB: {verdict:?}",
            peak >> 20
        );
        let is_hoarder = stopped_by_memory().any(|(hoarder, ..)| hoarder == name);
        assert!(!(is_hoarder && is_through(&verdict)), "{name}: nothing stopped it: {verdict:?}");
        assert_ne!(verdict.ending, Ending::LostWorker, "{name}: {verdict:?}");
        // It is still the one that was measured.
        assert_eq!(engine.containers(), containers, "{name}: the container was replaced: {verdict:?}");
    }
}

/// Asserts that there are no sockets of the network, not even for a loopback address.
async fn assert_network_sockets_are_refused(engine: &TestEngine, workers: &DockerWorkers) {
    const CONNECTIONS: u32 = 400;
    for source in [NETWORK_SOCKETS, "import socket\nsocket.socket(socket.AF_INET6, socket.SOCK_DGRAM)"] {
        let verdict = run(workers, source, CONNECTIONS).await;
        assert!(verdict.stderr.contains("Address family not supported"), "{verdict:?}");
    }
    // The control: without the supervisor's filter they hold more than the limit, and what they hold does not count.
    let memory = format!("--memory={LIMIT}");
    let program = format!("n = {CONNECTIONS}{NETWORK_SOCKETS}{HELD}");
    let printed =
        engine.docker(&["run", "--rm", "--network=none", &memory, engine::IMAGE, "python3", "-c", &program]);
    let numbers: Vec<u64> = printed.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert_eq!(numbers.len(), 2, "{printed}");
    assert!(numbers[0] > LIMIT && numbers[1] < LIMIT, "held and counted: {numbers:?}");
}

/// Asserts that this process takes no more of the files that a job returns than it should: 8 MiB.
async fn assert_returned_files_are_limited(workers: &DockerWorkers) {
    let source = "for i in range(20):\n    with open(f'f{i}', 'wb') as f: f.write(bytes(1 << 20))";
    let output_files = (0..20).map(|number| format!("f{number}")).collect();
    let host = MemoryGrowth::start(std::process::id());
    let verdict = run_job(workers, Job { output_files, ..python(source) }).await;
    let grown = host.bytes();
    assert_eq!((verdict.ending, verdict.output_files.len()), (Ending::Ok, 8));
    assert!(grown <= HOST_SLACK, "the host's memory grew by {} MiB", grown >> 20);
}

/// The control of the limit: with one that is far away, the kernel counts what the programs hoard as memory of the container.
async fn assert_memory_is_counted(engine: &TestEngine) {
    for (name, _, large, source) in stopped_by_memory() {
        // The peak of a container can't be measured again from the start.
        let workers = start(engine, 2 << 30).await;
        let verdict = run(&workers, source, *large).await;
        assert!(is_through(&verdict), "{name}: {verdict:?}");
        let peak = container_peak(&workers).await.unwrap();
        assert!(peak > LIMIT + ROOM + NEVER_REFUSED, "{name}: the container held {} MiB only", peak >> 20);
        workers.shut_down().await;
    }
}
