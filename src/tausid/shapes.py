"""Names for annotations of arrays: jaxtyping's where it is imported already, as in the test suite, which checks them.

Annotations are not evaluated otherwise, and importing jaxtyping takes longer than a simulation.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

Array = Any  # numpy's or JAX's

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool as Bool
    from jaxtyping import Complex as Complex
    from jaxtyping import Float as Float
    from jaxtyping import Int as Int
    from numpy.typing import ArrayLike as ArrayLike
else:

    class _Unchecked:
        def __class_getitem__(cls, item: Any) -> Any:
            return Any

    ArrayLike = Any
    Bool = Complex = Float = Int = _Unchecked
