"""Runs a program, then the tests of its task, and counts the asserts that hold.

Standard input is JSON: `prelude` (definitions of the task), `program`, `tests` (Python code whose assert statements are
counted), `shown` (number of leading asserts that may be quoted to the program's author) and `key`. The last line of
standard output is JSON:

    {"key": …, "ran": bool, "held": n, "total": n, "error": text or null}

Output without the key, which is read before the program starts, is ignored: a program that ends the process early
passes nothing.
"""

import ast
import io
import json
import linecache
import sys
import traceback
import types

PROGRAM = "solution.py"
# Number of innermost frames of a traceback to show, since a recursion has hundreds.
FRAMES = 4


class Silence(io.TextIOBase):
    """Discards the program's own output."""

    def writable(self):
        return True

    def write(self, text):
        return len(text)


class Counted(ast.NodeTransformer):
    """Makes every assert statement report its result, and lets the tests continue after a failure."""

    def __init__(self):
        self.statements = []

    def visit_Assert(self, node):
        index = len(self.statements)
        self.statements.append(ast.unparse(node))
        held, failed = ast.parse(f"__held__({index})\n__failed__({index})").body
        handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [failed])
        return ast.Try([node], [handler], [held], [])


def explain(error):
    """Returns the error as Python prints it, with the frames of the program only: tests are not quoted."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == PROGRAM]
    lines = ["Traceback (most recent call last):\n"] if frames else []
    lines += traceback.format_list(frames[-FRAMES:])
    lines += traceback.format_exception_only(error)
    return "".join(lines).rstrip()


def judge(prelude, program, tests, shown):
    """Returns the last line of output as a dictionary, without the key."""
    counted = Counted()
    tests = ast.fix_missing_locations(counted.visit(ast.parse(tests)))
    statements = counted.statements
    verdict = {"ran": False, "held": 0, "total": len(statements), "error": None}

    module = types.ModuleType("solution")
    module.__file__ = PROGRAM
    sys.modules["solution"] = module
    # Lets tracebacks quote the program.
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

    # The tests have the program's definitions in a separate namespace.
    names = {**module.__dict__, "__held__": held.add, "__failed__": fail}
    broken = None
    try:
        exec(compile(tests, "tests.py", "exec"), names)
    except (Exception, SystemExit) as error:
        broken = explain(error)
    held -= failed.keys()
    if failed or broken is not None:
        verdict["error"] = failed[min(failed)] if failed else broken
        # If the tests broke off between two asserts, all asserts until then may have held.
        verdict["held"] = min(len(held), max(len(statements) - 1, 0))
    else:
        # An assert that the tests did not need to reach has not failed.
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
