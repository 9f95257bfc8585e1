"""The command ``ndsweep``, one file for each group of commands.

May import: backup, client, contract, settings, submission, supervision.
"""
