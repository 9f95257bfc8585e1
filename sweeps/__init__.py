"""Sweeps of many configurations: specs, the store, search, drivers, matches, analysis."""
