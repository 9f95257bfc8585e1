"""The paper's tables and figures from stored runs.

May import: batch, match, spec, store.
"""
