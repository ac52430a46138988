# Mounts a file system, and makes a device.
# docker: ok
# wasm: error
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for done in (libc.mount(b"none", b"/tmp", b"tmpfs", 0, None), libc.umount2(b"/proc", 2), libc.chroot(b"/tmp")):
    print("THROUGH" if done == 0 else "no")
try:
    os.mknod("/tmp/device", 0o60600, os.makedev(7, 0))
    print("THROUGH")
except OSError as error:
    print(error)
