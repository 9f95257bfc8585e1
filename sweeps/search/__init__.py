"""Which points are proposed, and which are stopped early.

May import: records, spec.
"""
