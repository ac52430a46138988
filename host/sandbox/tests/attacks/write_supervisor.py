# Opens the memory and settings of processes outside the job for writing.
# docker: ok
# wasm: ok
import os
others = [name for name in os.listdir("/proc") if name.isdigit() and name != str(os.getpid())] if os.path.isdir("/proc") else []
for pid in others:
    for name in ("mem", "oom_score_adj", "comm", "coredump_filter", "autogroup", "clear_refs", "sched"):
        try:
            os.close(os.open(f"/proc/{pid}/{name}", os.O_WRONLY))
            print("THROUGH", pid, name)
        except OSError as error:
            print(pid, name, type(error).__name__)
