# Makes a hard link to a file of the system.
# docker: error
# wasm: error
import os
os.link("/etc/passwd", "/etc/left")
os.remove("/etc/left")
print("THROUGH")
