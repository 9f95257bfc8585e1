"""Configs of trials, and the trainings, schedules and networks that they name.

May import: errors.
"""
