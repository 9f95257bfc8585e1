"""What ``EffectiveLR`` hands out: plain values on the host."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class LayerDynamics:
    """Records of one layer, one value per recorded step.

    Attributes:
        effective_lr: Root mean square over the layer's vectors of ||w_t - w_{t-1}|| / ||w_{t-1}||.
        angular_update: Root mean square over vectors of the angle between w_{t-1} and w_t, radians.
        weight_norm: Root mean square over vectors of ||w_{t-1}||.
        radial_gradient: Mean over vectors of <g, w> / ||w||^2, where g is the loss gradient at
            w_{t-1}: the relative rate at which the loss itself would shrink the vector.
        projection_ratio: SGD with weight decay only, else empty. Mean over vectors of the scalar
            projection of Delta w^l on Delta w^p over ||Delta w^p||, as in the paper's Fig. 1(a);
            its plateau for white noise is -2 mu / (1 + mu)^2.
        projection_ratio_on_w: The same with both parts projected on -w instead; plateau
            -2 mu / (1 + mu) whatever the noise.
    """

    effective_lr: list[float] = field(default_factory=list)
    angular_update: list[float] = field(default_factory=list)
    weight_norm: list[float] = field(default_factory=list)
    radial_gradient: list[float] = field(default_factory=list)
    projection_ratio: list[float] = field(default_factory=list)
    projection_ratio_on_w: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class DynamicsRecord:
    """Weight dynamics of consecutive recorded steps.

    Attributes:
        steps: Optimizer steps, counted from 0, that each record describes.
        effective_lr: Of the network: root mean square over invariant vectors and jointly invariant
            groups; a group's value is sqrt(sum ||dw||^2 / sum ||w||^2).
        layers: Records by layer ("conv1", …).
        shadow_step: With shadow moments, else empty: the same root mean square of
            ||m_hat|| / sqrt(v_hat), the step that ND-Adam would take at alpha^v = 1 on the
            gradients that this optimizer saw.
    """

    steps: list[int]
    effective_lr: list[float]
    layers: dict[str, LayerDynamics]
    shadow_step: list[float] = field(default_factory=list)

    def series(self) -> dict[str, list[float]]:
        """Everything by flat name: "effective_lr", "effective_lr/conv1", "weight_norm/conv1", …"""
        named = {"effective_lr": self.effective_lr}
        if self.shadow_step:
            named["shadow_step"] = self.shadow_step
        for layer, records in self.layers.items():
            for quantity, values in vars(records).items():
                if values:
                    named[f"{quantity}/{layer}"] = values
        return named


@dataclass(frozen=True)
class Gain:
    """How much longer momentum makes ND-Adam's steps than independent gradients would.

    Attributes:
        overall: A = (1 + b1) / (1 - b1) * mean ||m_hat||^2 / mean ||g||^2 of the projected
            gradients, averaged over the vectors that count; 1 for white noise.
        layers: The same by layer.
        memory: mean ||g||^2 / mean v_hat, averaged over the vectors that count: 1 when the
            gradient strength is stationary, below 1 while v still remembers larger gradients.
        steps: Steps averaged.
    """

    overall: float
    layers: dict[str, float]
    memory: float
    steps: int


@dataclass(frozen=True)
class Balance:
    """The balance law of SGD with momentum and L2, on what was recorded.

    Summed over steps t and over the vectors that count, with Q_t = ||w_t - w_{t-1}||^2,
    R_t = ||w_t||^2, learning rate eta_t, momentum mu and weight decay lambda,

        (1 + mu) sum Q / eta = 2 lambda (1 + kappa) sum R + (1 - mu) sum (R_t - R_{t-1}) / eta

    up to the first and the last step, which are accounted for.

    Attributes:
        kappa: sum <g, w> / (lambda sum R): 0 where the loss ignores the size of the vectors.
        residual: Left side over right side, minus 1: an error of measurement, about 0.
        layers: Layer -> kappa of that layer.
        steps: Steps summed.
    """

    kappa: float
    residual: float
    layers: dict[str, float]
    steps: int
