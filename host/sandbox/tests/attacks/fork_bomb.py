# Starts more processes than the limit.
# docker: process limit
# wasm: error
import os, signal
children = []
try:
    for _ in range(200):
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
    print("THROUGH")
finally:
    for child in children:
        os.kill(child, signal.SIGKILL)
