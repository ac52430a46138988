# Becomes another user.
# docker: ok
# wasm: error
import os, stat, subprocess
for change in (lambda: os.setgroups([7]), lambda: os.setresgid(7, 7, 7), lambda: os.setresuid(7, 7, 7)):
    try:
        change()
        print("THROUGH")
    except OSError as error:
        print(error)
if os.getuid() != 7:
    # `su` is a setuid program: its effective user would be root.
    print(subprocess.run(["su", "-c", "id -u"], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout)
