from math import isqrt


def inside(r):
    """Points closer than r."""
    if r == 0:
        return 0
    return sum(2 * isqrt(r * r - 1 - x * x) + 1 for x in range(-r + 1, r))


for _ in range(int(input())):
    r = int(input())
    print(inside(r + 1) - inside(r))
