"""Intervals and tests over a handful of seeds, and errors of correlated series. No torch.

Imports no other room.
"""

from ndadam.statistics.inference import *  # noqa: F403 - what the package exports is stated there, once
from ndadam.statistics.inference import __all__ as __all__
