"""The HTTP process: application, auth, metrics, routes.

May import: contract, settings, submission, supervision, version.
"""
