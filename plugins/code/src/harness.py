"""Runs a program, then the tests of its task, and says how many held.

Standard input is JSON: `prelude` (what the task itself defines), `program`, `tests` (Python; its assert statements
are what is counted), `shown` (how many of the first asserts may be quoted to the program's author) and `key`. The
last line of standard output is JSON:

    {"key": …, "ran": bool, "held": n, "total": n, "error": text or null}

Without the key, which is read before the program starts, nothing on standard output counts: a program that ends the
process early has passed nothing.
"""

import ast
import io
import json
import linecache
import sys
import traceback
import types

PROGRAM = "solution.py"
# Frames of a traceback: the innermost ones, since a recursion has hundreds.
FRAMES = 4


class Silence(io.TextIOBase):
    """Where the program's own output goes."""

    def writable(self):
        return True

    def write(self, text):
        return len(text)


class Counted(ast.NodeTransformer):
    """Lets every assert statement report, and the tests go on after one that failed."""

    def __init__(self):
        self.statements = []

    def visit_Assert(self, node):
        index = len(self.statements)
        self.statements.append(ast.unparse(node))
        held, failed = ast.parse(f"__held__({index})\n__failed__({index})").body
        handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [failed])
        return ast.Try([node], [handler], [held], [])


def explain(error):
    """The error as Python prints it, its frames those of the program alone: tests are not quoted."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == PROGRAM]
    lines = ["Traceback (most recent call last):\n"] if frames else []
    lines += traceback.format_list(frames[-FRAMES:])
    lines += traceback.format_exception_only(error)
    return "".join(lines).rstrip()


def judge(prelude, program, tests, shown):
    """What the last line of output says, but for the key."""
    counted = Counted()
    tests = ast.fix_missing_locations(counted.visit(ast.parse(tests)))
    statements = counted.statements
    verdict = {"ran": False, "held": 0, "total": len(statements), "error": None}

    module = types.ModuleType("solution")
    module.__file__ = PROGRAM
    sys.modules["solution"] = module
    # So that tracebacks quote the program.
    linecache.cache[PROGRAM] = (len(program), None, program.splitlines(True), PROGRAM)
    exec(compile(prelude, "task.py", "exec"), module.__dict__)
    try:
        exec(compile(program, PROGRAM, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        verdict["error"] = explain(error)
        return verdict
    verdict["ran"] = True

    held, failed = set(), {}

    def fail(index):
        quoted = statements[index] if index < shown else "A hidden test failed."
        failed.setdefault(index, f"{quoted}\n{explain(sys.exception())}")

    # The tests see what the program defines, in a space of their own.
    names = {**module.__dict__, "__held__": held.add, "__failed__": fail}
    broken = None
    try:
        exec(compile(tests, "tests.py", "exec"), names)
    except (Exception, SystemExit) as error:
        broken = explain(error)
    held -= failed.keys()
    if failed or broken is not None:
        verdict["error"] = failed[min(failed)] if failed else broken
        # Where the tests broke off between two asserts, all asserts may have held until then.
        verdict["held"] = min(len(held), max(len(statements) - 1, 0))
    else:
        # An assert that the tests had no reason to reach is none that failed.
        verdict["held"] = len(statements)
    return verdict


def main():
    job = json.loads(sys.stdin.read())
    key = job.pop("key")
    out, sys.stdout = sys.stdout, Silence()
    verdict = judge(**job)
    out.write("\n" + json.dumps({"key": key, **verdict}) + "\n")
    out.flush()


main()
