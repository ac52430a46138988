import sys

words = iter(sys.stdin.read().split()[1:])
for a, b in zip(words, words):
    print(b[0] + a[1:], a[0] + b[1:])
