# Leaves shared memory, semaphores and queues for the next job.
# docker: ok
# wasm: error
import ctypes, os
libc = ctypes.CDLL(None)
assert libc.shmget(7, 4096, 0o1666) >= 0 and libc.semget(7, 1, 0o1666) >= 0 and libc.msgget(7, 0o1666) >= 0
assert libc.mq_open(b"/left", os.O_CREAT | os.O_RDWR, 0o600, None) >= 0
# --- next job ---
import ctypes, os
libc = ctypes.CDLL(None)
found = (libc.shmget(7, 4096, 0), libc.semget(7, 1, 0), libc.msgget(7, 0), libc.mq_open(b"/left", os.O_RDONLY))
print("THROUGH" if max(found) >= 0 else "no")
