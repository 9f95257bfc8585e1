"""The fused optimizer step in Triton: when it applies, its launch and its kernels.

May import: cuda, vectors.
"""
