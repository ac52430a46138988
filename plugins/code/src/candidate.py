"""Loads a program and answers calls of its functions. It follows values.py in the same file.

The first line of standard input is JSON: `prelude` (definitions of the task) and `program`. Each further line is a call:

    {"first": bool, "function": data, "args": [data…], "kwargs": {name: data}}

`first` starts a new sequence of calls: `{"ref": n}` is the result of call n of the same sequence, and `{"name": x}` a
global of the program, `{"function": "builtins.len"}` a function of Python. The first line of the output is `{"loaded": true}` or `{"loaded": false, "error": text}`; each
further line answers a call:

    {"value": data, "changed": {position or name: data}}    plain data, and the arguments that the call changed
    {"object": true}                                        anything else
    {"raised": [type and its bases], "error": text}

Expected values are never here, and nothing that this process prints is trusted: it can only answer calls.
"""

import importlib
import io
import linecache
import sys
import traceback
import types

PROGRAM = "solution.py"
# Number of innermost frames of a traceback to show, since a recursion has hundreds.
FRAMES = 4
CHANGEABLE = (list, dict, set, bytearray, collections.deque, tuple)


class Silence(io.TextIOBase):
    """Discards the program's own output."""

    def writable(self):
        return True

    def write(self, text):
        return len(text)


def explain(error):
    """Returns the error as Python prints it, with the frames of the program only."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == PROGRAM]
    lines = ["Traceback (most recent call last):\n"] if frames else []
    lines += traceback.format_list(frames[-FRAMES:])
    lines += traceback.format_exception_only(error)
    return "".join(lines).rstrip()


def load(prelude, program):
    """Returns the globals of the program."""
    module = types.ModuleType("solution")
    module.__file__ = PROGRAM
    sys.modules["solution"] = module
    # Lets tracebacks quote the program.
    linecache.cache[PROGRAM] = (len(program), None, program.splitlines(True), PROGRAM)
    exec(compile(prelude, "task.py", "exec"), module.__dict__)
    exec(compile(program, PROGRAM, "exec"), module.__dict__)
    return module.__dict__


def not_plain(value):
    raise NotPlain(f"an object of type {type(value).__name__}")


def answer(names, results, function, args, kwargs):
    """Makes one call and returns its answer."""

    def other(kind, body):
        if kind == "ref":
            return results[body]
        if kind == "name" and body in names:
            return names[body]
        if kind == "name":
            raise NameError(f"name {body!r} is not defined")
        if kind == "function":
            module, _, name = body.partition(".")
            return getattr(importlib.import_module(module), name)
        raise NotPlain("invalid data")

    try:
        results.append(None)
        callee = decode(function, other)
        args = [decode(item, other) for item in args]
        kwargs = {name: decode(item, other) for name, item in kwargs.items()}
        given = {**dict(enumerate(args)), **kwargs}
        before = {place: encoded(item) for place, item in given.items() if isinstance(item, CHANGEABLE)}
        result = callee(*args, **kwargs)
        results[-1] = result
        if isinstance(callee, type) and type(result) is callee and callee.__module__ != "builtins":
            return {"object": True}
        try:
            value = encode(result, not_plain)
        except NotPlain:
            return {"object": True}
        after = {place: encoded(given[place]) for place in before}
        return {"value": value, "changed": {place: after[place] for place in after if after[place] != before[place]}}
    except MemoryError:
        raise
    except BaseException as error:
        bases = [base.__name__ for base in type(error).__mro__ if issubclass(base, Exception)]
        return {"raised": bases or ["SystemExit"], "error": explain(error)}


def encoded(value):
    """Returns the value as JSON data, or None if it isn't plain."""
    try:
        return encode(value, not_plain)
    except NotPlain:
        return None


def main():
    lines, out = sys.stdin, sys.stdout
    sys.stdin, sys.stdout = io.StringIO(), Silence()

    def reply(data):
        # The program may have written part of a line.
        out.write("\n" + to_text(data) + "\n")
        out.flush()

    job = json.loads(lines.readline())
    try:
        names = load(**job)
    except MemoryError:
        raise
    except BaseException as error:
        reply({"loaded": False, "error": explain(error)})
        return
    reply({"loaded": True})
    results = []
    for line in lines:
        call = json.loads(line)
        if call.pop("first"):
            results = []
        reply(answer(names, results, **call))


main()
