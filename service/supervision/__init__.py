"""Starts and watches the processes of a service; doctor, home and ports.

May import: settings, version.
"""
