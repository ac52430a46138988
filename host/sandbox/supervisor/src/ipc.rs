//! System V objects, which outlive the processes that made them.

use crate::error::{Error, Result};

/// Removes all of them. The container has its own IPC namespace, so they all belong to the job.
pub fn remove_all() -> Result<()> {
    for (list, remove) in [("shm", remove_shm as fn(i32) -> i32), ("msg", remove_msg), ("sem", remove_sem)] {
        let path = format!("/proc/sysvipc/{list}");
        // A kernel without these objects has no such file.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for line in text.lines().skip(1) {
            let id = line.split_whitespace().nth(1).and_then(|id| id.parse().ok());
            if id.is_none_or(|id| remove(id) != 0) {
                return Err(Error::RemainingObject(path));
            }
        }
    }
    Ok(())
}

fn remove_shm(id: i32) -> i32 {
    // SAFETY: no memory is read or written for this command.
    unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) }
}

fn remove_msg(id: i32) -> i32 {
    // SAFETY: no memory is read or written for this command.
    unsafe { libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()) }
}

fn remove_sem(id: i32) -> i32 {
    // SAFETY: no memory is read or written for this command.
    unsafe { libc::semctl(id, 0, libc::IPC_RMID) }
}
