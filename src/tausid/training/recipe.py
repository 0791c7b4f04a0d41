"""A recipe: what the model is, how it is integrated, where its weights start, what trains it, what is held out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tausid.errors import ConfigError, StorageError
from tausid.model.structure import AUTO, Integration, Structure, as_settings
from tausid.schema import SchemaError, as_schema
from tausid.training.parts import (
    PARTS,
    Adam,
    Fixed,
    Folds,
    FromLinear,
    Given,
    LastShare,
    LevenbergMarquardt,
    PaperTestHalf,
    Random,
    RandomDynamics,
    Search,
)
from tausid.training.settings import as_part, changed, part_as_dict, part_from_dict, part_of


@dataclass(frozen=True)
class Recipe:
    """All that a fit does, but for the data, tau and the seed.

    Args:
        structure: what the model is.
        integration: how it is integrated.
        start: where the weights start.
        trainer: what trains them.
        holdout: what is held out to choose the model with; None for nothing, `auto` for folds, or for the end of long
            records.
        search: whether held-out data choose the structure.
        name: what the recipe is called.

    Raises:
        ConfigError: parts that do not go together.

    Example:
        >>> import tausid
        >>> recipe = tausid.recipes.paper(nx=2)
        >>> recipe.change({"trainer.steps": 300}).trainer.steps
        300
    """

    structure: Structure = field(default_factory=Structure)
    integration: Integration = field(default_factory=Integration)
    start: FromLinear | RandomDynamics | Random = field(default_factory=FromLinear)
    trainer: LevenbergMarquardt | Adam = field(default_factory=LevenbergMarquardt)
    holdout: Folds | LastShare | Given | PaperTestHalf | str | None = AUTO
    search: Fixed | Search = field(default_factory=Search)
    name: str = "own"

    def __post_init__(self) -> None:
        for part, kinds in PARTS.items():
            value = getattr(self, part)
            if not isinstance(value, kinds) and not (part == "holdout" and (value is None or value == AUTO)):
                names = ", ".join(kind.__name__ for kind in kinds)
                raise ConfigError(f"`{part}` of a recipe must be one of {names}; got {value!r}. Correct it.")
        if isinstance(self.trainer, Adam) and self.structure.initial_state == "free":
            raise ConfigError(
                "`initial_state` must be 'encoder' where Adam trains on windows, as a free state belongs to a whole "
                "record; got 'free'. Set structure.initial_state=encoder, or train by Levenberg-Marquardt."
            )
        if self.structure.encoder == "mlp" and self.structure.initial_state == "encoder":
            self._check_plain_encoder()
        if isinstance(self.trainer, LevenbergMarquardt) and self.structure.dae:
            raise ConfigError("`dae` must be false with Levenberg-Marquardt, which has no such penalty; got true.")
        if isinstance(self.trainer, Adam) and isinstance(self.start, FromLinear) and self.start.stretches:
            raise ConfigError(
                "`stretches` must be false where Adam trains on windows, which are stretches already; got true. Leave "
                "it out, or train by Levenberg-Marquardt."
            )

    def _check_plain_encoder(self) -> None:
        if isinstance(self.trainer, LevenbergMarquardt) or isinstance(self.start, FromLinear):
            raise ConfigError(
                "`encoder` must be 'residual' where its linear part is fitted to states, by Levenberg-Marquardt or a "
                "linear start; got 'mlp'. Change one."
            )

    @property
    def protocol(self) -> str:
        """`paper` where the test record takes part in the choice of the model, else `clean`."""
        return "paper" if isinstance(self.holdout, PaperTestHalf) else "clean"

    def change(self, settings: Mapping[str, Any]) -> Recipe:
        """The recipe with other settings.

        Args:
            settings: values by key, such as `trainer.iterations`; whole parts by their name, such as `holdout`, with an
                object or its kind in words, such as `none` or `folds`.

        Returns:
            The recipe.

        Raises:
            ConfigError: an unknown key (the nearest known one is named), a key of another trainer, or a value that
                breaks its rule.
        """
        parts = {part: as_part(self, part, value) for part, value in settings.items() if "." not in part}
        for key, value in as_settings(settings).items():
            part, dot, rest = key.partition(".")
            if dot:
                held = parts[part] if part in parts else part_of(self, part)
                parts[part] = changed(held, part, rest, value)
        return dataclasses.replace(self, **parts)  # parts must go together only now

    def with_structure(self, **settings: Any) -> Recipe:
        """The recipe with other settings of its structure.

        Args:
            **settings: fields of `Structure`.

        Returns:
            The recipe.
        """
        return dataclasses.replace(self, structure=dataclasses.replace(self.structure, **settings))

    def as_dict(self) -> dict[str, Any]:
        """The recipe as plain JSON values."""
        return {"name": self.name, **{part: part_as_dict(getattr(self, part)) for part in PARTS}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """The recipe back from `as_dict`.

        Args:
            values: what `as_dict` gave.

        Returns:
            The recipe.

        Raises:
            StorageError: it is not what `as_dict` gives.
        """
        try:
            parts = {part: part_from_dict(part, values[part]) for part in PARTS}
            return cls(**parts, name=as_schema(values["name"], str))
        except (KeyError, ConfigError, SchemaError) as error:
            raise StorageError(f"the recipe of a model must be as tausid writes it; it is not ({error}).") from None
