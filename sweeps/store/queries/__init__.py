"""Reads of the store: sweeps, trials, curves, timelines."""
