"""Pairs of answers with the verdicts of math-verify, for the test of the maths grader.

    python3 -m venv venv && venv/bin/pip install math-verify
    venv/bin/python tests/conformance/grader.py [--seed 7] [--cases 1500] [--out tests/conformance/grader/math_verify.json]

All answers are made here: by generators of one kind of answer each, and by rewrites of any answer, some of which keep its
value and some of which spoil it. `verify` decides; what a rewrite intended plays no part.

Left out are pairs that `parse` cannot read, and forms on which math-verify 0.9.0 goes wrong by accident, found where the
grader disagreed: the imaginary unit beside `\\cdot` or upright (it becomes another symbol), a space after a unit at the
end of a formula, units without `\\text` and after `~`, units of one letter that are also names, `\\text{percent}` after
decimals, percent signs and dollars within `\\text`, braces around a whole answer, a full stop within a formula, `\\colon`,
`\\langle`, `\\big`, `\\lbrace`, `Bmatrix`, `\\dots`, `√`, `±` within fractions, `5 > x > 3` beside `3 < x < 5`, `2x < 6`
beside `x < 3`. Two deliberate differences are left out as well: digits in different bases are different numbers, and
`1e5` is a number.
"""

import argparse
import json
import logging
import random
import re
from pathlib import Path

logging.disable(logging.CRITICAL)


# --- Pieces of answers -------------------------------------------------------------------------------------------------


def integer(r, low=-60, high=60):
    return r.randint(low, high)


def proper(r):
    """A reduced fraction that is not whole: numerator, denominator."""
    from math import gcd

    while True:
        top, bottom = r.randint(1, 40), r.randint(2, 30)
        if gcd(top, bottom) == 1:
            return top, bottom


def fraction(r, top, bottom):
    return r.choice([rf"\frac{{{top}}}{{{bottom}}}", rf"\dfrac{{{top}}}{{{bottom}}}", rf"\tfrac{{{top}}}{{{bottom}}}", f"{top}/{bottom}"])


def number(r):
    """A short real number in LaTeX."""
    kind = r.randrange(6)
    if kind <= 2:
        return str(integer(r))
    if kind == 3:
        top, bottom = proper(r)
        return r.choice(["", "-"]) + rf"\frac{{{top}}}{{{bottom}}}"
    if kind == 4:
        return rf"{r.choice(['', '-', '2', '3'])}\sqrt{{{r.choice([2, 3, 5, 6, 7, 10])}}}"
    return r.choice([r"\pi", r"2\pi", r"\frac{\pi}{3}", "0.5", "1.25", "e", r"1+\sqrt{2}"])


def column(items):
    return r"\begin{pmatrix}" + r"\\".join(items) + r"\end{pmatrix}"


def shuffled(r, items):
    items = list(items)
    r.shuffle(items)
    return items


# --- Generators: an answer, and others that are, or are nearly, the same ------------------------------------------------


def whole_numbers(r):
    n = r.choice([r.randint(0, 20), r.randint(100, 999), r.randint(1000, 9_999_999)])
    grouped = f"{n:,}"
    return str(n), [
        f"{n}.0", f"{n}.00", grouped, grouped.replace(",", "{,}"), grouped.replace(",", r",\!"), f"-{n}", f"+{n}", str(n + 1),
        f"{n}0", rf"\${n}", rf"{n}^\circ", rf"{n}\text{{ cm}}", rf"{n}\ \mathrm{{cm}}^2", f"x={n}", rf"\approx {n}", f"{n}!",
        rf"{n}\%", rf"{n} \text{{ dollars}}", f"{n} units", rf"\text{{{n}}}", rf"{n}_{{10}}", rf"{n}_{{8}}", f"0{n}", rf"2 \cdot {n}",
        rf"\frac{{{2 * n}}}{{2}}", rf"\sqrt{{{n * n}}}", f"{n / 10}", rf"{n // 2}+{n - n // 2}", f"({n})", rf"\{{{n}\}}", f"[{n}]",
        rf"\mathbf{{{n}}}", f"{n},000", rf"{n} \times 10^3", rf"\left|-{n}\right|",
    ]


def fractions(r):
    top, bottom = proper(r)
    value = top / bottom
    sign = r.choice(["", "-"])
    answers = [
        rf"{sign}\dfrac{{{top}}}{{{bottom}}}", f"{sign}{top}/{bottom}", rf"\frac{{{sign}{top}}}{{{bottom}}}", rf"{sign}\frac{{{2 * top}}}{{{2 * bottom}}}",
        f"{sign}{value:.8f}", f"{sign}{value:.6f}", f"{sign}{value:.4f}", f"{sign}{value:.2f}", rf"{sign}\frac{{{bottom}}}{{{top}}}",
        rf"{sign}\frac{{{top + 1}}}{{{bottom}}}", rf"{sign}{top} \div {bottom}", rf"{sign}{top}:{bottom}", rf"{sign}\frac{{{top}}}{{{bottom}}}\text{{ meters}}",
        rf"{sign}{top}\cdot\frac{{1}}{{{bottom}}}", rf"x={sign}\frac{{{top}}}{{{bottom}}}", rf"{sign}\frac{{{top}\pi}}{{{bottom}}}",
        rf"{sign}{value * 100:.2f}\%", rf"{sign}\frac {{{top}}} {{{bottom}}}", rf"{sign}{{{top} \over {bottom}}}",
    ]
    if top < 10 and bottom < 10:
        answers += [rf"{sign}\frac{top}{bottom}", rf"{sign}\frac{top}{{{bottom}}}", rf"{sign}\tfrac{{{top}}}{bottom}"]
    if top > bottom:
        whole, rest = divmod(top, bottom)
        answers += [rf"{sign}{whole}\frac{{{rest}}}{{{bottom}}}", rf"{whole}+\frac{{{rest}}}{{{bottom}}}", rf"{sign}{whole}\ \frac{{{rest}}}{{{bottom}}}"]
    return rf"{sign}\frac{{{top}}}{{{bottom}}}", answers


def decimals(r):
    digits = r.randint(1, 4)
    value = round(r.uniform(-50, 50), digits)
    text = f"{value:.{digits}f}"
    scaled = round(value * 10**digits)
    return text, [
        f"{text}0", rf"\frac{{{scaled}}}{{{10**digits}}}", f"{scaled}/{10**digits}", f"{value + 10**-digits:.{digits}f}", f"{value + 1e-5:.5f}", f"{value + 1e-7:.7f}",
        text.replace(".", ","), text.replace("0.", "."), rf"{text}\text{{ kg}}", rf"{text}\%", f"-{text}".replace("--", ""), rf"\approx {text}", rf"x \approx {text}",
        rf"{text} \times 10^0", rf"{text}\ldots", rf"\${text}", rf"\$ {text}", rf"{text} \text{{ m/s}}",
    ]


def percentages(r):
    n = r.choice([r.randint(1, 100), round(r.uniform(1, 100), 1)])
    return rf"{n}\%", [
        f"{n}", f"{n}%", rf"{n} \%", f"{n / 100}", rf"\frac{{{n}}}{{100}}", f"{n} percent", rf"{n + 1}\%", f"{n / 100:.3f}",
        f"{n}/100", rf"{n}.0\%",
    ]


def scientific(r):
    mantissa = r.choice([r.randint(1, 9), round(r.uniform(1, 10), 2)])
    power = r.randint(-4, 6)
    value = mantissa * 10**power
    plain = f"{value:.{max(0, 2 - power)}f}"
    return rf"{mantissa} \times 10^{{{power}}}", [
        rf"{mantissa} \cdot 10^{{{power}}}", plain, f"{mantissa}E{power}", rf"{mantissa}\times10^{{{power + 1}}}", rf"{round(mantissa * 10, 1)} \times 10^{{{power - 1}}}",
        rf"{mantissa} \times 10^({power})", rf"{mantissa}*10^{{{power}}}", rf"{mantissa} \times 10^{{{power}}} \text{{ m}}",
    ]


def radicals(r):
    outside, inside = r.randint(2, 9), r.choice([2, 3, 5, 6, 7, 10, 11, 13, 15])
    square = outside * outside * inside
    value = outside * inside**0.5
    return rf"{outside}\sqrt{{{inside}}}", [
        rf"\sqrt{{{square}}}", rf"{outside} \sqrt {inside}", rf"{outside}\cdot\sqrt{{{inside}}}", rf"\sqrt{{{inside}}}\cdot{outside}", rf"{outside}\sqrt{inside}", f"{value:.3f}", f"{value:.10f}",
        rf"{outside}\sqrt{{{inside + 1}}}", rf"{outside + 1}\sqrt{{{inside}}}", rf"-{outside}\sqrt{{{inside}}}", rf"{outside}\cdot{inside}^{{1/2}}", rf"{outside}\cdot{inside}^{{\frac{{1}}{{2}}}}",
        rf"\frac{{{outside * inside}}}{{\sqrt{{{inside}}}}}", rf"{outside}sqrt({inside})", rf"{outside}*sqrt({inside})", rf"{outside}\sqrt[3]{{{inside}}}", rf"\sqrt[4]{{{square * square}}}",
        rf"{outside}\sqrt{{{inside}}}\text{{ cm}}", rf"l={outside}\sqrt{{{inside}}}",
    ]


def surds(r):
    a, b, c, d = r.randint(1, 9), r.randint(1, 9), r.choice([2, 3, 5, 7]), r.randint(2, 9)
    value = (a + b * c**0.5) / d
    return rf"\frac{{{a}+{b}\sqrt{{{c}}}}}{{{d}}}", [
        rf"\frac{{{b}\sqrt{{{c}}}+{a}}}{{{d}}}", rf"\frac{{{a}}}{{{d}}}+\frac{{{b}\sqrt{{{c}}}}}{{{d}}}", rf"\frac{{1}}{{{d}}}({a}+{b}\sqrt{{{c}}})", rf"({a}+{b}\sqrt{{{c}}})/{d}", rf"\frac{{{a}-{b}\sqrt{{{c}}}}}{{{d}}}",
        rf"\frac{{{a}+\sqrt{{{b * b * c}}}}}{{{d}}}", rf"\frac{{{a}\pm{b}\sqrt{{{c}}}}}{{{d}}}", f"{value:.9f}", f"{value:.3f}", rf"\frac{{{a * a - b * b * c}}}{{{d}({a}-{b}\sqrt{{{c}}})}}", rf"\frac{{{a}+{b}\sqrt{{{c}}}}}{{{d + 1}}}",
    ]


def multiples_of_pi(r):
    top, bottom = proper(r)
    value = 3.141592653589793 * top / bottom
    return rf"\frac{{{top}\pi}}{{{bottom}}}", [
        rf"\frac{{{top}}}{{{bottom}}}\pi", rf"{top}\pi/{bottom}", rf"\frac{{{top} \cdot \pi}}{{{bottom}}}", rf"\pi\frac{{{top}}}{{{bottom}}}", rf"\frac{{{top}}}{{{bottom}}}", f"{value:.2f}", f"{value:.12f}", rf"\frac{{{top + 1}\pi}}{{{bottom}}}",
        rf"\frac{{\pi {top}}}{{{bottom}}}", rf"{top}π/{bottom}", rf"\frac{{{top} \pi }}{{{bottom}}} \text{{ radians}}", rf"\frac{{{top}}}{{{bottom}\pi}}",
    ]


def expressions(r):
    a, b, c, x, y = r.randint(2, 9), r.randint(1, 9), r.randint(1, 9), *shuffled(r, "xyabnk")[:2]
    return r.choice([
        (rf"{a}{x}^2+{b}{x}-{c}", [rf"{b}{x}+{a}{x}^2-{c}", rf"-{c}+{b}{x}+{a}{x}^2", rf"{a}{x}^2+{b}{x}+{c}", rf"{a}{x}^{{2}} + {b}{x} - {c}", rf"{x}({a}{x}+{b})-{c}", rf"{a}{y}^2+{b}{y}-{c}", rf"{a}*{x}^2+{b}*{x}-{c}", rf"{a}{x}^3+{b}{x}-{c}",
            rf"f({x})={a}{x}^2+{b}{x}-{c}", rf"y={a}{x}^2+{b}{x}-{c}", rf"{a}\cdot {x}^2+{b}\cdot {x}-{c}", rf"{a}{x}^2+{b}{x}-{c}=0", rf"({a}{x}^2+{b}{x}-{c})"]),
        (rf"({x}+{a})({x}-{b})", [rf"({x}-{b})({x}+{a})", rf"{x}^2+{a - b}{x}-{a * b}".replace("+-", "-"), rf"({x}+{a})({x}+{b})", rf"({x}+{a})\cdot({x}-{b})", rf"\left({x}+{a}\right)\left({x}-{b}\right)", rf"-({x}+{a})({b}-{x})", rf"({x}+{a})^2"]),
        (rf"\frac{{{x}+{a}}}{{{x}-{b}}}", [rf"({x}+{a})/({x}-{b})", rf"\frac{{{a}+{x}}}{{-{b}+{x}}}", rf"1+\frac{{{a + b}}}{{{x}-{b}}}", rf"\frac{{{x}-{b}}}{{{x}+{a}}}", rf"-\frac{{{x}+{a}}}{{{b}-{x}}}", rf"\dfrac{{{x}+{a}}}{{{x}-{b}}}"]),
        (rf"{a}{x}{y}", [rf"{a}{y}{x}", rf"{a} {x} {y}", rf"{a}\cdot {x}\cdot {y}", rf"{a}{x}+{y}", rf"{a + 1}{x}{y}", rf"{x}{y}\cdot{a}", rf"{a}{x}"]),
        (rf"{x}^{{{a}}}-{y}^{{{a}}}", [rf"-{y}^{{{a}}}+{x}^{{{a}}}", rf"{y}^{{{a}}}-{x}^{{{a}}}", rf"{x}^{a}-{y}^{a}", rf"{x}^{{{a}}}+{y}^{{{a}}}"]),
        (rf"2^{{{x}+{a}}}", [rf"{2**a}\cdot2^{{{x}}}", rf"2^{{{a}+{x}}}", rf"2^{x}+{2**a}", rf"4^{{({x}+{a})/2}}", rf"2^{{{x}}}"]),
        (rf"{x}_{{1}}+{x}_{{2}}", [rf"{x}_2+{x}_1", rf"{x}_1 + {x}_2", rf"{x}_1-{x}_2", rf"{x}+{x}", rf"2{x}"]),
        (rf"\sqrt{{{x}+{a}}}", [rf"({x}+{a})^{{1/2}}", rf"\sqrt{{{a}+{x}}}", rf"\sqrt {{{x}+{a}}}", rf"\sqrt{{{x}}}+{a}", rf"\sqrt{{{x}-{a}}}"]),
        (rf"\frac{{{a}}}{{{x}}}+\frac{{{b}}}{{{y}}}", [rf"\frac{{{a}{y}+{b}{x}}}{{{x}{y}}}", rf"\frac{{{a + b}}}{{{x}+{y}}}", rf"{a}/{x}+{b}/{y}", rf"{a}{x}^{{-1}}+{b}{y}^{{-1}}"]),
    ])


def functions(r):
    a, b, x = r.randint(2, 9), r.randint(2, 9), r.choice("xt")
    return r.choice([
        (rf"\log_{{{a}}}{{{b}}}", [rf"\log_{a} {b}", rf"\frac{{\ln {b}}}{{\ln {a}}}", rf"\frac{{\log {b}}}{{\log {a}}}", rf"\log_{b} {a}", rf"\log_{{{a}}}({b})", rf"\log_{{{a}}}\left({b}\right)", rf"\frac{{\log_{{10}}({b})}}{{\log_{{10}}({a})}}"]),
        (rf"\ln {a * b}", [rf"\ln({a * b})", rf"\ln {a} + \ln {b}", rf"\ln({a})\ln({b})", rf"\ln({a}+{b})", rf"\log {a * b}", rf"\log_e {a * b}", rf"\ln\left({a * b}\right)"]),
        (rf"\sin^2 {x}", [rf"1-\cos^2 {x}", rf"\sin^2({x})", rf"(\sin {x})^2", rf"\sin {x}^2", rf"\cos^2 {x}", rf"\frac{{1-\cos 2{x}}}{{2}}", rf"1-\cos^2({x})"]),
        (rf"\tan({a}{x})", [rf"\frac{{\sin({a}{x})}}{{\cos({a}{x})}}", rf"\tan {a}{x}", rf"\cot({a}{x})", rf"{a}\tan({x})"]),
        (rf"\sin({a}{x}+\frac{{\pi}}{{{b}}})", [rf"\sin\left(\frac{{\pi}}{{{b}}}+{a}{x}\right)", rf"\sin({a}{x}-\frac{{\pi}}{{{b}}})", rf"\cos({a}{x}+\frac{{\pi}}{{{b}}})", rf"y=\sin({a}{x}+\frac{{\pi}}{{{b}}})"]),
        (rf"{a}\cos {x}", [rf"{a}\cos({x})", rf"{a}\cdot\cos {x}", rf"\cos {a}{x}", rf"{a + 1}\cos {x}"]),
        (rf"e^{{{a}}}", [rf"\exp({a})", rf"e^{a}", rf"{2.718281828459045**a:.10f}", rf"{a}e", rf"e^{{{a}{x}}}"]),
        (rf"\arctan\frac{{{a}}}{{{b}}}", [rf"\arctan({a}/{b})", rf"\tan^{{-1}}\frac{{{a}}}{{{b}}}", rf"\arctan\left(\frac{{{a}}}{{{b}}}\right)", rf"\arctan\frac{{{b}}}{{{a}}}", rf"\operatorname{{arctan}}\frac{{{a}}}{{{b}}}"]),
        (rf"{a}^{{{b}}}", [f"{a**b}", f"{a}^{b}", f"{b}^{{{a}}}", f"{a**b + 1}", rf"{a}\cdot{a}^{{{b - 1}}}"]),
        (f"{a}!", [str([1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880][a]), f"{a + 1}!", rf"{a}\cdot({a - 1})!", str(a)]),
        (rf"\binom{{{a + b}}}{{{a}}}", [rf"\binom{{{a + b}}}{{{b}}}", rf"\frac{{{a + b}!}}{{{a}!{b}!}}", rf"\binom{{{a + b}}}{{{a - 1}}}", rf"\dbinom{{{a + b}}}{{{a}}}", rf"C_{{{a + b}}}^{{{a}}}", rf"{{{a + b} \choose {a}}}"]),
        (rf"\lfloor {a}{x} \rfloor", [rf"\left\lfloor {a}{x} \right\rfloor", rf"\lceil {a}{x} \rceil", rf"{a}{x}"]),
        (rf"|{x}-{a}|", [rf"\left|{x}-{a}\right|", rf"|{a}-{x}|", rf"{x}-{a}", rf"\lvert {x}-{a} \rvert", rf"|{x}+{a}|"]),
    ])


def complex_numbers(r):
    a, b = r.randint(1, 9), r.randint(2, 9)
    return f"{a}+{b}i", [
        f"{a} + {b}i", f"{b}i+{a}", f"{a}-{b}i", f"{a}+{b}", f"z={a}+{b}i", f"({a},{b})", rf"({a}+{b}i)", rf"{a}+i{b}", rf"{a} \pm {b}i", f"{a}+{b}j",
    ]


def tuples(r):
    items = [number(r) for _ in range(r.choice([2, 2, 2, 3, 3, 4]))]
    joined = ",".join(items)
    changed = items[:-1] + [str(integer(r))]
    names = ",".join("xyzw"[: len(items)])
    return f"({joined})", [
        f"({', '.join(items)})", rf"\left({joined}\right)", f"({','.join(reversed(items))})", f"({','.join(changed)})", joined, rf"\{{{joined}\}}", f"[{joined}]", f"({names})=({joined})", rf"\left( {', '.join(items)} \right)",
        rf"({joined})\text{{ is the point}}", f"({joined}", column(items), f"P({joined})", ";".join(items), f"({';'.join(items)})", rf"({joined},0)",
        ", ".join(f"{name}={item}" for name, item in zip("xyzw", items)), rf"\text{{the point }}({joined})",
    ]


def sets(r):
    items = [number(r) for _ in range(r.randint(2, 5))]
    other, fewer = shuffled(r, items), items[:-1]
    changed = items[:-1] + [str(integer(r))]
    plain = r.random() < 0.5
    joined = ",".join(items)
    gold = joined if plain else rf"\{{{joined}\}}"
    return gold, [
        rf"\{{{', '.join(other)}\}}", ", ".join(other), ",".join(fewer), rf"\left\{{{','.join(other)}\right\}}", " and ".join(other), r" \text{ and } ".join(other), r" \text{ or } ".join(other), ",".join(changed), f"({joined})", f"[{joined}]",
        rf"\{{{joined},{items[0]}\}}", rf"\{{{','.join(items + ['17'])}\}}", "{" + ",".join(other) + "}", "; ".join(other), ", ".join(other[:-1]) + ", and " + other[-1], ", ".join(other[:-1]) + r",\text{ and }" + other[-1],
        rf"x \in \{{{','.join(other)}\}}", ", ".join(f"x={item}" for item in other), rf"x = {', '.join(other)}", r" \text{ or } ".join(f"x={item}" for item in other), rf"\boxed{{{other[0]}}}, \boxed{{{other[-1]}}}",
        " ".join(other), rf"\{{{joined}\}}\text{{ only}}", ",\\ ".join(other), r",\quad ".join(other),
    ]


def plus_minus(r):
    a, b = integer(r, 1, 20), r.choice([2, 3, 5, 7])
    return r.choice([
        (rf"\pm {a}", [rf"{a},-{a}", rf"-{a}, {a}", rf"\{{-{a},{a}\}}", str(a), rf"x=\pm {a}", rf"\pm{a + 1}", rf"x={a}\text{{ or }}x=-{a}", rf"±{a}", rf"-{a}"]),
        (rf"{a}\pm\sqrt{{{b}}}", [rf"{a}+\sqrt{{{b}}},{a}-\sqrt{{{b}}}", rf"{a}-\sqrt{{{b}}},{a}+\sqrt{{{b}}}", rf"{a}+\sqrt{{{b}}}", rf"\{{{a}\pm\sqrt{{{b}}}\}}", rf"x={a}\pm\sqrt{{{b}}}", rf"{a}\pm\sqrt{{{b + 1}}}", rf"{a} + \sqrt{{{b}}} \text{{ and }} {a} - \sqrt{{{b}}}"]),
        (rf"\frac{{-{a}\pm\sqrt{{{b}}}}}{{2}}", [rf"\frac{{-{a}+\sqrt{{{b}}}}}{{2}},\frac{{-{a}-\sqrt{{{b}}}}}{{2}}", rf"x=\frac{{-{a}\pm\sqrt{{{b}}}}}{{2}}", rf"\frac{{-{a}\pm\sqrt{{{b}}}}}{{3}}", rf"\frac{{-{a}+\sqrt{{{b}}}}}{{2}}"]),
    ])


def intervals(r):
    low, high = sorted(r.sample(range(-20, 30), 2))
    low_text = r.choice([str(low), rf"\frac{{{2 * low + 1}}}{{2}}", r"-\infty"])
    high_text = r.choice([str(high), rf"\frac{{{2 * high + 1}}}{{2}}", r"\infty"])
    opening = "(" if "infty" in low_text else r.choice("([")
    closing = ")" if "infty" in high_text else r.choice(")]")
    flip = {"(": "[", "[": "(", ")": "]", "]": ")"}
    less = {"(": "<", "[": r"\leq"}[opening]
    below = {")": "<", "]": r"\leq"}[closing]
    inner = f"{low_text},{high_text}"
    if "infty" in low_text:
        inequality = f"x {below} {high_text}" if "infty" not in high_text else r"\mathbb{R}"
    elif "infty" in high_text:
        inequality = f"x {less.replace('<', '>').replace('leq', 'geq')} {low_text}"
    else:
        inequality = f"{low_text} {less} x {below} {high_text}"
    return f"{opening}{inner}{closing}", [
        f"{opening}{low_text}, {high_text}{closing}", rf"\left{opening}{inner}\right{closing}", f"{flip[opening]}{inner}{closing}", f"{opening}{inner}{flip[closing]}", inequality, inequality.replace("leq", "le").replace("geq", "ge"), f"{opening}{low_text},{high + 1}{closing}",
        rf"x \in {opening}{inner}{closing}", rf"x\in\left{opening}{inner}\right{closing}", rf"{opening}{inner}{closing} \cup (100,101)", inner, rf"\{{{inner}\}}", f"{opening}{inner}{closing}".replace(r"\infty", "inf"), f"{opening}{inner}{closing}".replace(r",\infty", r",+\infty"),
        f"{opening}{inner}{closing}".replace(r"\infty", "infinity"), rf"\text{{ }}{opening}{inner}{closing}", f"{opening}{inner.replace(',', ';')}{closing}", f"D = {opening}{inner}{closing}",
    ]


def unions(r):
    a, b, c, d = sorted(r.sample(range(-20, 30), 4))
    first, second = f"(-\\infty,{a})", r.choice([f"({b},\\infty)", f"[{b},{c}]", f"({c},{d}]"])
    return rf"{first}\cup{second}", [
        rf"{second}\cup{first}", rf"{first} \cup {second}", f"{first}, {second}", f"{first}", rf"{first}\cap{second}", rf"x \in {first}\cup{second}", rf"\left{first[:-1]}\right)\cup{second}", rf"{first}\cup({b},{d})", rf"{first} \text{{ or }} {second}",
        rf"(-\infty,{a}]\cup{second}", rf"{first}∪{second}", rf"x<{a} \text{{ or }} x>{b}", rf"{first}\cup {second}\cup \{{{d + 5}\}}", rf"\mathbb{{R}}\setminus[{a},{b}]", rf"x\in{second}\cup{first}", rf"{first} U {second}",
    ]


def inequalities(r):
    n, x = integer(r), r.choice("xyak")
    sign, mirrored, other = r.choice([("<", ">", r"\leq"), (">", "<", r"\geq"), (r"\leq", r"\geq", "<"), (r"\geq", r"\leq", ">")])
    short = {r"\leq": r"\le", r"\geq": r"\ge", "<": r"\lt", ">": r"\gt"}
    plain = {r"\leq": "<=", r"\geq": ">=", "<": "<", ">": ">"}
    bracket = {"<": rf"(-\infty,{n})", ">": rf"({n},\infty)", r"\leq": rf"(-\infty,{n}]", r"\geq": rf"[{n},\infty)"}[sign]
    return f"{x} {sign} {n}", [
        f"{n} {mirrored} {x}", f"{x} {mirrored} {n}", f"{x} {other} {n}", f"{x} {short[sign]} {n}", f"{x} {plain[sign]} {n}", f"-{x} {mirrored} {-n}", f"{x} {sign} {n + 1}", f"{x}-{n} {sign} 0".replace("--", "+"),
        bracket, rf"{x} \in {bracket}", str(n), f"{x} = {n}", f"{'y' if x != 'y' else 'z'} {sign} {n}", f"{x} {short[sign]}slant {n}".replace(r"\ltslant", "<").replace(r"\gtslant", ">"), rf"\{{{x} \mid {x} {sign} {n}\}}", rf"{x} {sign} {n}\text{{ or }}{x}=100", rf"{x}{sign} {n}".replace("<", "≤"),
    ]


def chains(r):
    low, high = sorted(r.sample(range(-20, 30), 2))
    x = r.choice("xyt")
    first, second = r.choice(["<", r"\leq"]), r.choice(["<", r"\leq"])
    brackets = {"<": "()", r"\leq": "[]"}
    interval = f"{brackets[first][0]}{low},{high}{brackets[second][1]}"
    return f"{low} {first} {x} {second} {high}", [
        interval, rf"{x}\in{interval}", f"{low} {first} {x} {second} {high + 1}", f"{low}{first.replace('leq', 'le')} {x}{second.replace('leq', 'le')} {high}",
        f"{low} < {x} < {high}", rf"{low} \leq {x} \leq {high}", rf"{x} {second} {high}", rf"{x} {first.replace('<', '>').replace('leq', 'geq')} {low} \text{{ and }} {x} {second} {high}", f"({low},{high})",
    ]


def equations(r):
    a, b, c = r.randint(2, 9), r.randint(1, 9), r.randint(1, 20)
    return r.choice([
        (f"y={a}x+{b}", [f"y = {a}x + {b}", f"{a}x+{b}", f"y={b}+{a}x", f"{a}x-y+{b}=0", f"y-{a}x={b}", f"y={a}x-{b}", f"f(x)={a}x+{b}", f"2y={2 * a}x+{2 * b}", f"{a}x+{b}=y", f"y-{b}={a}x", f"y={a}(x+\\frac{{{b}}}{{{a}}})"]),
        (f"{a}x+{b}y-{c}=0", [f"{a}x+{b}y={c}", f"{2 * a}x+{2 * b}y-{2 * c}=0", f"{c}-{a}x-{b}y=0", f"{a}x-{b}y-{c}=0", rf"y=-\frac{{{a}}}{{{b}}}x+\frac{{{c}}}{{{b}}}", f"{a}x+{b}y-{c}", f"{b}y+{a}x-{c}=0", f"-{a}x-{b}y+{c}=0"]),
        (f"x^2+y^2={c}", [f"y^2+x^2={c}", f"x^2+y^2-{c}=0", f"x^2-y^2={c}", f"{c}=x^2+y^2", f"(x)^2+(y)^2={c}", f"x^2+y^2={c + 1}"]),
        (rf"\frac{{x^2}}{{{a}}}+\frac{{y^2}}{{{b}}}=1", [rf"\frac{{y^2}}{{{b}}}+\frac{{x^2}}{{{a}}}=1", f"{b}x^2+{a}y^2={a * b}", rf"\frac{{x^2}}{{{b}}}+\frac{{y^2}}{{{a}}}=1", rf"\frac{{x^2}}{{{a}}}-\frac{{y^2}}{{{b}}}=1", rf"\dfrac{{x^{{2}}}}{{{a}}}+\dfrac{{y^{{2}}}}{{{b}}}=1"]),
        (f"x={a}", [f"{a}", f"x = {a}", f"{a}=x", f"y={a}", f"x={a + 1}", f"x-{a}=0", rf"x={a},y={b}", rf"x=\frac{{{2 * a}}}{{2}}", rf"x = {a}\text{{ cm}}", rf"x={a}.0", f"x_1={a}", rf"t = {a}"]),
        (f"x={a},y={b}", [f"({a},{b})", f"x={a}, y={b}", f"y={b},x={a}", f"{a},{b}", rf"x={a}\text{{ and }}y={b}", f"x={b},y={a}", f"(x,y)=({a},{b})", f"x={a};y={b}", rf"\{{{a},{b}\}}", f"({b},{a})", rf"x={a},\ y={b}", rf"x={a},\quad y={b}"]),
        (f"a={a}", [rf"a = {a}", rf"{a}", rf"A={a}", rf"a_1={a}", rf"a=b={a}", rf"a = {a - 1} + 1 = {a}", rf"a \approx {a}", rf"a = {a}."]),
        (f"AB={a}", [f"{a}", f"CD={a}", f"|AB|={a}", f"AB={a + 1}", rf"AB = {a}\text{{ cm}}", rf"S = {a}", rf"S_{{ABC}}={a}"]),
    ])


def matrices(r):
    rows, columns = r.choice([(2, 2), (2, 2), (2, 1), (3, 1), (1, 3), (3, 3), (2, 3)])
    cells = [[number(r) for _ in range(columns)] for _ in range(rows)]

    def matrix(cells, kind="pmatrix", column=" & ", row=r" \\ "):
        return rf"\begin{{{kind}}} {row.join(column.join(line) for line in cells)} \end{{{kind}}}"

    changed = [list(line) for line in cells]
    changed[-1][-1] = str(integer(r))
    doubled = [[f"\\frac{{{cell}}}{{1}}" for cell in line] for line in cells]
    turned = [list(line) for line in zip(*cells)]
    return matrix(cells), [
        matrix(cells, "bmatrix"), matrix(cells, column="&", row=r"\\"), matrix(changed), matrix(doubled), matrix(turned), "A = " + matrix(cells), "-" + matrix(cells), "2" + matrix(cells), rf"\left({matrix(cells, 'matrix')}\right)",
        rf"\left[{matrix(cells, 'matrix')}\right]", r"\left[" + matrix(cells, "array").replace("array}", "array}{" + "c" * columns + "}", 1) + r"\right]", matrix(cells, "vmatrix"), matrix([cells[0]]), f"({','.join(cell for line in cells for cell in line)})",
        matrix([*cells, cells[0]]), matrix(cells, "bmatrix", row="\\\\\n"), rf"\mathbf{{A}} = {matrix(cells)}",
    ]


def lists_of_tuples(r):
    pairs = [(integer(r, -9, 9), integer(r, -9, 9)) for _ in range(r.randint(2, 3))]
    shown = [f"({a},{b})" for a, b in pairs]
    spaced = [f"({a}, {b})" for a, b in pairs]
    return ",".join(shown), [
        ", ".join(spaced), ", ".join(shuffled(r, spaced)), rf"\{{{','.join(shuffled(r, shown))}\}}", ",".join(shown[:-1]), ",".join(f"({b},{a})" for a, b in pairs), r" \text{ and } ".join(spaced), "; ".join(spaced), " or ".join(spaced), " and ".join(spaced),
        ";".join(f"x={a},y={b}" for a, b in pairs), rf"(x,y)={','.join(shown)}", rf"(x,y)\in\{{{','.join(shown)}\}}", ",".join([*shown, "(1,50)"]), r" \text{ or } ".join(spaced), ", ".join(rf"\left({a}, {b}\right)" for a, b in pairs),
    ]


def ratios(r):
    a, b = r.sample(range(1, 20), 2)
    return f"{a}:{b}", [f"{a} : {b}", rf"\frac{{{a}}}{{{b}}}", f"{a}/{b}", f"{b}:{a}", f"{2 * a}:{2 * b}", rf"{a}\text{{ to }}{b}", f"{a}:{b + 1}", rf"S_1:S_2={a}:{b}", f"{a}-{b}"]


def words(r):
    word = r.choice(["Even", "odd", "Monday", "Yes", "No", "ellipse", "circle", "Evelyn", "increasing", "hyperbola", "June 20", "east", "neither", "parabola", "two lines"])
    other = r.choice(["even", "Odd", "Tuesday", "yes", "False", "true", "Carla", "line"])
    return rf"\text{{{word}}}", [word, rf"\text{{{word.lower()}}}", rf"\text{{{other}}}", rf"\mathrm{{{word}}}", rf"\textbf{{{word}}}", rf"\text{{ {word} }}", rf"\text{{{word[:-1]}}}", other, rf"\mbox{{{word}}}", rf"\text{{({word})}}", rf"\textit{{{word}}}"]


def choices(r):
    letter, other = r.sample("ABCDE", 2)
    return r.choice([letter, rf"\text{{{letter}}}", rf"\textbf{{({letter})}}", rf"\text{{({letter})}}", rf"\textbf{{({letter}) }}{integer(r)}"]), [letter, f"({letter})", rf"\text{{{letter}}}", rf"\text{{({letter})}}", rf"\textbf{{({letter})}}", other, rf"\text{{{other}}}", letter.lower(), rf"\mathrm{{{letter}}}", rf"\textbf{{{letter}}}", f"{letter},{other}", rf"\text{{{letter},{other}}}", f"{letter}{other}"]


def units(r):
    n = r.choice([str(r.randint(2, 90)), "7.5", r"\frac{3}{4}", r"4\sqrt{3}"])
    unit, other = r.sample(["cm", "meters", "hours", "square units", "miles per hour", "dollars", "feet", "inches", "degrees", "years", "yuan", "people", "apples", "cm^2"], 2)
    return rf"{n}\text{{ {unit}}}", [n, rf"{n} \text{{ {other}}}", rf"{n}\mbox{{ {unit}}}", rf"{n}\, \text{{{unit}}}", rf"{n}\;\mathrm{{{unit}}}", rf"x={n}\text{{ {unit}}}", rf"1{n}\text{{ {unit}}}", rf"{n}\text{{{unit}}}^2", rf"{n}\ \text{{{unit}}}", rf"\text{{about }}{n}\text{{ {unit}}}"]


def currency(r):
    n = r.choice([r.randint(2, 90), round(r.uniform(1, 99), 2), r.randint(1000, 99999)])
    return rf"\${n}", [str(n), rf"\$ {n}", rf"{n}\text{{ dollars}}", rf"\${n:,}", rf"\${n}.00" if isinstance(n, int) else rf"\${n}0", rf"{n}\$", rf"\$\frac{{{n}}}{{1}}", rf"\${n + 1}"]


def degrees(r):
    n = r.randint(5, 355)
    return rf"{n}^\circ", [str(n), rf"{n}^{{\circ}}", rf"{n} degrees", rf"{n}°", rf"{n}\text{{ degrees}}", rf"{n}^{{\circ}}30'", rf"{n + 1}^\circ", rf"\frac{{{n}\pi}}{{180}}", rf"x={n}^\circ", rf"\angle A={n}^\circ", rf"\angle ABC = {n}^{{\circ}}", rf"{n}^\circ\text{{C}}"]


def bases(r):
    digits, base = r.randint(10, 7777), r.choice([2, 3, 5, 7, 8, 9])
    text = "".join(str(int(digit) % base) for digit in str(digits)).lstrip("0") or "1"
    return rf"{text}_{base}", [text, rf"{text}_{{{base}}}", rf"{int(text) + 1}_{base}", rf"{text}_{{\text{{{base}}}}}", rf"({text})_{{{base}}}", str(int(text, base)), rf"{text}_{{(base {base})}}"]


GENERATORS = [
    whole_numbers, fractions, decimals, percentages, scientific, radicals, surds, multiples_of_pi, expressions, functions, complex_numbers, tuples, sets, plus_minus, intervals, unions, inequalities, chains, equations, matrices, lists_of_tuples,
    ratios, words, choices, units, currency, degrees, bases,
]  # fmt: skip


# --- Rewrites of any answer ---------------------------------------------------------------------------------------------


def spoiled_digit(r, text):
    digits = [match.start() for match in re.finditer(r"\d", text)]
    if not digits:
        return text
    at = r.choice(digits)
    return text[:at] + str((int(text[at]) + r.randint(1, 8)) % 10) + text[at + 1 :]


def spoiled_sign(r, text):
    signs = [match.start() for match in re.finditer(r"[+-]", text)]
    if not signs:
        return "-" + text
    at = r.choice(signs)
    return text[:at] + ("-" if text[at] == "+" else "+") + text[at + 1 :]


REWRITES = [
    lambda r, t: t,
    lambda r, t: t.replace(" ", ""),
    lambda r, t: re.sub(r"(?<=[,+=<>])|(?=[+=<>])", " ", t),
    lambda r, t: t.replace(r"\frac", r.choice([r"\dfrac", r"\tfrac", r"\cfrac"])),
    lambda r, t: re.sub(r"(?<!left)\(", r"\\left(", re.sub(r"(?<!right)\)", r"\\right)", t)),
    lambda r, t: t + r.choice([r"\,", r"\!"]),
    lambda r, t: r"\displaystyle " + t,
    lambda r, t: t.replace(r"\left", "").replace(r"\right", ""),
    lambda r, t: "(" + t + ")",
    lambda r, t: t + r.choice([r"\text{ cm}", r"\text{ units}", r"^\circ", r"\%", r"\text{ square meters}", r" \text{cm}^2", r"\mbox{ inches}"]),
    lambda r, t: r.choice(["x=", "x = ", "y=", r"f(x)=", "A = ", r"S=", r"x \in ", r"n=", "AB="]) + t,
    spoiled_digit,
    spoiled_digit,
    spoiled_sign,
    lambda r, t: "-" + t,
    lambda r, t: "2" + t,
    lambda r, t: t + "+1",
    lambda r, t: t + r.choice(["x", r"\pi", r"\sqrt{2}", "!", "^2"]),
    lambda r, t: t.replace("x", "y"),
    lambda r, t: t + r.choice([",0", ", 3", r" \text{ or } 5"]),
]


# --- Texts around an answer ---------------------------------------------------------------------------------------------


WRAPPERS = [
    "${}$", "${}$", "${}$", r"\boxed{{{}}}", r"$\boxed{{{}}}$", "The answer is ${}$.", r"So the answer is \boxed{{{}}}.", "$${}$$", r"\[{}\]", r"\({}\)", r"$$\boxed{{{}}}$$", "Final Answer: The final answer is ${}$. I hope it is correct.",
    "Therefore, ${}$", r"We get $7$ at first, then \[\boxed{{{}}}\]", "**Answer:** ${}$", r"Since $x^2 = 4$, we have $y = 3$. Hence the answer is $\boxed{{{}}}$.", "{}", "The answer is {}", r"the final answer is \({}\)",
]  # fmt: skip


def wrapped(r, text):
    """The text within a sentence. LaTeX is always marked as such, because `parse` looks for the marks."""
    wrapper = r.choice(WRAPPERS)
    while "$" not in wrapper and "\\" not in wrapper and not PLAIN.fullmatch(text):
        wrapper = r.choice(WRAPPERS)
    return wrapper.format(text)


PLAIN = re.compile(r"-?\d[\d,.]*(/\d+|%| percent)?")


def gold_wrapped(r, text):
    return r.choice(["${}$", "${}$", "${}$", r"\boxed{{{}}}", r"$\boxed{{{}}}$", "$${}$$"]).format(text)


def pair(r):
    """One pair of texts: kind, gold, prediction."""
    generator = r.choice(GENERATORS)
    gold, others = generator(r)
    prediction = r.choice(others) if r.random() < 0.8 else gold
    if r.random() < 0.3:
        prediction = r.choice(REWRITES)(r, prediction)
    return generator.__name__, gold_wrapped(r, gold), wrapped(r, prediction)


def verdict(gold, prediction):
    """True or false, or `None` if `parse` cannot read both: then `verify` would only compare texts."""
    from math_verify import parse, verify

    answers = [parse(text) for text in (gold, prediction)]
    if any(not answer or isinstance(answer[0], str) for answer in answers):
        return None
    return bool(verify(*answers))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--cases", type=int, default=1500)
    options.add_argument("--out", type=Path, default=Path(__file__).parent / "grader" / "math_verify.json")
    given = options.parse_args()
    r = random.Random(given.seed)
    cases, seen = [], set()
    while len(cases) < given.cases:
        kind, gold, prediction = pair(r)
        if (gold, prediction) in seen:
            continue
        seen.add((gold, prediction))
        equal = verdict(gold, prediction)
        if equal is not None:
            cases.append({"kind": kind, "gold": gold, "pred": prediction, "equal": equal})
    given.out.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    given.out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    equal = sum(case["equal"] for case in cases)
    print(f"{given.out}: {len(cases)} pairs, {equal} equal")


if __name__ == "__main__":
    main()
