"""What people submit: fields, rules, presets, and their refusals.

May import: errors, records.
"""
