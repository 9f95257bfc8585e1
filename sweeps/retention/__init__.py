"""Which weights and checkpoints are kept, and what is deleted.

May import: errors, places, records, store.
"""
