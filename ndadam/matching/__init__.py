"""Equal effective learning rates: in closed form, measured, and in closed loop.

What this package itself exports, the verdict over recorded curves, needs no torch; neither does the
procedure of a measured match.

May import: checks, dynamics, invariance, optimizer, statistics, theory, vectors.
"""

from ndadam.matching.verdict import *  # noqa: F403 - what the package exports is stated there, once
from ndadam.matching.verdict import __all__ as __all__
