"""The version of what is installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("ndadam-sweeps")
except PackageNotFoundError:  # run from a source tree that was never installed
    VERSION = "0+source"
