"""What the parameters of an optimizer are called in its messages."""

from typing import Any

from torch import Tensor


class ParameterNames:
    """Names that came with the parameter groups: from ``param_groups``, or torch's own."""

    def __init__(self) -> None:
        self._known: dict[Tensor, str] = {}

    def learn(self, params: list[Tensor], names: list[str]) -> None:
        """Remember the names of one group, one for each of its parameters or none at all."""
        if len(names) == len(params):
            self._known.update(zip(params, names, strict=True))

    def refuse_shared(
        self, groups: list[dict[str, Any]], params: list[Any], names: list[str]
    ) -> None:
        """Refuse parameters that are in one of ``groups`` already, as torch does, but by name.

        They have the name that they come with now, in ``names`` or in a pair as
        ``named_parameters`` has it, else the one that they are known by.
        """
        held = {
            p: self.of(group, index, position)
            for index, group in enumerate(groups)
            for position, p in enumerate(group["params"])
        }
        pairs = [p if isinstance(p, tuple) else (None, p) for p in params]
        if len(names) == len(pairs):
            pairs = [(name, p) for name, (_, p) in zip(names, pairs, strict=True)]
        shared = [name or held[p] for name, p in pairs if isinstance(p, Tensor) and p in held]
        if shared:
            raise ValueError(
                f"some parameters appear in more than one parameter group: {', '.join(shared)}; "
                "make groups of the module that holds all of them, which counts tied ones once"
            )

    def of(self, group: dict[str, Any], index: int, position: int) -> str:
        """The name of one parameter of a group, or where it is and its shape."""
        p = group["params"][position]
        if "param_names" in group:
            return str(group["param_names"][position])
        return self._known.get(
            p, f"parameter {position} of group {index} with shape {tuple(p.shape)}"
        )
