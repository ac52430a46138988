"""Makes a Python interpreter that has just started wait, and forks it for each program of a container.

The supervisor starts `python3 main.py` with this file on the path. The interpreter imports it as the last thing before
it would open `main.py`. There the parent stays for good: it runs no program, reads nothing that a program wrote, and is
closed to programs as the supervisor is. A fork goes on where the parent stopped, and so is what `python3 main.py`
would have been, without this file and its traces.
"""

import os
import sys

DUMPABLE = 4  # PR_SET_DUMPABLE


def wait():
    """Returns in forks alone, once for each message with a program's stdin, stdout and stderr."""
    before = {id(known): set(known) for known in (sys.modules, sys.path_importer_cache)}
    import _socket
    import ctypes
    import gc

    link = _socket.socket(fileno=int(os.environ.pop("PL_SUPERVISOR_LINK")))
    prctl = ctypes.CDLL(None).prctl
    for known in (sys.modules, sys.path_importer_cache):
        for name in set(known) - before[id(known)]:
            del known[name]
    leave_no_path()
    # Other processes of this user may not read or write this one's memory, or take its files.
    if prctl(DUMPABLE, 0, 0, 0, 0) != 0:
        os._exit(1)
    # The collector would write to every object of each fork, and so have the kernel copy all pages.
    gc.collect()
    gc.freeze()
    link.send(b"ready")
    while True:
        word, passed, _, _ = link.recvmsg(1, _socket.CMSG_SPACE(3 * 4))
        if not word:
            os._exit(0)
        data = passed[0][2]
        streams = [int.from_bytes(data[at : at + 4], sys.byteorder) for at in (0, 4, 8)]
        child = os.fork()
        if child == 0:
            break
        for fd in streams:
            os.close(fd)
        _, status, usage = os.wait4(child, 0)
        link.send(b"%d %d" % (status, usage.ru_maxrss))
    link.close()
    prctl(DUMPABLE, 1, 0, 0, 0)
    os.setsid()
    for at, fd in enumerate(streams):
        os.dup2(fd, at)
        os.close(fd)
    main_anew()
    # Where memory is short, the kernel takes a program, and neither the parent nor the supervisor.
    with open("/proc/self/oom_score_adj", "wb", buffering=0) as score:
        score.write(b"1000")


def leave_no_path():
    folder = os.path.dirname(__file__)
    sys.path.remove(folder)
    sys.path_importer_cache.pop(folder, None)
    _, _, rest = os.environ.pop("PYTHONPATH").partition(":")
    if rest:
        os.environ["PYTHONPATH"] = rest


def main_anew():
    """What is frozen is never collected, and the program's own module must be."""
    main = type(sys)("__main__")
    vars(main).update(vars(sys.modules["__main__"]), __annotations__={})
    sys.modules["__main__"] = main


try:
    wait()
except BaseException:
    os._exit(1)
# To the interpreter there is no such module.
raise ImportError(name="usercustomize")
