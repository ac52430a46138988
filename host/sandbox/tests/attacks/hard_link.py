# A name of one's own for a file of the machine.
# docker: error
# wasm: error
import os
os.link("/etc/passwd", "/etc/left")
os.remove("/etc/left")
print("THROUGH")
