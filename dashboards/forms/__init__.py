"""The forms of a new sweep and a new match, and how they become specs.

May import: match, web, wording.
"""
