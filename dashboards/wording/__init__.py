"""Values and facts in the words and signs that people read.

Imports no other room.
"""
