"""The paper's wide residual networks, its softmax, and norms with fixed scale.

May import: checks.
"""
