"""The native kernels on each instruction set that this processor has."""

from collections.abc import Iterator

import pytest

from regard.kernels import native


@pytest.fixture(params=["portable", "avx2", "avx512"])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Kernels run on that instruction set."""
    if native.absence():
        pytest.skip(f"no native kernels: {native.absence()}")
    if request.param not in native.module().isas():
        pytest.skip(f"this processor has no {request.param}")
    before = native.module().isa()
    native.module().use_isa(request.param)
    yield request.param
    native.module().use_isa(before)
