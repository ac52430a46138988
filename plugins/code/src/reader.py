"""Reads assert statements that a model wrote, as data. It follows values.py in the same file.

Nothing of them is executed: a statement compares one call of a function under test with one literal, or it isn't read.
Standard input is JSON: `functions` (what may be called, "name" or "Class().method") and `asserts` (a list of texts). The last
line of the output is a JSON list with null for what isn't read, and for each other text:

    {"calls": [call…], "expected": data, "input": text, "output": text}    calls as in candidate.py, the last one's result counts
"""

import ast
import sys


def read(text, functions):
    """Returns one assert statement as data."""
    (statement,) = ast.parse(text.strip()).body
    if not isinstance(statement, ast.Assert):
        raise NotPlain("no assert statement")
    test = statement.test
    expected = ast.Constant(True)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.Is)):
        test, expected = test.left, test.comparators[0]
        if not isinstance(test, ast.Call):
            test, expected = expected, test
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, expected = test.operand, ast.Constant(False)
    if not isinstance(test, ast.Call) or ast.unparse(test.func) not in functions:
        raise NotPlain("no call of the function")
    return {
        "calls": calls(test),
        "expected": literal(expected),
        "input": ast.unparse(test),
        "output": ast.unparse(expected),
    }


def calls(node):
    """Returns a call of a function or method with its arguments."""
    args = [literal(item) for item in node.args]
    kwargs = {item.arg: literal(item.value) for item in node.keywords}
    if None in kwargs or len(kwargs) < len(node.keywords):
        raise NotPlain("arguments in a dictionary, or twice")
    if isinstance(node.func, ast.Name):
        return [call({"name": node.func.id}, args, kwargs)]
    owner = node.func.value.func.id
    method = call({"function": "builtins.getattr"}, [{"ref": 0}, node.func.attr], {})
    return [call({"name": owner}, [], {}), method, call({"ref": 1}, args, kwargs)]


def call(function, args, kwargs):
    return {"function": function, "args": args, "kwargs": kwargs}


def literal(node):
    return encode(ast.literal_eval(node), not_plain)


def not_plain(value):
    raise NotPlain(type(value).__name__)


def read_or_none(text, functions):
    try:
        test = read(text, functions)
        # Half a surrogate pair is no text in JSON.
        json.dumps(test, ensure_ascii=False).encode()
        return test
    except (NotPlain, SyntaxError, ValueError, TypeError, AttributeError, RecursionError, MemoryError):
        return None


def main():
    job = json.loads(sys.stdin.read())
    print(to_text([read_or_none(text, job["functions"]) for text in job["asserts"]]))


main()
