# Ends the process without any clean-up.
import os


def mix(x):
    os._exit(0)
