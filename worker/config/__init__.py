"""TrainConfig, and the schedules and registered parts that its fields name.

Imports no other room.
"""
