"""Printing, progress and failures of the command."""
