# Starts a process as a child of the job's parent.
# docker: ok
# wasm: error
import ctypes, os, signal, time
libc = ctypes.CDLL(None, use_errno=True)
CLONE, CLONE_PARENT = 56, 0x8000
parent = os.getppid()
child = libc.syscall(CLONE, CLONE_PARENT | signal.SIGKILL, None, None, None, None)
if child == 0:
    time.sleep(0.2)
    os._exit(0)
time.sleep(0.4)
print("THROUGH" if child > 0 else "no")
