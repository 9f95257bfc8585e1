"""The primary record: specs, states, trials, attempts, events and every reported metric.

May import: errors, records.
"""
