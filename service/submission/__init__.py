"""Whether a spec may run here, what it would do, and how a sweep grows.

May import: contract, settings.
"""
