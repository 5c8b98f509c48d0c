"""python -m tests.model [CONFIGURATION...]: every state of every change from these, with a crash and another kubelet.

With cgroups a change has up to two million states, which take a few minutes and 500 MB.
"""

import sys
from itertools import product

from tests.model.explorer import visit
from tests.model.node import CONFIGURATIONS, State

for before, after in product([x for x in CONFIGURATIONS if x in (sys.argv[1:] or CONFIGURATIONS)], CONFIGURATIONS):
    if before != after:
        for has_cgroups in (False, True):
            found = visit(State(before, has_cgroups, next=after, crashes=1, restarts=1))
            print(f"{before} to {after}, {'with' if has_cgroups else 'without'} cgroups: {found} states", flush=True)
