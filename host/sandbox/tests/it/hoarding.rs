//! Programs that hoard memory or work outside of their own memory: in files, names and handles, and in calls of
//! the host. They run in instances of this process, in worker processes and in containers, whose memory and CPU time
//! the kernel counts.
//!
//! Each test has its process for itself, as nextest runs it, because it measures that process.

use std::time::Duration;

use pl_sandbox::{EMBEDDED_OVERHEAD, Ending, Job, Sandbox, SandboxLimits, Verdict};

use crate::process::{children, processes};
use crate::python::{job, workers};

mod docker;

/// Memory limit of the programs.
const LIMIT: u64 = 192 << 20;

/// Bytes that the host may hold beyond the limit.
const SLACK: u64 = EMBEDDED_OVERHEAD;

/// Name, small and large amount, and source of a program that reads from stdin how much it takes. The small amount is an
/// ordinary program's; the large one is far more than the limit, or would be if the host counted nothing.
type Program = (&'static str, u32, u32, &'static str);

/// Ways of hoarding.
const PROGRAMS: &[Program] = &[
    ("a large file", 1, 400, "with open('f', 'wb') as f:\n    for _ in range(n): f.write(bytes(1 << 20))"),
    (
        "files that are truncated again",
        1,
        12,
        "for i in range(n):\n    f = open(f'f{i}', 'wb')\n    f.write(bytes(40 << 20))\n    f.flush()\n    f.truncate(0)",
    ),
    (
        "files that grow by holes",
        1,
        400,
        "f = open('f', 'wb')\nfor i in range(n):\n    f.truncate((i + 1) << 24)\n    f.seek(i << 24)\n    f.write(bytes(1 << 20))",
    ),
    (
        "many small files",
        10,
        9_000,
        "for i in range(n):\n    with open(f'f{i}', 'w') as f: f.write('x' * 60000)",
    ),
    ("long names", 10, 3_000, "import os\nfor i in range(n): os.mkdir(f'{i:05}' + 'x' * 250)"),
    (
        "names beyond the limit of a name",
        0,
        3_000,
        "import os\nfor i in range(n): os.mkdir(f'{i:05}' + 'x' * 500_000)",
    ),
    (
        "deleted files that stay open",
        2,
        20,
        "import os\nkept = []\nfor i in range(n):\n    f = open('f', 'wb')\n    f.write(bytes(20 << 20))\n    f.flush()\n    os.remove('f')\n    kept.append(f)",
    ),
    (
        "open files",
        50,
        1_000_000,
        "import os\nopen('f', 'w').close()\nfor i in range(n): os.open('f', os.O_RDONLY)",
    ),
    (
        "open listings",
        5,
        100_000,
        "import os\nfor i in range(5000): os.mkdir(f'{i:05}' + 'x' * 200)\nkept = []\nfor i in range(n):\n    s = os.scandir('.')\n    next(s)\n    kept.append(s)",
    ),
    ("a deep tree", 10, 9_990, "import os\nfor i in range(n):\n    os.mkdir('d')\n    os.chdir('d')"),
    ("linear memory", 1, 400, "kept = [bytearray(1 << 20) for _ in range(n)]"),
    (
        "files beside linear memory",
        1,
        2,
        "kept = bytearray(n * 45 << 20)\nwith open('f', 'wb') as f:\n    for _ in range(n * 45): f.write(bytes(1 << 20))",
    ),
    ("output", 1, 4_000, "import sys\nfor _ in range(n): sys.stdout.write('x' * 10_000)"),
];

fn limits() -> SandboxLimits {
    SandboxLimits { memory: LIMIT, workers: 1, output: 1 << 20, timeout: Duration::from_secs(1), fuel: None }
}

async fn run(workers: &impl Sandbox, source: &str, amount: u32) -> Verdict {
    let source = format!("n = int(input())\n{source}\nprint('THROUGH')");
    run_job(workers, Job { stdin: format!("{amount}\n"), ..job(&source) }).await
}

async fn run_job(workers: &impl Sandbox, job: Job) -> Verdict {
    workers.execute(vec![job]).await.remove(0)
}

fn is_through(verdict: &Verdict) -> bool {
    verdict.ending == Ending::Ok && verdict.stdout.ends_with("THROUGH\n")
}

/// Ids of this process and of the only worker process that it has started.
fn own_and_worker() -> [u32; 2] {
    let workers = children();
    assert_eq!(workers.len(), 1, "{workers:?}");
    [std::process::id(), workers[0]]
}

/// Memory of a process when a measurement of its growth begins.
struct MemoryGrowth {
    process: u32,
    resident: u64,
    peak: u64,
}

impl MemoryGrowth {
    fn start(process: u32) -> Self {
        // Starts the measurement of the peak again. The kernel may refuse that for a confined process.
        let _ = std::fs::write(format!("/proc/{process}/clear_refs"), "5");
        Self { process, resident: status(process, "VmRSS:"), peak: status(process, "VmHWM:") }
    }

    /// Largest number of bytes by which the memory has grown since the start. Returns 0 if it stayed below an earlier peak.
    fn bytes(&self) -> u64 {
        let peak = status(self.process, "VmHWM:");
        if peak > self.peak { peak.saturating_sub(self.resident) } else { 0 }
    }
}

/// Value in bytes of a line of `/proc/PID/status`.
fn status(process: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Asserts that these processes together hold no more for a program than its limit.
async fn assert_memory_is_limited(workers: &impl Sandbox, processes: &[u32]) {
    for (name, small, large, source) in PROGRAMS {
        // The control: the program itself works.
        let verdict = run(workers, source, *small).await;
        assert!(is_through(&verdict), "{name}: {verdict:?}");
        let before: Vec<MemoryGrowth> = processes.iter().copied().map(MemoryGrowth::start).collect();
        let verdict = run(workers, source, *large).await;
        let grown: u64 = before.iter().map(MemoryGrowth::bytes).sum();
        assert!(grown <= LIMIT + SLACK, "{name}: the memory grew by {} MiB: {verdict:?}", grown >> 20);
        let used = verdict.usage.memory.unwrap();
        assert!(used <= LIMIT, "{name}: {used}");
    }
}

#[tokio::test]
async fn the_host_holds_no_more_than_the_limit() {
    assert_memory_is_limited(&workers(limits()), &[std::process::id()]).await;
}

#[tokio::test]
async fn worker_processes_hold_no_more_than_the_limit() {
    let workers = processes(limits()).await;
    let measured = own_and_worker();
    assert_memory_is_limited(&workers, &measured).await;
    // It is still the one that was measured.
    assert_eq!(own_and_worker(), measured);
}

/// Names of the programs that nothing but the limit on memory stops. Others run into the limits on names, files and handles,
/// or take less than the host may hold beyond the limit.
const STOPPED_BY_MEMORY: [&str; 5] = [
    "a large file",
    "files that grow by holes",
    "many small files",
    "deleted files that stay open",
    "linear memory",
];

/// The control of the limit: with one that is far away, the host holds what the programs hoard.
#[tokio::test]
async fn without_a_limit_the_host_holds_what_is_hoarded() {
    let workers = workers(SandboxLimits { memory: 2 << 30, timeout: Duration::from_secs(10), ..limits() });
    for wanted in STOPPED_BY_MEMORY {
        let (name, _, large, source) = PROGRAMS.iter().find(|(name, ..)| *name == wanted).unwrap();
        // Memory that the allocator keeps of the program before would serve this one too.
        #[allow(unsafe_code, reason = "the allocator has no other interface")]
        // SAFETY: the call returns only memory that is not in use.
        unsafe {
            libc::malloc_trim(0);
        }
        let before = MemoryGrowth::start(std::process::id());
        let verdict = run(&workers, source, *large).await;
        let grown = before.bytes();
        assert!(is_through(&verdict), "{name}: {verdict:?}");
        assert!(grown > LIMIT + SLACK, "{name}: the memory grew by {} MiB only", grown >> 20);
    }
}

/// Programs whose work is done by the host.
const HOST_WORK: &[(&str, &str)] = &[
    ("long paths", "import os\np = 'a/' * 2000\nwhile True:\n    try: os.stat(p)\n    except OSError: pass"),
    ("missing files", "import os\nwhile True:\n    try: os.stat('x')\n    except OSError: pass"),
    ("listings", "import os\nfor i in range(2000): os.mkdir(str(i))\nwhile True: os.listdir('.')"),
    (
        "reads",
        "import os\nopen('f', 'wb').write(bytes(1 << 20))\nfd = os.open('f', os.O_RDONLY)\nwhile True: os.pread(fd, 1 << 16, 0)",
    ),
    (
        "writes",
        "import os\nfd = os.open('f', os.O_WRONLY | os.O_CREAT)\nb = bytes(1 << 16)\nwhile True: os.pwrite(fd, b, 0)",
    ),
    (
        "moved folders",
        "import os\nfor i in range(2000): os.makedirs(f'a/{i}')\nwhile True:\n    os.rename('a', 'b')\n    os.rename('b', 'a')",
    ),
    (
        "zeros before a byte",
        "import os\nfd = os.open('f', os.O_WRONLY | os.O_CREAT)\nwhile True:\n    os.pwrite(fd, b'x', 65535)\n    os.ftruncate(fd, 0)",
    ),
    ("open and close", "import os\nopen('f', 'w').close()\nwhile True: os.close(os.open('f', os.O_RDONLY))"),
    ("open and close of folders", "import os\nwhile True: os.close(os.open('.', os.O_RDONLY))"),
    (
        "listings that are dropped",
        "import os\nos.mkdir('d')\nwhile True:\n    s = os.scandir('.')\n    next(s)\n    s.close()",
    ),
    (
        "advice",
        "import os\nfd = os.open('f', os.O_RDWR | os.O_CREAT)\nwhile True: os.posix_fadvise(fd, 0, 0, 0)",
    ),
    ("syncs", "import os\nfd = os.open('f', os.O_RDWR | os.O_CREAT)\nwhile True: os.fsync(fd)"),
    ("syncs of data", "import os\nfd = os.open('f', os.O_RDWR | os.O_CREAT)\nwhile True: os.fdatasync(fd)"),
    (
        "states of open files",
        "import os\nfd = os.open('f', os.O_RDWR | os.O_CREAT)\nwhile True: os.fstat(fd)",
    ),
    ("states of files", "import os\nopen('f', 'w').close()\nwhile True: os.stat('f')"),
    // `isatty` does not ask the host.
    (
        "flags and kinds of open files",
        "import os\nfd = os.open('f', os.O_RDWR | os.O_CREAT)\nwhile True: os.get_blocking(fd)",
    ),
    ("ends of files", "import os\nfd = os.open('f', os.O_RDWR | os.O_CREAT)\nwhile True: os.lseek(fd, 0, 2)"),
    ("times of files", "import os\nopen('f', 'w').close()\nwhile True: os.utime('f', (1, 1))"),
    (
        "links with long paths",
        "import os\np = 'a' * 500_000\nwhile True:\n    try: os.link(p, p)\n    except OSError: pass",
    ),
    (
        "symbolic links with long paths",
        "import os\np = 'a' * 500_000\nwhile True:\n    try: os.symlink(p, p)\n    except OSError: pass",
    ),
    ("links that are read", "import os\nwhile True:\n    try: os.readlink('.')\n    except OSError: pass"),
    ("new and removed folders", "import os\nwhile True:\n    os.mkdir('d')\n    os.rmdir('d')"),
    (
        "new and removed files",
        "import os\nb = bytes(1 << 18)\nwhile True:\n    with open('f', 'wb') as f: f.write(b)\n    os.remove('f')",
    ),
    (
        "moved files with long paths",
        "import os\np = 'a/' * 200\nos.makedirs(p)\nopen(p + 'f', 'w').close()\nwhile True:\n    os.rename(p + 'f', p + 'g')\n    os.rename(p + 'g', p + 'f')",
    ),
    (
        "pages of a byte",
        "import os\nfd = os.open('f', os.O_WRONLY | os.O_CREAT)\nwhile True:\n    for i in range(50_000): os.pwrite(fd, b'x', i << 16)\n    os.ftruncate(fd, 0)",
    ),
    (
        "pages that move",
        "import os\nfd = os.open('f', os.O_WRONLY | os.O_CREAT)\nos.pwrite(fd, bytes(60_000), 0)\nwhile True:\n    os.pwrite(fd, b'x', 65535)\n    os.ftruncate(fd, 60_000)",
    ),
    (
        "reads of a byte",
        "import os\nopen('f', 'wb').write(b'x')\nfd = os.open('f', os.O_RDONLY)\nwhile True: os.pread(fd, 1, 0)",
    ),
    (
        "writes of a byte",
        "import os\nfd = os.open('f', os.O_WRONLY | os.O_CREAT)\nwhile True: os.pwrite(fd, b'x', 0)",
    ),
    ("reads at the end of stdin", "import os\nwhile True: os.read(0, 1)"),
    ("random bytes", "import os\nwhile True: os.urandom(1 << 16)"),
    ("clocks", "import time\nwhile True: time.monotonic()"),
    ("sleeps", "import time\nwhile True: time.sleep(1e-9)"),
    (
        "names of hosts",
        "import socket\nname = b'a' * 500_000\nwhile True:\n    try: socket.getaddrinfo(name, 80)\n    except OSError: pass",
    ),
];

/// CPU time of a process so far, in seconds.
fn cpu_time(process: u32) -> f64 {
    /// Unit of times in `/proc`, the same on all machines with Linux.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The fields after the name of the process, which is in brackets: user and system time are the 12th and 13th.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2).map(|field| field.parse::<f64>().unwrap());
    ticks.sum::<f64>() / TICKS_PER_SECOND
}

/// Limits of programs without an end.
fn short_limits() -> SandboxLimits {
    SandboxLimits { timeout: Duration::from_millis(400), ..limits() }
}

/// Asserts that work in calls of the host costs about as much fuel as other work. Both are measured in the same processes and
/// on one machine: the ratio is a property of the prices of host calls.
async fn assert_work_is_paid_for(workers: &impl Sandbox, processes: &[u32], programs: &[(&str, &str)]) {
    /// The least of several counts where a program seems to cost too much: a virtual machine that has to wait for its
    /// processor counts that as CPU time.
    const ATTEMPTS: usize = 8;
    let used = || processes.iter().copied().map(cpu_time).sum::<f64>();
    let seconds = async |source: &str| {
        let before = used();
        let verdict = run_job(workers, job(source)).await;
        assert_eq!(verdict.ending, Ending::Timeout, "{source}: {verdict:?}");
        used() - before
    };
    let plain_loop = "while True: pass";
    seconds(plain_loop).await;
    for (name, source) in programs {
        let (mut plain, mut own) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..ATTEMPTS {
            plain = plain.min(seconds(plain_loop).await);
            own = own.min(seconds(source).await);
            // At most 1.35 on a quiet machine.
            if own < 2.0 * plain {
                break;
            }
        }
        let ratio = own / plain;
        println!("{name}: {ratio:.2} times the CPU time of a plain loop");
        assert!(ratio < 2.0, "{name}: {ratio:.2} times the CPU time of a plain loop with the same fuel");
    }
}

#[tokio::test]
async fn work_of_the_host_is_paid_for() {
    assert_work_is_paid_for(&workers(short_limits()), &[std::process::id()], HOST_WORK).await;
}

#[tokio::test]
async fn work_of_worker_processes_is_paid_for() {
    let workers = processes(short_limits()).await;
    // A few: the prices are those of instances in this process.
    assert_work_is_paid_for(&workers, &own_and_worker(), &HOST_WORK[..6]).await;
}
