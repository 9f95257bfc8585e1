"""The command ``ndsweep``, one file for each group of commands.

May import: client, contract, settings, submission, supervision.
"""
