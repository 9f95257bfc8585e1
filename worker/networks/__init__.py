"""Networks by name.

May import: config.
"""
