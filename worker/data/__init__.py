"""Prepared data sets, their import, splits and batches.

May import: atomic_file, config, errors.
"""
