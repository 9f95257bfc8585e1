"""Whether a CUDA graph is being captured. Not with the kernels, which need Triton."""

import torch


def is_capturing(device: torch.device) -> bool:
    """Whether what is launched on ``device`` now goes into a CUDA graph and is not done."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
