//! Programs that hoard memory or work outside of their own memory: in files, names and handles, and in calls of
//! the host.
//!
//! Each test has its process for itself, as nextest runs it, because it measures that process.

use std::time::Duration;

use pl_sandbox::{Ending, Job, PythonWorkers, SandboxLimits, Verdict};

use crate::python::{job, workers};

/// Memory limit of the programs.
const LIMIT: u64 = 192 << 20;

/// Bytes that the host may hold beyond the limit: buffers of one call, and what the allocator has not returned.
const SLACK: u64 = 64 << 20;

/// Ways of hoarding, each a program that reads how much it takes from stdin. The small amount is an ordinary
/// program's; the large one is far more than the limit, or would be if the host counted nothing.
const PROGRAMS: &[(&str, u32, u32, &str)] = &[
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
    ("output", 1, 400, "import sys\nfor _ in range(n): sys.stdout.write('x' * 100_000)"),
];

fn limits() -> SandboxLimits {
    SandboxLimits { memory: LIMIT, workers: 1, output: 1 << 20, timeout: Duration::from_secs(1), fuel: None }
}

async fn run(workers: &PythonWorkers, source: &str, amount: u32) -> Verdict {
    let source = format!("n = int(input())\n{source}\nprint('THROUGH')");
    workers.run(Job { stdin: format!("{amount}\n"), ..job(&source) }).await
}

/// Value in bytes of a line of `/proc/self/status`.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn the_host_holds_no_more_than_the_limit() {
    let workers = workers(limits());
    for (name, small, large, source) in PROGRAMS {
        // The control: the program itself works.
        let verdict = run(&workers, source, *small).await;
        assert!(verdict.ending == Ending::Ok && verdict.stdout.ends_with("THROUGH\n"), "{name}: {verdict:?}");
        let before = status("VmRSS:");
        // Starts the measurement of the peak again.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let verdict = run(&workers, source, *large).await;
        let grown = status("VmHWM:").saturating_sub(before);
        assert!(grown <= LIMIT + SLACK, "{name}: the host's memory grew by {} MiB: {verdict:?}", grown >> 20);
        let used = verdict.usage.memory.unwrap();
        assert!(used <= LIMIT, "{name}: {used}");
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
];

/// CPU time of this process so far, in seconds.
fn cpu_time() -> f64 {
    /// Unit of times in `/proc`, the same on all machines with Linux.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The fields after the name of the process, which is in brackets: user and system time are the 12th and 13th.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2).map(|field| field.parse::<f64>().unwrap());
    ticks.sum::<f64>() / TICKS_PER_SECOND
}

/// Both are measured in one process and on one machine: the ratio is a property of the prices of host calls.
#[tokio::test]
async fn work_of_the_host_is_paid_for() {
    let workers = workers(SandboxLimits { timeout: Duration::from_millis(400), ..limits() });
    // The least of three: a virtual machine that has to wait for its processor counts that as CPU time.
    let seconds = async |source: &str| {
        let mut least = f64::INFINITY;
        for _ in 0..3 {
            let before = cpu_time();
            let verdict = workers.run(job(source)).await;
            assert_eq!(verdict.ending, Ending::Timeout, "{source}: {verdict:?}");
            least = least.min(cpu_time() - before);
        }
        least
    };
    seconds("while True: pass").await;
    let plain = seconds("while True: pass").await;
    for (name, source) in HOST_WORK {
        let ratio = seconds(source).await / plain;
        println!("{name}: {ratio:.2} times the CPU time of a plain loop");
        assert!(ratio < 3.0, "{name}: {ratio:.2} times the CPU time of a plain loop with the same fuel");
    }
}
