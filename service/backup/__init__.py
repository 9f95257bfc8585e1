"""A home in one file and back: the archive, what goes in, and how it comes out.

May import: settings, supervision, version.
"""
