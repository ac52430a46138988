for _ in range(int(input())):
    (x, p), (y, q) = (input().split() for _ in range(2))
    lengths = len(x) + int(p), len(y) + int(q)
    if lengths[0] != lengths[1]:
        print("<" if lengths[0] < lengths[1] else ">")
        continue
    width = max(len(x), len(y))
    x, y = x.ljust(width, "0"), y.ljust(width, "0")
    print("<" if x < y else ">" if x > y else "=")
