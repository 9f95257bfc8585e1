"""Arms of finished sweeps side by side: page, values and plots.

May import: plots, web, wording.
"""
