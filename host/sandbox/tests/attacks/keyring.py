# Adds a key to the kernel's keyring, which outlives processes and is shared by a user's containers.
# docker: ok
# wasm: error
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
ADD_KEY, SESSION = 248, -3
print("THROUGH" if libc.syscall(ADD_KEY, b"user", b"left", b"x", 1, SESSION) >= 0 else "no")
