# Reads descriptions of the machine's hardware and kernel.
# docker: ok
# wasm: ok
import os
for name in ("/sys/class/net", "/sys/block", "/sys/module", "/proc/kallsyms", "/proc/partitions", "/proc/modules"):
    try:
        found = os.listdir(name) if os.path.isdir(name) else open(name).read()
    except OSError as error:
        found = None
    print(name, "THROUGH" if found else "no")
