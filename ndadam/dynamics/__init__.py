"""EffectiveLR: what is recorded of the weights at each step.

May import: checks, cuda, fused, invariance, optimizer, vectors.
"""
