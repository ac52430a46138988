import sys

for line in sys.stdin.read().split()[1:]:
    fine = line[0] == "1" and "0" not in line[1:-1] and line[-1] != "9"
    print("YES" if fine else "NO")
