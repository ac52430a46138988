"""Gaps in the snapshot's heap.

Imports leave tens of thousands of freed pieces of memory between the objects that remain. As long as the allocator has such
pieces, it puts nearly every object of a job into another page, and the system copies each page that a job writes to.
"""

# Sizes of pieces: all of the small ones, of which the allocator keeps a list each.
PIECES = [*range(1 << 20, 1 << 14, -(1 << 14)), *range(1 << 14, 512, -512), *range(512, 16, -8)]
# What a bytes object and the allocator add to the object's length.
OVERHEAD = 21
# More than any gap.
LARGE = 4 << 20

filling = []


def fill_gaps():
    """Fills the gaps with objects that are never used, so that later ones are allocated side by side at the heap's end."""
    end = id(bytes(LARGE))
    for piece in PIECES:
        while id(filler := bytes(piece - OVERHEAD)) < end:
            filling.append(filler)
