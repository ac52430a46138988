# Kills processes outside the job through files that signal their owner when they become readable.
# docker: ok
# wasm: error
import array, fcntl, os, signal, socket, struct, time
F_SETSIG, F_SETOWN_EX, FIOSETOWN, SIOCSPGRP = 10, 15, 0x8901, 0x8902
others = lambda: {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
before = others()
for pid in before:
    for way in (
        lambda fd: fcntl.fcntl(fd, fcntl.F_SETOWN, pid),
        lambda fd: fcntl.fcntl(fd, F_SETOWN_EX, struct.pack("ii", 1, pid)),
        lambda fd: fcntl.ioctl(fd, FIOSETOWN, array.array("i", [pid])),
        lambda fd: fcntl.ioctl(fd, SIOCSPGRP, array.array("i", [pid])),
    ):
        ours, news = socket.socketpair()
        try:
            way(ours.fileno())
        except OSError:
            continue
        fcntl.fcntl(ours, F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        news.send(b"x")
time.sleep(0.3)
print("no" if before == others() & before else "THROUGH")
