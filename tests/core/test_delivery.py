"""Does a handler see the message and how its hand-over came about?"""

from __future__ import annotations

from groupqueue.core.codec import Content
from groupqueue.core.delivery import Delivery, message_from
from groupqueue.core.messages import Lease, moment

LEASE = Lease("group-1", 7001, "0" * 32, b"body", 3, 6, 2, 1796007991297, 1796007999000)
CONTENT = Content("orders.paid", {"id": 17}, {"trace": "x"})
MESSAGE = message_from(LEASE, CONTENT)


def test_a_message_is_its_lease_and_its_decoded_body():
    assert (MESSAGE.id, MESSAGE.group, MESSAGE.topic) == ("0" * 32, "group-1", "orders.paid")
    assert (MESSAGE.payload, MESSAGE.headers, MESSAGE.priority) == ({"id": 17}, {"trace": "x"}, 3)
    assert MESSAGE.published_at == moment(1796007991297)
    assert MESSAGE.expires_at == moment(1796007999000)
    assert message_from(LEASE._replace(expires_ms=0), Content("t", 1, {})).expires_at is None


def test_a_delivery_tells_attempts_and_crashes_apart():
    delivery = Delivery(LEASE, CONTENT, "default")

    assert (delivery.deliveries, delivery.attempt, delivery.crashes) == (6, 3, 3)
    assert (delivery.fencing_token, delivery.lease, delivery.queue) == (7001, LEASE, "default")
    assert (delivery.id, delivery.group, delivery.topic) == (MESSAGE.id, "group-1", "orders.paid")
    assert (delivery.payload, delivery.headers) == ({"id": 17}, {"trace": "x"})
    assert delivery.message == MESSAGE
    assert delivery.message is delivery.message


def test_a_delivery_learns_that_its_lease_is_lost():
    delivery = Delivery(LEASE, CONTENT, "default")
    assert delivery.lease_lost is False

    delivery.mark_lost()

    assert delivery.lease_lost is True


def test_a_delivery_may_be_logged():
    shown = repr(Delivery(LEASE, CONTENT, "default"))

    assert "17" not in shown.replace("group-1", "")
    assert "orders.paid" in shown
    assert "attempt 3" in shown
