from math import isqrt


def cube_root(n):
    root = round(n ** (1 / 3))
    return root if root**3 <= n else root - 1


for _ in range(int(input())):
    n = int(input())
    # Sixth powers are both.
    print(isqrt(n) + cube_root(n) - cube_root(isqrt(n)))
