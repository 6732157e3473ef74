"""Changing a status only where it changes: a whole one is validated anew each time, and most ticks change nothing."""

from __future__ import annotations

from typing import Any, TypeVar

from kneekeeper.api.model import ApiModel

_Model = TypeVar("_Model", bound=ApiModel)


def changed(model: _Model, **changes: Any) -> _Model:
    """The model with these values; itself where it has them already. Raises pydantic.ValidationError."""
    if all(getattr(model, name) == value for name, value in changes.items()):
        return model
    return model.with_changes(**changes)
