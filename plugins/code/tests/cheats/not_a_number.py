# Returns numbers for which every comparison might go wrong.
def mix(x):
    return (float("nan"), float("inf"), -float("inf"), complex("nan"))[x % 4]
