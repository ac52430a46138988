MOD = 10**9 + 7
for _ in range(int(input())):
    low, high, k = map(int, input().split())
    digits = 9 // k + 1
    print((pow(digits, high, MOD) - pow(digits, low, MOD)) % MOD)
