"""Specs of sweeps: fields, rules, presets, and refusals.

May import: errors, records.
"""
