"""Do waits grow as documented, and attempts end where they should?"""

from __future__ import annotations

import pytest

from groupqueue.core.retries import RetryPolicy

policy = RetryPolicy()


@pytest.mark.parametrize(
    ("failures", "shortest", "longest"),
    [(1, 0.5, 1), (2, 1, 2), (3, 2, 4), (9, 128, 256), (10, 150, 300), (1000, 150, 300)],
)
def test_waits_double_up_to_the_cap_and_half_of_each_is_chance(
    failures: int, shortest: float, longest: float
):
    assert policy.backoff_seconds(failures, 0.0) == shortest
    assert policy.backoff_seconds(failures, 1.0) == longest
    assert policy.backoff_seconds(failures, 0.5) == (shortest + longest) / 2


def test_a_base_and_a_cap_of_ones_own():
    own = RetryPolicy(backoff_base_seconds=0.1, backoff_cap_seconds=0.1)

    assert [own.backoff_seconds(failures, 1.0) for failures in (1, 2, 50)] == [0.1] * 3


def test_endless_failures_do_not_overflow():
    own = RetryPolicy(backoff_cap_seconds=1e9)

    assert own.backoff_seconds(10**9, 1.0) == 1e9


def test_the_last_of_max_attempts_exhausts():
    assert [failures for failures in range(1, 8) if policy.exhausts(failures)] == [5, 6, 7]
    assert RetryPolicy(max_attempts=1).exhausts(1)


def test_the_last_of_max_crashes_is_poison():
    assert [crashes for crashes in range(6) if policy.is_poison(crashes)] == [3, 4, 5]
    assert RetryPolicy(max_crashes=1).is_poison(1)
    assert not RetryPolicy(max_crashes=1).is_poison(0)


def test_a_message_may_hold_its_group_until_max_block_is_over():
    own = RetryPolicy(max_block_seconds=60)

    assert [own.block_left_seconds(blocked) for blocked in (0.0, 59.5, 60.0, 90.0)] == [
        60.0,
        0.5,
        0.0,
        -30.0,
    ]


def test_without_max_block_a_message_may_hold_its_group_for_ever():
    assert policy.block_left_seconds(1e12) == float("inf")
