"""What the server that forks all processes of a run imports, once for all of them.

Python runs this module while nothing else is waited for: the server is started first, and the parent of the run reads
the registry and makes its plan meanwhile. A parent that has nothing to run by then takes the server with it.
"""

from __future__ import annotations

import atexit
import gc
import os
from contextlib import suppress

from testbed.engine.processes import die_with_parent

die_with_parent()
gc.disable()  # nothing of what is imported is garbage: to look for it takes a seventh of the time

import PIL.JpegImagePlugin  # noqa: E402
import PIL.PngImagePlugin  # noqa: E402, F401

import testbed.engine.broker  # noqa: E402
import testbed.engine.worker  # noqa: E402
import testbed.perturb.corruptions  # noqa: E402, F401
from testbed.entries.registry import keep_default_entries  # noqa: E402
from testbed.errors import TestbedError  # noqa: E402

with suppress(TestbedError):  # told by whoever loads it to work with it
    keep_default_entries()
gc.freeze()  # a process that looks for garbage among what it has inherited would copy all of it
gc.enable()
# From here on the server ends when its connections close, as soon as those who were forked from it have ended.
die_with_parent(False)
atexit.register(os._exit, 0)  # what runs at exit takes down torch, piece by piece
