# Changes the limits, the priority and the CPUs of processes outside the job.
# docker: ok
# wasm: error
import os, resource
for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
    if pid == os.getpid():
        continue
    for change in (
        lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (8, 8)),
        lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
        lambda: os.setpriority(os.PRIO_USER, 0, 19),
        lambda: os.sched_setaffinity(pid, {0}),
        lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
        lambda: open(f"/proc/{pid}/oom_score_adj", "w").write("1000"),
    ):
        try:
            change()
            print("THROUGH")
        except OSError as error:
            print(type(error).__name__)
