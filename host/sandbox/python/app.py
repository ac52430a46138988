"""The program inside the Python worker: runs one untrusted program as `__main__`.

Everything at module level runs when the component is built and is part of its memory from then on: the standard
library and sympy are imported once, for all jobs of all time. Modules that few programs need are kept as compressed
bytecode (see `archive.py`) and imported when asked for, since there is no file system to import from.
"""

import atexit
import builtins
import gc
import io
import linecache
import os
import posix
import random
import sys
import traceback
import types

import componentize_py_types  # noqa: F401  (the bindings, which must be in the snapshot)
from wit_world import exports
from wit_world.exports import interpreter
from wit_world.imports import host

import archive
import warm

PROGRAM = "main.py"


class Interpreter(exports.Interpreter):
    """What the component exports."""

    def run(self, source):
        """Runs `source` and says how it ended. Its streams are flushed when this returns."""
        prepare()
        try:
            out_of_memory = False
            exit_code = execute(source)
        except MemoryError:
            out_of_memory = True
            exit_code = 1
        return interpreter.Ended(exit_code, out_of_memory)


def prepare():
    """Gives the program what a fresh process has: streams, arguments, a seeded generator of random numbers."""
    sys.stdin = io.open(0, "r", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = io.open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr = io.open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    sys.argv = [PROGRAM]
    os._exit = posix._exit = leave
    random.seed()


def leave(status):
    """`os._exit`: nothing is flushed, nothing is run any more."""
    host.leave(status & 0xFF)


def execute(source):
    """The program's exit code. Lets MemoryError through, after its traceback."""
    main = types.ModuleType("__main__")
    main.__file__ = PROGRAM
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    # So that tracebacks quote the program.
    linecache.cache[PROGRAM] = (len(source), None, source.splitlines(True), PROGRAM)
    exit_code = guarded(lambda: exec(compile(source, PROGRAM, "exec"), main.__dict__))
    # A process that ends runs its exit functions even after an exception, and then flushes.
    at_exit = guarded(atexit._run_exitfuncs)
    flushed = guarded(flush)
    return exit_code or at_exit or flushed


def flush():
    sys.stdout.flush()
    sys.stderr.flush()


def guarded(work):
    """Runs `work`; the exit code that its end stands for."""
    try:
        work()
    except SystemExit as error:
        return exit_status(error)
    except BaseException as error:
        report(error)
        if isinstance(error, MemoryError):
            raise
        return 1
    return 0


def exit_status(error):
    """As a process: none is 0, numbers keep their low byte, all else is printed and is 1."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def report(error):
    """Prints the traceback without the frames of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    # A program may have closed or replaced its stderr.
    try:
        traceback.print_exception(type(error), error, trace, file=sys.stderr)
        sys.stderr.flush()
    except BaseException:
        pass


archive.install()
warm.up()
# What is alive now stays alive: the collector need not walk (and so copy) it in each job.
gc.collect()
gc.freeze()
