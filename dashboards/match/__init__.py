"""The pages of a match: its curves, corrections and verdict.

May import: plots, sweep_pages, web, wording.
"""
