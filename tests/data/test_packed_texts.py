import pickle

import pytest

from offramp.data.packed_texts import PackedTexts

TEXTS = ["purrs", "", "müde", b"caf\xe9.png".decode(errors="surrogateescape"), "😀" * 100]


def test_it_is_a_sequence_of_the_texts() -> None:
    packed = PackedTexts(iter(TEXTS))
    assert list(packed) == TEXTS
    assert packed[-1] == TEXTS[-1]
    assert packed[1:4] == TEXTS[1:4]
    assert packed[3:1] == packed[9:] == []
    assert packed.index("müde") == 2
    with pytest.raises(IndexError):
        packed[5]


def test_no_texts() -> None:
    assert list(PackedTexts([])) == []


def test_a_pickled_one_is_little_more_than_the_bytes() -> None:
    packed = PackedTexts(f"{row:06}" for row in range(1000))
    content = pickle.dumps(packed)
    assert len(content) < 1000 * (6 + 8) + 1000
    assert pickle.loads(content)[999] == "000999"


def test_buffers_go_out_of_band() -> None:
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(PackedTexts(["a" * 1000] * 1000), protocol=5, buffer_callback=buffers.append)
    assert sum(buffer.raw().nbytes for buffer in buffers) == 1_000_000 + 8 * 1001
