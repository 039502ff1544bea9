"""Which parts do tests of proofs share?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proof import stamps


@pytest.fixture
def stamped() -> Iterator[None]:
    """Scripts are stamped during the test."""
    with stamps.stamped():
        yield
