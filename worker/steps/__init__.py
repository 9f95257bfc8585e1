"""One eager step, its optimizer, metrics, evaluation, memory and device.

May import: config, data.
"""
