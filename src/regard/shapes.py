"""The tensor types and the axis letters that signatures use, named once.

Axes: b batch, s source position, t target position, q query position, k key position, h head,
e head_dim, d d_model, f d_ff, v vocabulary, n beam, r row of a running search.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["Bool", "Float", "Int", "Tensor"]
