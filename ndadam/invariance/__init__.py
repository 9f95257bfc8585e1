"""The probe: which weight vectors a loss is invariant to in length.

May import: vectors.
"""
