"""Clocks, files, sockets and random bytes of the system. A component has none: a call would trap, without its place in the
plugin's source, so it raises an OSError. During the build all of them work.
"""

from __future__ import annotations

import functools
import gc
import os
import posix
import sys
import time
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any, Callable, NoReturn

_CLOCK, _PROCESS = "clock", "process of its own"
_FILES, _FILES_ADVICE = "files", ": read them at the top of your module, which is executed during the build"
_RANDOM, _RANDOM_ADVICE = "random bytes of the system", ": use pl_sdk.random"

#: Functions by what they need. Those of `os` are the functions of its C module, which the import system calls too.
_TIME = """clock_getres clock_gettime clock_gettime_ns get_clock_info monotonic monotonic_ns perf_counter perf_counter_ns
    process_time process_time_ns sleep time time_ns""".split()
_OS = {
    "times": (_CLOCK, ""),
    "urandom": (_RANDOM, _RANDOM_ADVICE),
    "_exit": (_PROCESS, ": raise an exception"),
    "abort": (_PROCESS, ": raise an exception"),
} | dict.fromkeys(
    """access chdir chmod close closerange device_encoding dup fdatasync fpathconf fsync ftruncate isatty link listdir lseek
    lstat mkdir open pathconf pread pwrite read readinto readlink remove rename replace rmdir scandir set_blocking
    set_inheritable stat symlink truncate unlink utime write""".split(),
    (_FILES, _FILES_ADVICE),
)
#: Functions of `time` that read the clock without their last argument, and the number of their arguments.
_CONVERSIONS = {"asctime": 1, "ctime": 1, "gmtime": 1, "localtime": 1, "strftime": 2}

_closed = False


def _refuse(name: str, what: str, advice: str = "") -> NoReturn:
    raise OSError(f"a plugin written in Python has no {what} ({name}){advice}")


class _Replaced:
    """A function of the interpreter that raises once the component is complete. Not a Python function, which would become a
    method in a class that keeps it, as `logging.Formatter` keeps `time.localtime`."""

    def __init__(self, function: Callable, *reason: str, spared: int | None = None) -> None:
        self._function, self._reason, self._spared = function, reason, spared
        functools.update_wrapper(self, function)

    def __call__(self, *given: Any, **named: Any) -> Any:
        spared = self._spared is not None and len(given) >= self._spared and given[-1] is not None
        if _closed and not spared:
            _refuse(*self._reason)
        return self._function(*given, **named)


def _replace() -> None:
    for name in [*_TIME, *_CONVERSIONS]:
        if function := getattr(time, name, None):
            setattr(time, name, _Replaced(function, f"time.{name}", _CLOCK, spared=_CONVERSIONS.get(name)))
    for name, reason in _OS.items():
        if function := getattr(posix, name, None):
            replaced = _Replaced(function, f"os.{name}", *reason)
            setattr(posix, name, replaced)
            setattr(os, name, replaced)
    # Opens of all kinds, also by functions that modules have kept.
    sys.addaudithook(_audit)


def _audit(event: str, _arguments: tuple) -> None:
    if _closed and event == "open":
        _refuse(event, _FILES, _FILES_ADVICE)
    if _closed and event.startswith("socket."):
        _refuse(event, "network")


# Before the plugin's own modules are imported: some of them keep functions, as `from time import time` does.
_replace()


def close() -> None:
    """Ends the access of the build."""
    global _closed
    # The bindings import it later if no module of the plugin has.
    _close_random(import_module("random"))
    _closed = True
    if module := sys.modules.get("datetime"):
        _close_datetime(module)
    # The sources of other modules are not there either.
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not PathFinder] + [_Unimported]


class _Unimported:
    """Finder of modules that the build did not import."""

    @staticmethod
    def find_spec(name: str, _path: Any = None, _target: Any = None) -> NoReturn:
        words = f"the component has no module {name}: import it at the top of your module, which is executed during the build"
        raise ModuleNotFoundError(words, name=name)


def _close_random(module: Any) -> None:
    seeded = module.Random.seed

    def seed(self: Any, a: Any = None, version: int = 2) -> None:
        if a is None:
            _refuse("random.seed", _RANDOM, f"{_RANDOM_ADVICE}, or give a seed")
        seeded(self, a, version)

    module.Random.seed = seed
    module.seed = module._inst.seed


def _close_datetime(module: Any) -> None:
    # These classes are immutable, except through the dictionary itself, which the garbage collector knows.
    for kind, names in [(module.datetime, ["now", "utcnow"]), (module.date, ["today"])]:
        (members,) = gc.get_referents(kind.__dict__)
        for name in names:
            what = f"datetime.{kind.__name__}.{name}"
            members[name] = classmethod(lambda *_given, what=what, **_named: _refuse(what, _CLOCK))
    sys._clear_type_cache()
