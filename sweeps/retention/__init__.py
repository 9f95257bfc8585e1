"""Where files of trials lie, which weights and checkpoints are kept, and what is deleted.

May import: errors, records, store.
"""
