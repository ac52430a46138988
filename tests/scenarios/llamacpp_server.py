"""Serves a GGUF file with llama.cpp: `llamacpp_server.py FILE PORT`. Exits with 3 without the package xllamacpp."""

import sys
import time

try:
    import xllamacpp
except ImportError:
    sys.exit(3)

settings = xllamacpp.CommonParams()
settings.model.path = sys.argv[1]
settings.port = int(sys.argv[2])
settings.n_ctx = 8192
settings.n_parallel = 4
settings.cpuparams.n_threads = 2
server = xllamacpp.Server(settings)
print(server.listening_address, flush=True)
time.sleep(3600)
