for _ in range(int(input())):
    n, k = map(int, input().split())
    if k == 1:
        print(n)
        continue
    count = 0
    while n:
        n, rest = divmod(n, k)
        count += rest
    print(count)
