"""Ray: its head, what a cluster can hold, fair shares of it.

May import: records, spec.
"""
