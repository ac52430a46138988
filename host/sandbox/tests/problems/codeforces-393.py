for _ in range(int(input())):
    n = int(input())
    if n % 2 == 0:
        print("3" * (n - 2) + "66")
    else:
        print("3" * (n - 5) + "36366" if n >= 5 else -1)
