"""ND-Adam written as its paper prints it: slow, literal, for comparison.

Every line of Algorithm 1 of arXiv:1709.04546 is a line here, in its notation and one weight vector
at a time. ``NDAdam`` must agree with it; use that one to train.

One line says what the paper, whose vectors are never anything but unit vectors, need not say: a
vector that has been replaced by one of another length steps from its direction. By the chain rule
the gradient with respect to the direction w / ||w|| is ||w|| times the one with respect to w.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class NDAdamReference(Optimizer):
    """Algorithm 1, for tests and readers. Arguments as in ``NDAdam``.

    It has none of the guards of ``NDAdam``, which the paper does not have: zero vectors, and zero
    gradients with eps = 0, give NaN, and a gradient that is not finite makes its vector NaN.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.05,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        vector_dim: int | None = None,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "vector_dim": vector_dim,
            "weight_decay": weight_decay,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for theta in group["params"]:
                self._initialise(theta, group["vector_dim"])

    @torch.no_grad()
    def _initialise(self, theta: Tensor, vector_dim: int | None) -> None:
        state = self.state[theta]
        state["t"] = 0
        if vector_dim is None:
            state["m"] = torch.zeros_like(theta)
            state["v"] = torch.zeros_like(theta)
            return
        w = theta.movedim(vector_dim, 0)
        for i in range(len(w)):
            w[i] = w[i] / norm(w[i])
        state["m"] = torch.zeros_like(w)
        state["v"] = theta.new_zeros(len(w))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for theta in group["params"]:
                if theta.grad is None:
                    continue
                self.state[theta]["t"] += 1
                if group["vector_dim"] is None:
                    self._adam_update(theta, group)
                else:
                    self._update_vectors(theta, group)
        return loss

    def _update_vectors(self, theta: Tensor, group: dict[str, Any]) -> None:
        alpha, eps = group["lr"], group["eps"]
        beta1, beta2 = group["betas"]
        state = self.state[theta]
        t, m, v = state["t"], state["m"], state["v"]
        w = theta.movedim(group["vector_dim"], 0)
        assert theta.grad is not None  # ``step`` has left out parameters without a gradient
        gradient = theta.grad.movedim(group["vector_dim"], 0)
        for i in range(len(w)):
            w[i], g_bar = w[i] / norm(w[i]), norm(w[i]) * gradient[i]  # ||w|| = 1 in the paper
            g = g_bar - dot(g_bar, w[i]) * w[i]
            m[i] = beta1 * m[i] + (1 - beta1) * g
            v[i] = beta2 * v[i] + (1 - beta2) * norm(g) ** 2
            m_hat = m[i] / (1 - beta1**t)
            v_hat = v[i] / (1 - beta2**t)
            w_bar = w[i] - alpha * m_hat / (v_hat.sqrt() + eps)
            w[i] = w_bar / norm(w_bar)

    def _adam_update(self, theta: Tensor, group: dict[str, Any]) -> None:
        alpha, eps = group["lr"], group["eps"]
        beta1, beta2 = group["betas"]
        state = self.state[theta]
        t = state["t"]
        g = theta.grad + group["weight_decay"] * theta
        state["m"] = beta1 * state["m"] + (1 - beta1) * g
        state["v"] = beta2 * state["v"] + (1 - beta2) * g**2
        m_hat = state["m"] / (1 - beta1**t)
        v_hat = state["v"] / (1 - beta2**t)
        theta -= alpha * m_hat / (v_hat.sqrt() + eps)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """a . b over all elements, 0-dim."""
    return (a * b).sum()


def norm(a: Tensor) -> Tensor:
    """||a||_2 over all elements, 0-dim."""
    return dot(a, a).sqrt()
