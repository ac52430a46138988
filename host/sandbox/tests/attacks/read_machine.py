# Reads descriptions of the machine's hardware and kernel.
# docker: ok
# wasm: ok
import glob, os
hidden = glob.glob("/sys/devices/pci*") + glob.glob("/sys/devices/system/cpu/cpu*/thermal_throttle")
print("/sys/devices", "THROUGH" if hidden else "no")
for name in ("/sys/class/net", "/sys/block", "/sys/module", "/proc/kallsyms", "/proc/partitions", "/proc/modules"):
    try:
        found = os.listdir(name) if os.path.isdir(name) else open(name).read()
    except OSError as error:
        found = None
    print(name, "THROUGH" if found else "no")
