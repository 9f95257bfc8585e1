"""Training steps as CUDA graphs, and kernels for them.

May import: config, data, steps.
"""
