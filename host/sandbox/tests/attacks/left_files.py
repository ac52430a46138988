# Leaves files for the next job, with unusual names and modes.
# docker: ok
# wasm: ok error
import os
for place in (".", "/tmp", "/dev/shm"):
    try:
        os.makedirs(place + "/left/deep", exist_ok=True)
        open(place + "/left/file", "w").write("x")
        open(place + "/.hidden", "w").write("x")
        os.symlink("/etc/passwd", place + "/link")
        os.chmod(place + "/left", 0)
    except OSError as error:
        print(error)
# --- next job ---
import os
for place in (".", "/tmp", "/dev/shm"):
    try:
        left = set(os.listdir(place)) - {"main.py"}
    except OSError:
        left = set()
    print("THROUGH" if left & {"left", ".hidden", "link"} else "no")
