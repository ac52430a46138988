# Sends data that a reader might break on.
import os

BOMBS = (
    "[" * 9000 + "]" * 9000,
    '{"range":[0,{"int":"0xffffffffffffffffffff"},1]}',
    '{"decimal":"1e999999999"}',
    '{"dict":[[[],1]]}',
    '{"float":"nan"}',
)


def mix(x):
    os.write(1, ('\n{"value":%s,"changed":{}}\n' % BOMBS[x % len(BOMBS)]).encode())
    os._exit(0)
