"""Several trials on one card: the process that holds it, its clients, memory and turns.

May import: checkpoints, config, data, errors, report, steps, training.
"""
