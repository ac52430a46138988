//! Makes the system call that its first argument names, after it has confined itself if there is a second argument.
//! Exits with 0 if the call did what an attacker wants.

#![allow(unsafe_code, reason = "these are the calls of an attacker in machine code")]

use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let attack = arguments.next().unwrap_or_default();
    if arguments.next().is_some()
        && let Err(error) = pl_sandbox::confine(64 << 20)
    {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    match try_to(&attack) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn try_to(attack: &str) -> bool {
    match attack {
        "read" => std::fs::read("/etc/passwd").is_ok(),
        "write" => tempfile::tempfile().is_ok(),
        "connect" => std::net::UdpSocket::bind("127.0.0.1:0").is_ok(),
        "run" => Command::new("/bin/true").status().is_ok_and(|status| status.success()),
        "thread" => std::thread::Builder::new().spawn(|| ()).is_ok_and(|thread| thread.join().is_ok()),
        // SAFETY: no memory of this program is involved.
        "signal" => unsafe { libc::kill(libc::getppid(), 0) == 0 },
        "trace" => std::fs::File::open("/proc/self/mem").is_ok(),
        "map_code" => map_code(),
        "make_code" => make_code(),
        "memory" => map_pieces(1 << 30, libc::MAP_PRIVATE),
        "some_memory" => map_pieces(128 << 20, libc::MAP_PRIVATE),
        "shared_memory" => map_pieces(1 << 30, libc::MAP_SHARED),
        "stack_memory" => map_pieces(1 << 30, libc::MAP_PRIVATE | libc::MAP_GROWSDOWN),
        _ => false,
    }
}

fn map(length: usize, protection: libc::c_int, flags: libc::c_int) -> *mut libc::c_void {
    let flags = flags | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, at an address that the kernel chooses.
    unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) }
}

/// Maps this many bytes in pieces, until one is refused.
fn map_pieces(bytes: usize, flags: libc::c_int) -> bool {
    let piece = 16 << 20;
    (0..bytes / piece).all(|_| map(piece, libc::PROT_READ | libc::PROT_WRITE, flags) != libc::MAP_FAILED)
}

fn map_code() -> bool {
    map(4096, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC, libc::MAP_PRIVATE) != libc::MAP_FAILED
}

fn make_code() -> bool {
    let page = map(4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
    // SAFETY: the page was mapped above, and nothing refers to it.
    unsafe { libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC) == 0 }
}
