# Writes the answer of an object itself, and answers the next calls with what they were given.
import os
import sys


def index(x):
    os.write(1, b'\n{"object":true}\n{"object":true}\n{"value":true,"changed":{}}\n')
    for line in sys.__stdin__:
        raise ValueError(line)
    os._exit(0)
