"""When each pool is synced, with a fake clock."""

from dra_plugin.publishing.slices.queue import Limits, Queue


def test_pool_is_due_once_at_its_earliest_time() -> None:
    queue = Queue(Limits())
    queue.add("a", 30.0)
    queue.add("a", 2.0)
    queue.add("a", 5.0)
    queue.add("b", 1.0)
    assert queue.next_due() == 1.0
    assert queue.pop(0.5) is None
    assert [queue.pop(2.0), queue.pop(2.0), queue.pop(100.0)] == ["b", "a", None]
    assert queue.next_due() is None


def test_retry_delay_grows_until_a_success() -> None:
    queue = Queue(Limits())
    delays = []
    for _ in range(4):
        queue.failed("a", 0.0)
        delays.append(queue.next_due())
        queue.pop(1e6)
    assert delays == [0.005, 0.01, 0.02, 0.04]
    for _ in range(40):
        queue.failed("a", 0.0)
    queue.pop(1e9)
    queue.failed("a", 1e6)
    assert queue.next_due() == 1e6 + 60.0  # capped, because no event reports that the server accepts writes again
    queue.pop(1e9)
    queue.succeeded("a")
    queue.failed("a", 2e6)
    assert queue.next_due() == 2e6 + 0.005


def test_retry_after_of_the_server_is_respected() -> None:
    queue = Queue(Limits())
    queue.failed("a", 10.0, retry_after=7.0)
    assert queue.next_due() == 17.0


def test_long_retry_after_is_capped() -> None:
    queue = Queue(Limits())
    queue.failed("a", 10.0, retry_after=86400.0)
    assert queue.next_due() == 40.0


def test_retries_of_all_pools_share_a_rate_limit() -> None:
    """A hundred retries at once, then ten per second."""
    queue = Queue(Limits())
    for number in range(100):
        queue.failed(f"pool-{number}", 0.0)
    assert all(queue.pop(0.005) for _ in range(100))
    queue.failed("one more", 0.0)
    assert queue.next_due() == 0.1
    queue.failed("another", 0.0)
    queue.pop(0.1)
    assert queue.next_due() == 0.2


def test_pool_is_due_after_deletions_have_stopped() -> None:
    queue = Queue(Limits(debounce=0.02))
    for moment in (1.0, 1.01, 1.02, 1.025):
        queue.slices_deleted("a", moment)
    assert queue.pop(1.04) is None
    assert queue.pop(1.046) == "a"


def test_debounce_grows_with_repeated_deletions() -> None:
    queue = Queue(Limits(debounce=0.02, max_debounce=0.1, forget_after=60.0))
    delays = []
    for moment in (0.0, 1.0, 2.0, 3.0, 4.0, 100.0):
        queue.slices_deleted("a", moment)
        delays.append(round((queue.next_due() or 0.0) - moment, 6))
        assert queue.pop(moment + 1.0) == "a"
    assert delays == [0.02, 0.04, 0.08, 0.1, 0.1, 0.02]


def test_update_of_the_driver_is_not_debounced() -> None:
    queue = Queue(Limits(debounce=10.0))
    queue.slices_deleted("a", 0.0)
    queue.add("a", 1.0)
    assert queue.pop(1.0) == "a"
    assert queue.next_due() is None
