"""Triton's interpreter without what it does again and again, or for checks it does not make."""

import contextlib
from dataclasses import replace
from functools import cache
from typing import Any


def hasten_interpreter() -> None:
    """Have the interpreter do once what it does at every launch and operation: half of its time."""
    with contextlib.suppress(ImportError):
        from triton.runtime import interpreter

        _hasten_interpreter(interpreter)
        _patch_language_once(interpreter)
        _describe_types_once(interpreter)


def _hasten_interpreter(interpreter: Any) -> None:
    """It works sums of integers out a second time, for an assertion of its debug mode only."""
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=builder.options.debug)


@cache
def _patch_language_once(interpreter: Any) -> None:
    """Find the functions of the language that it replaces at a launch once, not at each.

    Until a launch ends they stay replaced, so that functions that a kernel calls replace no more.
    """
    patch, scope_type = interpreter._patch_lang, interpreter._LangPatchScope
    language = (interpreter.tl, interpreter.tl.core)
    #: What is replaced for the modules that a function sees, besides what is for some others.
    known: dict[tuple[tuple[Any, ...], Any], list[tuple[object, str, object]]] = {}
    done: list[Any] = []
    launch = scope_type()

    class Launch(scope_type):  # type: ignore[misc, valid-type]
        """Also lists what it puts in place, and undoes what was done for all functions called."""

        def __init__(self) -> None:
            super().__init__()
            self.made: list[tuple[object, str, object]] = []

        def set_attr(self, obj: object, name: str, value: object) -> None:
            self.made.append((obj, name, value))
            super().set_attr(obj, name, value)

        def restore(self) -> None:
            done.clear()
            super().restore()

    def quick(fn: Any) -> Any:
        nonlocal launch
        seen = tuple(id(one) for one in language if any(v is one for v in fn.__globals__.values()))
        is_outermost = not done
        if is_outermost:
            launch = Launch()
        if seen not in done:
            key = (tuple(done), seen)
            if key not in known:
                scope = patch(fn)
                known[key] = scope.made
                launch._changes += scope._changes
            else:
                for change in known[key]:
                    launch.set_attr(*change)
            done.append(seen)
        return launch if is_outermost else scope_type()

    interpreter._LangPatchScope = Launch
    interpreter._patch_lang = quick


@cache
def _describe_types_once(interpreter: Any) -> None:
    """What numpy calls a type, and the shape of a tensor as the language has it."""
    tl = interpreter.tl
    in_numpy, names = interpreter._get_np_dtype, {}

    def named(type: Any) -> Any:
        if type.scalar.name not in names:
            names[type.scalar.name] = in_numpy(type)
        return names[type.scalar.name]

    interpreter._get_np_dtype = named
    original = tl.core.tensor.__init__

    @cache
    def described(shape: tuple[int, ...]) -> Any:
        found = tl.core.tensor.__new__(tl.core.tensor)
        original(found, None, tl.block_type(tl.int32, shape) if shape else tl.int32)
        return found.numel, found.shape

    def init(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.numel, self.shape = described(type.shape if type.is_block() else ())

    tl.core.tensor.__init__ = init
