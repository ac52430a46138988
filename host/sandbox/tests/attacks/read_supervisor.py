# Reads the environment, memory and descriptors of processes outside the job.
# docker: ok
# wasm: ok
import os
others = [name for name in os.listdir("/proc") if name.isdigit() and name != str(os.getpid())] if os.path.isdir("/proc") else []
for pid in others:
    for name in ("environ", "mem", "maps", "fd/0", "fd/1", "exe", "cwd", "root"):
        try:
            os.stat(f"/proc/{pid}/{name}")
            open(f"/proc/{pid}/{name}", "rb").close()
            print("THROUGH")
        except OSError as error:
            print(pid, name, type(error).__name__)
