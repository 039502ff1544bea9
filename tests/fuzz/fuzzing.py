"""How many examples does a fuzz test try, and which text can be on a command line?

The suite tries the same few each time. `FUZZ_TIMES` multiplies them, and they are others
each time: that is `make fuzz`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

ASKED_FOR = os.environ.get("FUZZ_TIMES", "")


def fuzzed(examples: int) -> Callable[[Any], Any]:
    """Return a decorator for a test with `@given`: so many examples, as often as asked for."""

    def decorate(test: Any) -> Any:
        bounded = settings(
            max_examples=examples * int(ASKED_FOR or 1),
            derandomize=not ASKED_FOR,
            deadline=None,
            database=None,
            print_blob=True,
            report_multiple_bugs=False,
            # Fixtures are shared by a test's examples; each cleans up after itself.
            suppress_health_check=list(HealthCheck),
        )(test)
        return pytest.mark.timeout(0)(bounded) if ASKED_FOR else bounded

    return decorate


UNICODE = st.characters(exclude_categories=["Cs"])
# What a shell hands over: no NUL, and bytes that are no UTF-8 as halves of surrogate pairs.
WORDS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
        st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF),
    ),
    max_size=40,
)
GROUPS = st.text(UNICODE, min_size=1, max_size=512).filter(lambda group: len(group.encode()) <= 512)
