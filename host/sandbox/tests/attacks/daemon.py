# Leaves a process that runs after the job.
# docker: ok
# wasm: error
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in (0, 1, 2):
            os.close(fd)
        for _ in range(100):
            with open("/tmp/alive", "w") as file:
                file.write(str(time.time()))
            time.sleep(0.05)
    os._exit(0)
os.wait()
time.sleep(0.2)
# --- next job ---
import os, time
time.sleep(0.3)
if os.path.exists("/tmp/alive"):
    print("THROUGH", open("/tmp/alive").read())
