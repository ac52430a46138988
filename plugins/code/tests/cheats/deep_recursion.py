# Crashes the interpreter in the hope that a crash is no failure.
import sys

sys.setrecursionlimit(10**9)


class Deep:
    def __getattr__(self, name):
        return getattr(self, name + "x")

    def __eq__(self, other):
        return self == other


def mix(x):
    return Deep() == x
