"""Which weights are vectors, their moments, and the step that turns them on the sphere.

May import: cuda.
"""
