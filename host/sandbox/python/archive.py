"""Modules that are part of the component but not yet imported, as compressed bytecode.

Importing all of the standard library and sympy would triple the initial memory of each job. Without the rest, `import`
would fail in programs that work elsewhere.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import marshal
import os
import sys
import zlib

# Modules that need a display, a terminal, processes or a package index; and tests.
SKIPPED = {
    "curses", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tests", "tkinter", "turtledemo", "venv",
    "__pycache__", "site-packages", "testing", "benchmarks", "config",
}
SKIPPED_ROOTS = {"isympy", "turtle", "antigravity", "this"}

# Name -> (is a package, compressed bytecode).
MODULES = {}


class Importer(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads the modules in `MODULES`."""

    def find_spec(self, name, path=None, target=None):
        if name not in MODULES:
            return None
        is_package = MODULES[name][0]
        return importlib.machinery.ModuleSpec(name, self, origin="archive", is_package=is_package)

    def get_code(self, name):
        return marshal.loads(zlib.decompress(MODULES[name][1]))

    def get_source(self, name):
        return None

    def is_package(self, name):
        return MODULES[name][0]


def install():
    """Reads the standard library and the packages next to sympy, and serves them from memory afterwards."""
    # The module os is compiled into the interpreter and has no file.
    library = os.path.dirname(importlib.util.find_spec("argparse").origin)
    packages = os.path.dirname(os.path.dirname(importlib.util.find_spec("sympy").origin))
    for root in (library, packages):
        collect(root, "")
    sys.meta_path.append(Importer())


def collect(folder, prefix):
    """Compiles the modules of a folder and of the packages in it."""
    for entry in sorted(os.listdir(folder)):
        path = os.path.join(folder, entry)
        stem, extension = os.path.splitext(entry)
        if extension == ".py" and stem != "__init__":
            if prefix or stem not in SKIPPED_ROOTS:
                add(prefix + stem, path, False)
        elif os.path.isdir(path) and entry not in SKIPPED and entry.isidentifier():
            init = os.path.join(path, "__init__.py")
            if os.path.exists(init):
                add(prefix + entry, init, True)
                collect(path, prefix + entry + ".")


def add(name, path, is_package):
    """Stores a module, unless its source is not valid in this version of Python."""
    if name in MODULES:
        return
    with open(path, "rb") as file:
        source = file.read()
    try:
        # Without docstrings, which are a third of sympy.
        code = compile(source, name.replace(".", "/") + ".py", "exec", dont_inherit=True, optimize=2)
    except (SyntaxError, ValueError):
        return
    MODULES[name] = (is_package, zlib.compress(marshal.dumps(code), 9))


def drop_imported():
    """Removes modules that have been imported in the meantime."""
    for name in list(MODULES):
        if name in sys.modules:
            del MODULES[name]
