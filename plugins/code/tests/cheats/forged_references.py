# Answers with references and functions that only calls may have.
import os

KINDS = ('{"name":"reference"}', '{"ref":0}', '{"function":"builtins.eval"}', '{"function":"operator.eq"}', '{"held":[]}')


def mix(x):
    value = KINDS[x % len(KINDS)]
    os.write(1, ('\n{"value":%s,"changed":{}}\n' % value).encode())
    os._exit(0)
