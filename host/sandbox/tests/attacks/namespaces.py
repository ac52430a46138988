# Makes a user namespace, in which the program is root.
# docker: ok
# wasm: error
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
NEWUSER, NEWNS, NEWNET = 0x10000000, 0x00020000, 0x40000000
print("THROUGH" if libc.unshare(NEWUSER | NEWNS | NEWNET) == 0 else "no")
