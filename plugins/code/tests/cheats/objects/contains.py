# Returns an object that contains everything.
class Everything:
    __contains__ = __bool__ = lambda *_: True
    __len__ = lambda self: 1


def index(x):
    return Everything()
