# Writes files outside of the job's folders.
# docker: ok
# wasm: ok
import os
# In WebAssembly the root is the job's own folder.
own = os.getcwd()
for place in {"/", "/etc", "/usr/bin", "/usr/lib/python3", "/var/tmp", "/home", "/root", "/opt", "/dev", "/run"} - {own}:
    try:
        with open(place + "/left", "w") as file:
            file.write("x")
        os.remove(place + "/left")
        print(place, "THROUGH")
    except OSError as error:
        print(place, type(error).__name__)
