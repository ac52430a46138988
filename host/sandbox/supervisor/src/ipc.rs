//! System V objects, which outlive the processes that made them.

/// Removes all of them. The container has a namespace of its own, so all of them are the job's.
pub fn wipe() -> Result<(), String> {
    for (list, remove) in [("shm", remove_shm as fn(i32) -> i32), ("msg", remove_msg), ("sem", remove_sem)] {
        let place = format!("/proc/sysvipc/{list}");
        // A kernel without these objects has no list of them.
        let Ok(text) = std::fs::read_to_string(&place) else { continue };
        for line in text.lines().skip(1) {
            let id = line.split_whitespace().nth(1).and_then(|id| id.parse().ok());
            if id.is_none_or(|id| remove(id) != 0) {
                return Err(format!("an object of {place}"));
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
