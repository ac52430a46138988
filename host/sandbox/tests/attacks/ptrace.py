# Traces processes outside the job.
# docker: ok
# wasm: error
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
ATTACH, DETACH = 16, 17
for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
    if pid != os.getpid():
        if libc.ptrace(ATTACH, pid, 0, 0) == 0:
            os.waitpid(pid, 0)
            libc.ptrace(DETACH, pid, 0, 0)
            print("THROUGH")
