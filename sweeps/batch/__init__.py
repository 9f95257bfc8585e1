"""Sweeps without a service: trials in processes, results in files, and those of other tools.

May import: analysis, cluster, errors, records, search, spec, store.
"""
