# Kills processes outside the job.
# docker: ok
# wasm: error
import ctypes, os, signal, time
libc = ctypes.CDLL(None, use_errno=True)
TGKILL, PIDFD_SEND_SIGNAL = 234, 424
others = lambda: {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
before = others()
for number in (signal.SIGTERM, signal.SIGSEGV, signal.SIGSTOP, signal.SIGKILL):
    for pid in before:
        for way in (
            lambda: os.kill(pid, number),
            lambda: pid == os.getpgid(0) or os.killpg(pid, number),
            lambda: libc.syscall(TGKILL, pid, pid, number),
            lambda: signal.pidfd_send_signal(os.pidfd_open(pid), number),
            lambda: libc.syscall(PIDFD_SEND_SIGNAL, os.open(f"/proc/{pid}", os.O_RDONLY), number, None, 0),
            lambda: os.kill(-1, number),
        ):
            try:
                way()
            except OSError:
                pass
time.sleep(0.3)
state = {pid: open(f"/proc/{pid}/stat").read().rsplit(")")[1].split()[0] for pid in others() & before}
print("no" if before == set(state) and not set(state.values()) & set("TtZX") else "THROUGH")
