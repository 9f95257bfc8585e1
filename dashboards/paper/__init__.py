"""The page and the report of the paper's tables and figures.

May import: plots, report, web, wording.
"""
