"""Figures as plain data: curves, marks and axes, with a renderer for plotly and one for matplotlib.

May import: match, records.
"""
