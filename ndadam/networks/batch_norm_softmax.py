"""Softmax whose logits keep a useful size: BN-Softmax and the L2 penalty on logits.

Section 4 of arXiv:1709.04546. N images, C classes. Equations count every numbered equation of the
paper, so the gradient of the softmax is (18), its limits (19) and (20), the penalty (21).
"""

from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ndadam.checks import refuse_unless_whole


class BatchNormSoftmax(nn.BatchNorm1d):
    """Batch-normalise the logits and scale all of them by one constant, ``gamma_c``.

    Takes logits (N, C) and returns the logits that enter the softmax, (N, C): ``gamma_c`` times the
    normalised logit plus a trainable bias. There is no trainable scale: ``gamma_c`` is a
    hyperparameter (2.5 for CIFAR-10 and 1 for CIFAR-100 in the paper). For statistics over several
    processes use ``ndadam.convert_sync_batchnorm`` in place of torch's.

    Args:
        num_classes: C.
        gamma_c: Deviation of every logit over the batch, > 0.
        eps: Added to the variance; 1e-3 in the paper's TensorFlow code.
        momentum: Weight of the new batch in the running statistics, as in ``nn.BatchNorm1d``.
    """

    gamma_c = 1.0  # until it is known; torch resets parameters before

    def __init__(
        self, num_classes: int, gamma_c: float, eps: float = 1e-3, momentum: float = 0.1
    ) -> None:
        refuse_unless_whole("num_classes", num_classes, 1)
        _check_gamma(gamma_c)
        super().__init__(num_classes, eps=eps, momentum=momentum)
        # A whole number would make a scale of whole numbers, which no batch norm takes.
        self.gamma_c = float(gamma_c)
        # A buffer in place of the parameter: the scale is a hyperparameter, not state.
        del self.weight
        self.register_buffer("weight", torch.full((num_classes,), self.gamma_c), persistent=False)

    def reset_parameters(self) -> None:
        """Forget the statistics and the bias; every scale is ``gamma_c`` again.

        Also what gives a layer made on the meta device its values.
        """
        super().reset_parameters()
        with torch.no_grad():
            self.weight.fill_(self.gamma_c)

    def extra_repr(self) -> str:
        return f"{self.num_features}, gamma_c={self.gamma_c}, eps={self.eps}"


def batch_norm_softmax(
    logits: Tensor,  # (N, C)
    gamma_c: float,
    eps: float = 1e-3,
    bias: Tensor | None = None,  # (C,)
) -> Tensor:
    """Scale logits by ``gamma_c`` > 0 over the deviation of this batch, (N, C)."""
    _check_gamma(gamma_c)
    weight = logits.new_full(logits.shape[1:], gamma_c)
    return functional.batch_norm(logits, None, None, weight, bias, training=True, eps=eps)


def _check_gamma(gamma_c: Any) -> None:
    single = isinstance(gamma_c, Tensor) and gamma_c.ndim == 0
    if not (single or isinstance(gamma_c, Real)) or not float(gamma_c) > 0:
        raise ValueError(f"gamma_c must be > 0, got {gamma_c!r}")


def logit_penalty(logits: Tensor, lambda_c: float) -> Tensor:
    """L2 penalty lambda_c / 2 * sum over classes of z^2, averaged over the batch (Eq. 21).

    Add it to the loss. ``logits`` (N, C) are those that enter the softmax.
    """
    return 0.5 * lambda_c * logits.square().sum(-1).mean()


def softmax_gradient(
    logits: Tensor,  # (N, C)
    target: Tensor,  # (N,) class indices
    eta: float = 1.0,
) -> Tensor:
    """Gradient of the cross entropy of ``eta * logits`` with respect to ``logits`` (Eq. 18).

    One row per image, not averaged over the batch: (N, C).
    """
    one_hot = functional.one_hot(target, logits.shape[-1]).to(logits.dtype)
    return eta * (torch.softmax(eta * logits, -1) - one_hot)


def softmax_gradient_ratios(logits: Tensor, target: Tensor, eta: float = 1.0) -> Tensor:
    """|gradient of each class / gradient of the target class|, (N, C), with 0 for the target.

    It is exactly the softmax over the other classes' logits, which is how it is computed: the
    quotient of Eq. 18 would lose its digits where the prediction is sure.
    """
    return torch.softmax((eta * logits).scatter(-1, target[:, None], -torch.inf), -1)


def softmax_gradient_limits(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """What ``softmax_gradient_ratios`` tends to for eta -> 0 (Eq. 19) and eta -> infinity (Eq. 20).

    Small logits push every wrong class down equally, large ones only the strongest wrong class.
    """
    others = torch.ones_like(logits).scatter(-1, target[:, None], 0.0)
    strongest = logits.scatter(-1, target[:, None], -torch.inf).argmax(-1)
    small = others / (logits.shape[-1] - 1)
    return small, functional.one_hot(strongest, logits.shape[-1]).to(logits.dtype)
