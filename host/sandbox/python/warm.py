"""Imports for the snapshot: the modules that programs commonly import, and those that sympy imports at first use."""

import importlib
import sys
import types

import archive

# The archive serves all other modules.
COMMON = """
abc argparse array ast base64 bisect calendar cmath collections collections.abc contextlib copy csv dataclasses
datetime decimal enum fractions functools hashlib heapq inspect io itertools json keyword locale math numbers
operator os pathlib pprint queue random re secrets shutil statistics string struct sys tempfile textwrap threading
time timeit traceback types typing unicodedata unittest uuid warnings weakref zlib
encodings.ascii encodings.cp1252 encodings.idna encodings.latin_1 encodings.utf_16 encodings.utf_8_sig
""".split()


def warm_up():
    """Imports modules and runs common computations, so that lazy imports and tables are in the snapshot."""
    for name in COMMON:
        importlib.import_module(name)
    datetime = importlib.import_module("datetime")
    # strptime has a lazy import in its C module.
    datetime.datetime.strptime("2024-02-29", "%Y-%m-%d")
    warm_up_sympy()
    archive.drop_imported()


def import_sympy():
    """Imports sympy with a stand-in for ctypes, which does not exist here: sympy only needs the size of a C long."""
    ctypes = types.ModuleType("ctypes")
    ctypes.c_long = "long"
    ctypes.sizeof = lambda _: 4
    sys.modules["ctypes"] = ctypes
    import sympy
    import sympy.parsing.sympy_parser

    del sys.modules["ctypes"]
    return sympy


def warm_up_sympy():
    sympy = import_sympy()
    from sympy.core.cache import clear_cache
    from sympy.parsing.sympy_parser import parse_expr

    x, y = sympy.symbols("x y")
    n = sympy.symbols("n", integer=True, positive=True)
    f = sympy.Function("f")
    sympy.solve(x**2 - 2 * x - 3, x)
    sympy.solve([x + y - 3, x - y - 1], [x, y])
    sympy.solve(x**2 < 4, x)
    sympy.solveset(sympy.sin(x) - 1, x, sympy.S.Reals)
    sympy.nsolve(x**3 - 2, x, 1)
    sympy.linsolve([x + y - 3, x - y - 1], x, y)
    sympy.simplify(sympy.sin(x) ** 2 + sympy.cos(x) ** 2)
    sympy.integrate(x * sympy.exp(x), x)
    sympy.integrate(sympy.exp(-x**2), (x, -sympy.oo, sympy.oo))
    sympy.diff(sympy.log(x) * x, x)
    sympy.limit(sympy.sin(x) / x, x, 0)
    sympy.series(sympy.exp(x), x, 0, 4)
    sympy.summation(n**2, (n, 1, x))
    sympy.factor(x**4 - 1)
    sympy.apart(1 / (x**2 - 1))
    sympy.Matrix([[1, 2], [3, 4]]).eigenvals()
    sympy.dsolve(f(x).diff(x) - f(x), f(x))
    sympy.factorint(360360)
    sympy.diophantine(3 * x + 5 * y - 1)
    sympy.Rational(1, 3).evalf(30)
    parse_expr("2*x + 1/3")
    sympy.latex(sympy.sqrt(x) / 2)
    sympy.pretty(sympy.sqrt(x) / 2)
    sympy.lambdify(x, x**2)(3)
    sympy.geometry.Point(0, 0).distance(sympy.geometry.Point(3, 4))
    clear_cache()
