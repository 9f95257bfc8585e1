"""The measured match as a sweep: its spec, stages, corrections and verdict.

May import: records, search, spec.
"""
