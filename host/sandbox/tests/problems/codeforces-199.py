for _ in range(int(input())):
    print(sum(int(digit) for digit in input()))
