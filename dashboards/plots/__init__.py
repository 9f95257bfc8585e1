"""Figures as the values that plotly draws.

May import: wording.
"""
