"""Plots of the pages: figures with their hover texts, and the tables behind them.

May import: wording.
"""
