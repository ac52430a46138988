# b divides a, a = b * k: then b divides k + 1.
for _ in range(int(input())):
    n, m = map(int, input().split())
    print(sum((n // b + 1) // b for b in range(1, min(n, m) + 1)) - 1)
