"""Chooses, before anything imports Triton, how its kernels run: interpreted without a CUDA device.

Triton reads the choice when it is imported, and torch's compiler imports it, so that a test module
would come too late.
"""

import os
from pathlib import Path

if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
