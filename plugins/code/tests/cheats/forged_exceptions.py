# Raises exceptions that tests or a judge might take for something else.
class Pending(BaseException):
    pass


class Full(Exception):
    __name__ = __qualname__ = "SystemExit"


NUMBER = [0]


def mix(x):
    NUMBER[0] += 1
    raise (Pending, Full, GeneratorExit, KeyboardInterrupt, AssertionError)[x % 5]
