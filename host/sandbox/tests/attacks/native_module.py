# Loads machine code from a file in a folder without execution rights.
# docker: error
# wasm: error
import ctypes, ctypes.util, glob, os, shutil
library = next(path for path in glob.glob("/usr/lib/*/libm.so.6") + glob.glob("/lib/*/libm.so.6"))
shutil.copy(library, "/tmp/native.so")
try:
    print("THROUGH" if ctypes.CDLL("/tmp/native.so").abs(-1) == 1 else "no")
finally:
    os.remove("/tmp/native.so")
