"""Are names unique, sortable, and where everybody expects them?"""

from __future__ import annotations

import threading
import uuid

import pytest

from groupqueue.core.identifiers import new_id
from groupqueue.core.keys import ShardKeys, shard_prefix
from groupqueue.exceptions import ConfigurationError


def test_identifiers_are_version_7_in_32_hex_digits():
    identifier = new_id()

    assert len(identifier) == 32
    assert uuid.UUID(identifier).version == 7
    assert uuid.UUID(identifier).hex == identifier


def test_identifiers_sort_by_the_time_they_were_made():
    made = [new_id() for _ in range(5000)]

    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_identifiers_made_by_threads_at_once_are_unique():
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.extend([new_id() for _ in range(2000)]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(made)) == 16_000


def test_a_shards_keys_share_a_hash_tag():
    keys = ShardKeys(shard_prefix("orders", 2))

    assert keys.prefix == "gq:{orders:2}"
    assert keys.fifo("a:b") == "gq:{orders:2}:q:a:b"
    assert keys.lock("a") == "gq:{orders:2}:lock:a"
    assert keys.ready(3) == "gq:{orders:2}:ready:3"
    assert keys.worker("w") == "gq:{orders:2}:worker:w"
    assert keys.named("dead") == "gq:{orders:2}:dead"


@pytest.mark.parametrize("name", ["", "a b", "a{b", "a}b", "ü", "x" * 65, "a:b", "a\n"])
def test_a_queue_name_that_would_break_the_hash_tag_is_refused(name: str):
    with pytest.raises(ConfigurationError, match="queue name"):
        shard_prefix(name)


@pytest.mark.parametrize("name", ["default", "A-1_b.c", "x" * 64])
def test_other_queue_names_are_accepted(name: str):
    assert shard_prefix(name) == f"gq:{{{name}:0}}"
