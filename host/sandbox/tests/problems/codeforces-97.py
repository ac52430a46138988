for _ in range(int(input())):
    n = int(input())
    print(max(range(2, n + 1), key=lambda x: x * (n // x) * (n // x + 1)))
