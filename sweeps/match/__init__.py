"""The measured match as a sweep: its spec, the trials it proposes, the result it stores.

May import: analysis, records, search, spec.
"""
