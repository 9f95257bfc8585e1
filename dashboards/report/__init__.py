"""One document in HTML, Markdown or LaTeX: of a sweep or a match.

May import: match, web, wording.
"""
