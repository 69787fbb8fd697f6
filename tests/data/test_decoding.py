"""Images are decoded in threads, block by block, in order."""

from catro_deploy.data import decoding
from catro_deploy.data.decoding import in_threads


def test_many_items_are_submitted_in_blocks_and_keep_their_order(monkeypatch):
    monkeypatch.setattr(decoding, "BLOCK", 40)
    started = []

    def doubled(item):
        started.append(item)
        return 2 * item

    outcomes = in_threads(doubled, range(101))
    assert next(outcomes) == 0
    assert max(started) < 40
    assert [0, *outcomes] == [2 * item for item in range(101)]
