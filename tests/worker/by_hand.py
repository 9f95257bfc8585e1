"""Training written out by hand, in float64: the recipes of the paper without any code of theirs.

Every constant stands here as the paper's two codes have it, so that a detail that changes in the
product no longer agrees. Letters: B images of H x W pixels with C channels.
"""

import math

import torch
from torch.nn import functional

#: Non-linearity's slope below 0, added to variances, gain of the initial weights.
SLOPE = {"paper-tf": 0.1, "paper-wrn": 0.0}
BN_EPS = {"paper-tf": 1e-3, "paper-wrn": 1e-5}
INIT_GAIN = {"paper-tf": 1.0, "paper-wrn": 2.0}
#: Weight of the new batch in running statistics: a moving average of 0.9.
BN_MOMENTUM = 0.1


class Network:
    """A WRN-10-1 on named tensors: stem, three groups of one block, normalisation, head."""

    def __init__(self, recipe, state, gamma_c=None):
        self.recipe, self.state, self.gamma_c = recipe, state, gamma_c

    def normalise(self, name, x, scale=None):
        """Batch statistics over everything but the channel; keeps the running ones."""
        axes = [0, 2, 3] if x.dim() == 4 else [0]
        mean = x.mean(axes, keepdim=True)
        variance = ((x - mean) ** 2).mean(axes, keepdim=True)
        count = x.numel() / x.shape[1]
        with torch.no_grad():
            for part, new in (("mean", mean), ("var", variance * count / (count - 1))):
                running = self.state[f"{name}.running_{part}"]
                running.mul_(1 - BN_MOMENTUM).add_(BN_MOMENTUM * new.flatten())
        shape = mean.shape
        if scale is None:
            fixed = torch.ones(x.shape[1], dtype=x.dtype)
            scale = self.state.get(f"{name}.weight", fixed).view(shape)
        return (x - mean) / (variance + BN_EPS[self.recipe]) ** 0.5 * scale + self.state[
            f"{name}.bias"
        ].view(shape)

    def activate(self, x):
        return torch.where(x > 0, x, SLOPE[self.recipe] * x)

    def convolve(self, name, x, stride=1):
        weight = self.state[f"{name}.weight"]
        return functional.conv2d(x, weight, None, stride, weight.shape[-1] // 2)

    def shortcut(self, group, x, activated, stride):
        name = f"groups.{group}.0"
        if self.recipe == "paper-wrn":
            # A strided 1 x 1 convolution of the activated input, where the width changes.
            if f"{name}.shortcut.weight" in self.state:
                return self.convolve(f"{name}.shortcut", activated, stride)
            return x
        # The first block of group 1 shares its BN-ReLU with the shortcut.
        x = activated if group == 0 else x
        if stride == 2:
            b, c, h, w = x.shape
            x = x.reshape(b, c, h // 2, 2, w // 2, 2).mean((3, 5))
        missing = self.state[f"{name}.conv2.weight"].shape[0] - x.shape[1]
        zeros = x.new_zeros(len(x), missing // 2, *x.shape[2:])
        return torch.cat([zeros, x, zeros], 1)

    def logits(self, x):
        x = self.convolve("stem", x)
        for group, stride in enumerate((1, 2, 2)):
            name = f"groups.{group}.0"
            activated = self.activate(self.normalise(f"{name}.norm1", x))
            inner = self.convolve(f"{name}.conv1", activated, stride)
            inner = self.activate(self.normalise(f"{name}.norm2", inner))
            x = self.convolve(f"{name}.conv2", inner) + self.shortcut(group, x, activated, stride)
        maps = self.convolve("head", self.activate(self.normalise("norm", x)))
        pooled = maps.mean((2, 3))
        if self.gamma_c is None:
            return pooled
        return self.normalise("softmax", pooled, torch.tensor(self.gamma_c, dtype=pooled.dtype))


def loss(logits, labels, lambda_c=None):
    """Cross entropy, and lambda_c / 2 times the mean squared length of the logit vector."""
    chosen = logits[torch.arange(len(labels)), labels]
    value = (torch.log(torch.exp(logits).sum(1)) - chosen).mean()
    if lambda_c is not None:
        value = value + lambda_c / 2 * (logits**2).sum(1).mean()
    return value


class Sgd:
    """v <- mu v + g + lambda w; w <- w - lr v, or w - lr (g + lambda w + mu v) after Nesterov."""

    def __init__(self, momentum, nesterov=False):
        self.momentum, self.nesterov, self.velocity = momentum, nesterov, {}

    def step(self, name, w, g, lr, decay):
        g = g + decay * w
        v = self.velocity[name] = self.momentum * self.velocity.get(name, 0.0) + g
        w -= lr * (g + self.momentum * v if self.nesterov else v)


class Adam:
    """Adam; ``decoupled`` shrinks the weights beside the step, as AdamW does."""

    def __init__(self, betas, decoupled=False):
        self.betas, self.decoupled, self.moments = betas, decoupled, {}

    def step(self, name, w, g, lr, decay):
        beta1, beta2 = self.betas
        m, v, t = self.moments.get(name, (0.0, 0.0, 0))
        if self.decoupled:
            w *= 1 - lr * decay
        else:
            g = g + decay * w
        m, v, t = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2, t + 1
        self.moments[name] = m, v, t
        w -= lr * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)) ** 0.5 + 1e-8)


class NdAdam(Adam):
    """Algorithm 1 on convolutions, one weight vector per output channel; Adam on the rest."""

    def step(self, name, w, g, lr, decay):
        if w.dim() == 1:
            super().step(name, w, g, lr, decay)
            return
        beta1, beta2 = self.betas
        m, v, t = self.moments.get(name, (0.0, 0.0, 0))

        def total(x):
            return x.sum((1, 2, 3), keepdim=True)

        g = g - total(g * w) * w
        m, v, t = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * total(g**2), t + 1
        self.moments[name] = m, v, t
        w -= lr * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)) ** 0.5 + 1e-8)
        w /= total(w**2) ** 0.5


def cosine(step, num_steps):
    return (1 + math.cos(math.pi * step / num_steps)) / 2


def cosine_by_epoch(step, num_steps, steps_per_epoch):
    epochs = -(-num_steps // steps_per_epoch)
    return (1 + math.cos(math.pi * (step // steps_per_epoch) / epochs)) / 2


def train(network, optimizer, batches, rate, decays, lambda_c=None):
    """Losses of the steps.

    Args:
        network: A ``Network``; its parameters require gradients.
        optimizer: One of the above.
        batches: Images (B, C, H, W) float64 and labels (B,) of each step.
        rate: (step, is_vector) -> learning rate.
        decays: is_vector -> weight decay.
        lambda_c: Penalty on the logits.
    """
    names = [name for name, value in network.state.items() if value.requires_grad]
    losses = []
    for step, (images, labels) in enumerate(batches):
        value = loss(network.logits(images), labels, lambda_c)
        gradients = torch.autograd.grad(value, [network.state[name] for name in names])
        losses.append(value.item())
        with torch.no_grad():
            for name, gradient in zip(names, gradients, strict=True):
                w = network.state[name]
                is_vector = w.dim() == 4
                optimizer.step(name, w, gradient, rate(step, is_vector), decays[is_vector])
    return losses
