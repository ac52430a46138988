# Writes more bytes to files than the limit.
# docker: memory error
# wasm: error memory
import os
written = 0
for place in (".", "/tmp", "/var/tmp", "/dev/shm"):
    with open(place + "/fill", "wb") as file:
        for _ in range(350):
            written += file.write(b"x" * (1 << 20))
            if written >= 700 << 20:
                print("THROUGH")
                break
for place in (".", "/tmp", "/var/tmp", "/dev/shm"):
    os.remove(place + "/fill")
