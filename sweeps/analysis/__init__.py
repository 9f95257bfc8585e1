"""Means, intervals, comparisons, importance and tables of finished trials.

May import: errors, records, search, spec, store.
"""
