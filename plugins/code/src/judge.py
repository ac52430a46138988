"""Runs the tests of a task without the program. It follows values.py in the same file.

A call of the program is looked up among the calls that the program has answered in other processes. One that is not there
is recorded, and the tests go on with a stand-in for its result as long as nothing depends on it. So one pass finds all calls
that don't depend on each other's results, and the pass that finds every answer decides.

Standard input is JSON: `prelude` (definitions of the task), `names` (globals of the program that hide the prelude's and
Python's own), `tests` (Python code whose assert statements are counted), `seed` (of the tests' random numbers) and
`sequences`: a list of `{"calls": [call…], "answers": [answer…]}`, see candidate.py. The last line of the output is JSON:

    {"total": n, "wanted": [[call…]…]}                                                     calls to be answered
    {"total": n, "held": n, "failure": null or {"assert": n or null, "type": name, "cause": [sequence, call] or null}}

`wanted` are sequences of calls: a call whose arguments hold results that are no plain data comes after the calls that
returned them. The output has neither tests nor expected values.

An object of the program decides itself what its operators and methods return, so it could hold any test. Tests may give
arguments to operators and methods of an object only if they made it themselves, by calling a class: a name in CapWords.
Everything else may be read without arguments, and called as a function, since the tests then compare plain data. Of such an
object, tests learn neither its type nor its identity nor which attributes it has, except that it isn't None: it is of no
type that they know, so it would hold every test that a result is something else.
"""

import ast
import builtins
import importlib
import io
import operator
import random
import sys
import types

# Calls that one pass records at most; the next pass goes on from there.
MAX_WANTED = 256
# Calls of one sequence, so of one object and all that it was made of.
MAX_SEQUENCE = 512


class Pending(BaseException):
    """The tests need a result that isn't there yet. No test can catch it as an Exception."""


class Full(BaseException):
    """The pass has recorded as many calls as it may."""


class Call:
    """A call of the program. Arguments hold other calls of the same sequence."""

    def __init__(self, recorder, function, args, kwargs):
        self.serial = recorder.serial
        recorder.serial += 1
        inner = []

        def other(value):
            if isinstance(value, Global):
                return {"name": value.__dict__["name"]}
            if isinstance(value, Result):
                inner.append(value.__dict__["call"])
                # It gets its number when the sequence is written.
                return {"ref": Reference(inner[-1])}
            if isinstance(value, (type, types.BuiltinFunctionType)) and value.__module__ in ("builtins", "_operator", "math"):
                return {"function": f"{value.__module__}.{value.__name__}"}
            raise NotPlain(f"an object of type {type(value).__name__}")

        self.data = {
            "function": encode(function, other),
            "args": [encode(item, other) for item in args],
            "kwargs": {name: encode(item, other) for name, item in kwargs.items()},
        }
        sequences = {id(call.sequence): call.sequence for call in inner}
        merged = [call for sequence in sequences.values() for call in sequence] + [self]
        if len(merged) > MAX_SEQUENCE:
            raise NotPlain(f"more than {MAX_SEQUENCE} calls that depend on each other")
        merged.sort(key=lambda call: call.serial)
        for call in merged:
            call.sequence = merged

    def written(self):
        """Returns the calls of the sequence up to this one, as JSON data."""
        numbers = {call.serial: number for number, call in enumerate(self.sequence)}
        return [resolve(call.data, numbers) for call in self.sequence]


class Reference:
    """A reference to a call, before its number is known."""

    def __init__(self, call):
        self.call = call


def resolve(data, numbers):
    """Replaces references by numbers."""
    if isinstance(data, Reference):
        return numbers[data.call.serial]
    if isinstance(data, list):
        return [resolve(item, numbers) for item in data]
    if isinstance(data, dict):
        return {key: resolve(item, numbers) for key, item in data.items()}
    return data


class Recorder:
    """The calls of one pass, and the answers of earlier rounds."""

    def __init__(self, sequences):
        self.serial = 0
        self.wanted = {}
        self.answers = {}
        for number, sequence in enumerate(sequences):
            calls = sequence["calls"]
            for position, answer in enumerate(sequence["answers"]):
                self.answers.setdefault(to_text(calls[: position + 1]), (answer, [number, position]))

    def call(self, function, args, kwargs):
        """Returns the result of a call, or a stand-in for it; raises what the call raised."""
        call = Call(self, function, args, kwargs)
        calls = call.written()
        answer, place = self.answers.get(to_text(calls), (None, None))
        if answer is None:
            self.wanted[to_text(calls)] = calls
            if len(self.wanted) >= MAX_WANTED:
                raise Full
            return Result(self, call, False, role(function, args))
        if "raised" in answer:
            raise exception(answer["raised"], place)
        if "value" not in answer:
            return Result(self, call, True, role(function, args))
        try:
            value = decode(answer["value"], invalid)
            for name, data in answer["changed"].items():
                given = args[int(name)] if name.isdecimal() else kwargs[name]
                changed(given, decode(data, invalid))
        except Exception:
            raise exception(["TypeError"], place) from None
        return value

    def longest(self):
        """Returns the wanted sequences that aren't the beginning of another."""
        beginnings = {to_text(calls[:end]) for calls in self.wanted.values() for end in range(1, len(calls))}
        return [calls for text, calls in self.wanted.items() if text not in beginnings]


def invalid(*_):
    raise NotPlain("invalid data")


def exception(names, place):
    """Returns the built-in exception nearest to the one that the program raised. Exceptions that end an iteration would
    change the tests' own loops."""
    error = RuntimeError()
    for name in names:
        known = getattr(builtins, name, None) if isinstance(name, str) else None
        if isinstance(known, type) and issubclass(known, Exception):
            if not issubclass(known, (StopIteration, StopAsyncIteration)):
                error = known.__new__(known)
            break
    error.place = place
    return error


def change(given, new):
    """Makes `given` equal to `new` in place, so that the tests see what a call did to its argument."""
    if isinstance(given, list):
        for index, (old, item) in enumerate(zip(given, new)):
            new[index] = changed(old, item)
        given[:] = new
    elif isinstance(given, dict):
        new = {key: changed(given.get(key), item) for key, item in new.items()}
        given.clear()
        given.update(new)
    elif isinstance(given, set):
        given.clear()
        given.update(new)
    elif isinstance(given, bytearray):
        given[:] = new
    elif isinstance(given, collections.deque):
        given.clear()
        given.extend(new)
    elif isinstance(given, tuple):
        for old, item in zip(given, new):
            changed(old, item)


def changed(old, new):
    """Returns the old container with the content of the new one if they have one type, else the new one."""
    if type(old) is not type(new) or not isinstance(old, (list, dict, set, bytearray, collections.deque, tuple)):
        return new
    change(old, new)
    return old


# An object that the tests made, its attributes, and their attributes.
OBJECT, MEMBER, INNER = "object", "member", "inner"
# What a function or a method returned, and its attributes.
RETURNED, ATTRIBUTE = "returned", "attribute"

ROLES_OF_ATTRIBUTES = {OBJECT: MEMBER, MEMBER: INNER, INNER: INNER, RETURNED: ATTRIBUTE, ATTRIBUTE: ATTRIBUTE}
# Results that may be called with arguments.
FUNCTIONS = (OBJECT, MEMBER, RETURNED)
# Results whose attributes may be set.
CHANGEABLE = (OBJECT, MEMBER, INNER)


def role(function, args):
    """Returns the role of the result of a call. It depends on the tests alone."""
    if isinstance(function, Global):
        return OBJECT if function.__dict__["is_class"] else RETURNED
    if function is not getattr:
        return RETURNED
    owner = args[0].__dict__
    if isinstance(args[0], Global):
        return MEMBER if owner["is_class"] else ATTRIBUTE
    return ROLES_OF_ATTRIBUTES[owner["role"]]


class Global:
    """A global name of the program."""

    def __init__(self, recorder, name):
        bare = name.lstrip("_")
        self.__dict__.update(recorder=recorder, name=name, is_class=bare[:1].isupper() and "_" not in bare)

    def __call__(self, *args, **kwargs):
        return self.__dict__["recorder"].call(self, args, kwargs)

    def __getattr__(self, name):
        return attribute(self, name)


class Result:
    """A result that isn't there yet, or that isn't plain data. Calls that get it as an argument, and calls of methods of an
    object that the tests made, are recorded; nothing else may be done with a result that isn't there yet."""

    def __init__(self, recorder, call, known, role):
        self.__dict__.update(recorder=recorder, call=call, known=known, role=role)

    def __call__(self, *args, **kwargs):
        if args or kwargs:
            allow(self, FUNCTIONS, "call")
        return self.__dict__["recorder"].call(self, args, kwargs)

    def __getattr__(self, name):
        if self.__dict__["role"] not in CHANGEABLE:
            # The method of a result that turns out to be plain data is no business of the program.
            known(self)
        return attribute(self, name)

    def __setattr__(self, name, value):
        allow(self, CHANGEABLE, "setattr")
        self.__dict__["recorder"].call(setattr, (self, name, value), {})

    def __delattr__(self, name):
        allow(self, CHANGEABLE, "delattr")
        self.__dict__["recorder"].call(delattr, (self, name), {})

    def __eq__(self, other):
        known(self)
        known(other)
        if self is other:
            return True
        if other is not None:
            for value in (self, other):
                comparable(value)
        return False

    def __hash__(self):
        comparable(self)
        return object.__hash__(self)

    def __iter__(self):
        known(self)
        return iter(known(self.__dict__["recorder"].call(list, (self,), {})))


def attribute(owner, name):
    """Returns an attribute of an object of the program. Special ones are none: copying and pickling would look for them."""
    if name.startswith("__"):
        known(owner)
        raise AttributeError(name)
    return owner.__dict__["recorder"].call(getattr, (owner, name), {})


def known(value):
    """Returns the value. Raises Pending if it isn't there yet."""
    if isinstance(value, Result) and not value.__dict__["known"]:
        raise Pending
    return value


def allow(result, roles, name):
    """Raises TypeError if a result has none of the roles, and Pending if it isn't there yet and may have none."""
    if result.__dict__["role"] not in roles:
        known(result)
        raise TypeError(name)


def comparable(value):
    """Raises TypeError unless the value is an object that the tests made. No other one equals or differs from anything."""
    known(value)
    if not isinstance(value, Result):
        raise TypeError("eq")
    allow(value, (OBJECT,), "eq")


def own(value):
    """Returns the value. Raises TypeError if it is an object that the tests did not make. One that isn't there yet decides
    nothing."""
    if isinstance(value, Result) and value.__dict__["known"]:
        allow(value, (OBJECT,), "type")
    return value


def operation(function):
    """Returns a method that applies `function` in the process of the program, where the object is."""

    def method(self, *args):
        known(self)
        if args:
            allow(self, (OBJECT,), function.__name__)
        return known(self.__dict__["recorder"].call(function, (self, *args), {}))

    return method


def refused(name):
    """Returns a method that no object of the program has."""

    def method(self, *args):
        known(self)
        for item in args:
            known(item)
        raise TypeError(name)

    return method


OPERATIONS = {
    "len": len, "next": next, "str": str, "repr": repr, "bool": bool, "int": int, "float": float, "format": format,
    "getitem": operator.getitem, "setitem": operator.setitem, "delitem": operator.delitem, "contains": operator.contains,
}
REFUSED = """
lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod divmod rdivmod pow rpow matmul rmatmul
lshift rlshift rshift rrshift and rand or ror xor rxor neg pos invert abs round trunc floor ceil index complex bytes
reversed enter exit copy deepcopy reduce_ex fspath
""".split()
for name, function in OPERATIONS.items():
    setattr(Result, f"__{name}__", operation(function))
for name in REFUSED:
    setattr(Result, f"__{name}__", refused(name))


# Functions that tell of their first argument what only the type or the identity of an object says.
INSPECTIONS = ("callable", "dir", "hasattr", "id", "isinstance", "type", "vars")
# Attributes that do.
INSPECTED = ("__class__", "__dict__")


def owned(node):
    """Returns the expression, as one that refuses objects that the tests did not make."""
    return ast.Call(ast.Name("__own__", ast.Load()), [node], [])


def is_none(node):
    return isinstance(node, ast.Constant) and node.value is None


class Tests(ast.NodeTransformer):
    """Makes every assert statement report its result, and lets the tests continue after a failure or without a result. Refuses
    to inspect objects that the tests did not make."""

    def __init__(self):
        self.total = 0
        self.called = set()
        self.owners = set()

    def visit_Assert(self, node):
        self.generic_visit(node)
        index = self.total
        self.total += 1
        held, failed, pending = ast.parse(f"__held__({index})\n__failed__({index})\npass").body
        handlers = [
            ast.ExceptHandler(ast.Name("__Pending__", ast.Load()), None, [pending]),
            ast.ExceptHandler(ast.Name("__Exception__", ast.Load()), None, [failed]),
        ]
        return ast.Try([node], handlers, [held], [])

    def visit_Call(self, node):
        if isinstance(node.func, ast.Name):
            self.called.add(node.func.id)
        self.generic_visit(node)
        inspects = isinstance(node.func, ast.Name) and node.func.id in INSPECTIONS
        if inspects and node.args and not isinstance(node.args[0], ast.Starred):
            node.args[0] = owned(node.args[0])
        return node

    def visit_Attribute(self, node):
        if isinstance(node.value, ast.Name):
            self.owners.add(node.value.id)
        self.generic_visit(node)
        if node.attr in INSPECTED:
            node.value = owned(node.value)
        return node

    def visit_Compare(self, node):
        self.generic_visit(node)
        operands = [node.left, *node.comparators]
        for place, compared in enumerate(node.ops):
            pair = operands[place : place + 2]
            if isinstance(compared, (ast.Is, ast.IsNot)) and not any(map(is_none, pair)):
                operands[place : place + 2] = map(owned, pair)
        node.left, *node.comparators = operands
        return node


class Namespace(dict):
    """Globals of the tests. A name that nobody defines is the program's; a module that the tests use without an import is
    the library's."""

    def __missing__(self, name):
        if name.startswith("__") or hasattr(builtins, name):
            raise KeyError(name)
        tests = self["__tests__"]
        if name in sys.stdlib_module_names and name in tests.owners and name not in tests.called:
            return importlib.import_module(name)
        return Global(self["__recorder__"], name)


def judge(prelude, names, tests, seed, sequences):
    """Returns the last line of output as a dictionary."""
    counted = Tests()
    tree = ast.fix_missing_locations(counted.visit(ast.parse(tests)))
    recorder = Recorder(sequences)
    held, failed = set(), {}

    def failure(index, error):
        return {"assert": index, "type": type(error).__name__, "cause": getattr(error, "place", None)}

    def fail(index):
        failed.setdefault(index, failure(index, sys.exception()))

    namespace = Namespace(__name__="tests", __tests__=counted, __recorder__=recorder)
    random.seed(seed)
    exec(compile(prelude, "task.py", "exec"), namespace)
    namespace.update((name, Global(recorder, name)) for name in names)
    namespace.update(__held__=held.add, __failed__=fail, __own__=own, __Pending__=Pending, __Exception__=Exception)
    broken = None
    try:
        exec(compile(tree, "tests.py", "exec"), namespace)
    except (Pending, Full):
        pass
    except (Exception, SystemExit) as error:
        broken = failure(None, error)
    if recorder.wanted:
        return {"total": counted.total, "wanted": recorder.longest()}
    held -= failed.keys()
    first = failed[min(failed)] if failed else broken
    if first is None:
        # An assert that the tests did not need to reach has not failed.
        return {"total": counted.total, "held": counted.total, "failure": None}
    # If the tests broke off between two asserts, all asserts until then may have held.
    return {"total": counted.total, "held": min(len(held), max(counted.total - 1, 0)), "failure": first}


def main():
    job = json.loads(sys.stdin.read())
    out, sys.stdout = sys.stdout, io.StringIO()
    report = judge(**job)
    out.write("\n" + to_text(report) + "\n")
    out.flush()


main()
