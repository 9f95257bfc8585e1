"""Adam's step for scalars, as a function of tensors (Kingma and Ba, arXiv:1412.6980)."""

import math

import torch
from torch import Tensor


def adam_(
    params: list[Tensor],  # updated in place
    grads: list[Tensor],
    exp_avgs: list[Tensor],  # first moments; updated in place
    exp_avg_sqs: list[Tensor],  # second moments; updated in place
    *,
    step: float,  # 1 on the first call
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """Take one Adam step for every element, with L2 weight decay in the gradient.

    As in ``torch.optim.Adam``, eps is added after bias correction. With eps = 0 an element that
    has never seen a gradient stays where it is.
    """
    beta1, beta2 = betas
    if weight_decay != 0:
        grads = list(torch._foreach_add(grads, params, alpha=weight_decay))
    torch._foreach_lerp_(exp_avgs, grads, 1 - beta1)
    torch._foreach_mul_(exp_avg_sqs, beta2)
    torch._foreach_addcmul_(exp_avg_sqs, grads, grads, value=1 - beta2)

    denominators = list(torch._foreach_sqrt(exp_avg_sqs))
    torch._foreach_div_(denominators, math.sqrt(1 - beta2**step))
    torch._foreach_add_(denominators, eps)
    if eps == 0:
        for denominator in denominators:
            denominator.masked_fill_(denominator == 0, 1)
    torch._foreach_addcdiv_(params, exp_avgs, denominators, value=-lr / (1 - beta1**step))
