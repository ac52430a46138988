# Opens the kernel's settings for writing.
# docker: ok
# wasm: ok
import os
for place in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger", "/sys/power/state"):
    try:
        os.close(os.open(place, os.O_WRONLY))
        print(place, os.major(os.stat(place).st_rdev) == 1 or "THROUGH")
    except OSError as error:
        print(place, type(error).__name__)
