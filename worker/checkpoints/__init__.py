"""Exact resumption: checkpoints, the journal of reports, the stop file.

May import: atomic_file, errors, report.
"""
