"""The program inside the Python worker: runs one untrusted program as `__main__`.

Code at module level runs when the component is built, and its results are part of the component's memory: the standard
library and sympy are imported only once. Modules that few programs need are stored as compressed bytecode (see
`archive.py`) and imported on demand, because there is no file system to import from.
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

import componentize_py_types  # noqa: F401  (the bindings must be in the snapshot)
from wit_world import exports
from wit_world.exports import interpreter
from wit_world.imports import host

import archive
import heap
import warm

PROGRAM = "main.py"


class Interpreter(exports.Interpreter):
    """Exports of the component."""

    def run(self, source):
        """Runs `source` and returns its result. Flushes its streams."""
        prepare()
        try:
            out_of_memory = False
            exit_code = execute(source)
        except MemoryError:
            out_of_memory = True
            exit_code = 1
        return interpreter.Ended(exit_code, out_of_memory)


def prepare():
    """Sets up the state of a new process: streams, arguments, a seeded random number generator."""
    sys.stdin = io.open(0, "r", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = io.open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr = io.open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    sys.argv = [PROGRAM]
    os._exit = posix._exit = leave
    random.seed()


def leave(status):
    """`os._exit`: ends the program without flushing streams or running exit functions."""
    host.leave(status & 0xFF)


def execute(source):
    """Runs the program and returns its exit code. Raises MemoryError after printing its traceback."""
    main = types.ModuleType("__main__")
    main.__file__ = PROGRAM
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    # Lets tracebacks quote the program.
    linecache.cache[PROGRAM] = (len(source), None, source.splitlines(True), PROGRAM)
    exit_code = exit_code_of(lambda: exec(compile(source, PROGRAM, "exec"), main.__dict__))
    # Like a process, runs exit functions even after an exception, and then flushes.
    at_exit = exit_code_of(atexit._run_exitfuncs)
    flushed = exit_code_of(flush)
    return exit_code or at_exit or flushed


def flush():
    sys.stdout.flush()
    sys.stderr.flush()


def exit_code_of(work):
    """Runs `work` and returns the exit code of a process that ends like it."""
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
    """Returns the exit code of `sys.exit`: 0 for None, the low byte of a number, 1 for other values, which are printed."""
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
warm.warm_up()
# Objects that exist now are permanent: the collector does not visit (and so copy) them in each job.
gc.collect()
gc.freeze()
heap.fill_gaps()
