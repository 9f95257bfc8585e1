"""NDAdam, its literal twin, parameter groups, and the foreach and compiled steps.

May import: cuda, fused, invariance, vectors.
"""
