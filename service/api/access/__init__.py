"""Who is let in, as whom, and to which routes.

May import: nothing else of the API.
"""
