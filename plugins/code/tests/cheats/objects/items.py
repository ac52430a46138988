# Returns an object that makes its items out of what it is asked for.
class Items:
    __getitem__ = get = lambda self, key, *_: int(key)

    def __getattr__(self, name):
        return lambda *given: True


def index(x):
    return Items()
