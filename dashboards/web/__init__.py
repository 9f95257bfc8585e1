"""How pages are served: templates, static files, posted forms, errors.

May import: wording.
"""
