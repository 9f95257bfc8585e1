"""The pages of sweeps: the list, one sweep, one trial, search and actions.

May import: plots, web, wording.
"""
