"""Closed forms: effective learning rates of optimizers, rates that make them equal. No torch.

May import: checks, statistics.
"""

from ndadam.theory.prediction import *  # noqa: F403 - what the package exports is stated there, once
from ndadam.theory.prediction import __all__ as __all__
