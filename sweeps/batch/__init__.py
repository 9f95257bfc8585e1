"""Sweeps without a service: trials in processes, results in files.

May import: analysis, cluster, errors, records, search, spec, store.
"""
