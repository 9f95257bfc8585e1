"""The loop of a run: training, weight dynamics, provenance, final weights.

May import: atomic_file, checkpoints, config, cuda, data, networks, report, steps.
"""
