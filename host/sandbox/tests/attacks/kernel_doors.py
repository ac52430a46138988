# Makes system calls that exploits often start with.
# docker: ok
# wasm: error
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
USERFAULTFD, BPF, IO_URING_SETUP, KCMP = 323, 321, 425, 312
buffer = ctypes.create_string_buffer(256)
for call in ((USERFAULTFD, 1), (IO_URING_SETUP, 8, buffer)):
    print("THROUGH" if libc.syscall(*call) >= 0 else "no")
