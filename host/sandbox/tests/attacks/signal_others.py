# The end of processes that are not the job's.
# docker: ok
# wasm: error
import os, signal, time
others = lambda: {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
before = others()
for signal_number in (signal.SIGTERM, signal.SIGSEGV, signal.SIGSTOP, signal.SIGKILL):
    for pid in before:
        try:
            os.kill(pid, signal_number)
        except OSError:
            pass
time.sleep(0.3)
state = {pid: open(f"/proc/{pid}/stat").read().rsplit(")")[1].split()[0] for pid in others() & before}
print("no" if before == set(state) and not set(state.values()) & set("TtZX") else "THROUGH")
