"""Shapes of requests, answers, downloads and errors of the API.

May import: settings.
"""
