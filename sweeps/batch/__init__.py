"""Sweeps without a service: trials in processes, results in files.

May import: analysis, errors, records, search, spec, store.
"""
