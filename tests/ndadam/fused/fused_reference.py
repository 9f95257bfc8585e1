"""Parameters that the fused step trains, beside Algorithm 1 written out in float64.

Without a CUDA device the kernels run through Triton's interpreter on the CPU (tests/conftest.py
chooses it); with one, the same tests run there.
"""

import os

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the fused step is written in Triton")

from ndadam.fused.launch import FusedGroup
from ndadam.fused.step import FusedStep

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"

BETAS = (0.9, 0.999)
LR = 0.05
EPS = 1e-8


class Trained:
    """A parameter with its state, and the same in float64 as the reference moves it."""

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        vector_dim: int | None = 0,
        dtype: torch.dtype = torch.float32,
        memory_format: torch.memory_format = torch.contiguous_format,
        seed: int = 0,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        w = torch.randn(shape, generator=generator, dtype=torch.float64)
        if vector_dim is not None:
            w /= norms(w, vector_dim)
        self.vector_dim = vector_dim
        self.generator = generator
        self.p = w.to(DEVICE, dtype).contiguous(memory_format=memory_format)
        self.exp_avg = torch.zeros_like(self.p, dtype=torch.float32)
        self.exp_avg_sq = torch.zeros_like(norms(self.p, vector_dim), dtype=torch.float32)
        self.step = torch.zeros((), device=DEVICE)
        self.exact = self.p.double().cpu()
        self.exact_avg = torch.zeros_like(self.exact)
        self.exact_avg_sq = torch.zeros_like(norms(self.exact, vector_dim))
        self.exact_step = 0

    def gradient(self) -> Tensor:
        g = torch.randn(self.p.shape, generator=self.generator, dtype=torch.float64)
        return torch.empty_like(self.p).copy_(g)

    def take_exact_step(self, grad: Tensor, lr: float = LR, eps: float = EPS) -> None:
        """Algorithm 1 of arXiv:1709.04546 for vectors, Adam for scalars."""
        g, w = grad.double().cpu(), self.exact
        dims = other_dims(w, self.vector_dim)
        if self.vector_dim is not None:
            g = g - (g * w).sum(dims, keepdim=True) * w
        squares = g**2 if self.vector_dim is None else (g**2).sum(dims, keepdim=True)
        self.exact_step += 1
        self.exact_avg = BETAS[0] * self.exact_avg + (1 - BETAS[0]) * g
        self.exact_avg_sq = BETAS[1] * self.exact_avg_sq + (1 - BETAS[1]) * squares
        direction = self.exact_avg / (1 - BETAS[0] ** self.exact_step)
        size = (self.exact_avg_sq / (1 - BETAS[1] ** self.exact_step)).sqrt() + eps
        w = w - lr * direction / size
        self.exact = w if self.vector_dim is None else w / norms(w, self.vector_dim)

    def assert_agrees(self, rtol: float) -> None:
        assert distance(self.p, self.exact) < rtol
        assert distance(self.exp_avg, self.exact_avg) < rtol
        assert distance(self.exp_avg_sq, self.exact_avg_sq) < rtol
        assert self.step.item() == self.exact_step


def other_dims(w: Tensor, vector_dim: int | None) -> tuple[int, ...]:
    return tuple(d for d in range(w.dim()) if d != vector_dim)


def norms(w: Tensor, vector_dim: int | None) -> Tensor:
    if vector_dim is None:
        return w
    return torch.linalg.vector_norm(w, dim=other_dims(w, vector_dim), keepdim=True)


def distance(a: Tensor, b: Tensor) -> float:
    """||a - b|| / ||b||."""
    return ((a.double().cpu() - b).norm() / b.norm()).item()


def group_of(trained: list[Trained], grads: list[Tensor], **settings: object) -> FusedGroup:
    values: dict[str, object] = {"lr": LR, "betas": BETAS, "eps": EPS} | settings
    return FusedGroup(
        params=[t.p for t in trained],
        grads=grads,
        exp_avgs=[t.exp_avg for t in trained],
        exp_avg_sqs=[t.exp_avg_sq for t in trained],
        steps=[t.step for t in trained],
        vector_dim=trained[0].vector_dim,
        **values,  # type: ignore[arg-type]
    )


def take_steps(trained: list[Trained], steps: int) -> FusedStep:
    fused = FusedStep()
    for _ in range(steps):
        grads = [t.gradient() for t in trained]
        fused([group_of(trained, grads)])
        for t, grad in zip(trained, grads, strict=True):
            t.take_exact_step(grad)
    return fused
