"""TrainConfig and what its fields name: schedules, registered parts.

Imports no other room.
"""
