"""Files as data: known by their hash, small where they are shown."""

import hashlib
import json
from dataclasses import FrozenInstanceError

import pytest

from offramp.backbone import Attachment, Preprocessing

CONTENT = bytes(range(256)) * 40


def test_is_known_by_its_hash() -> None:
    one = Attachment(CONTENT)
    assert one.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert one.describe() == {"sha256": one.sha256}
    assert json.loads(json.dumps(one.describe())) == one.describe()


def test_equal_content_is_the_same_file() -> None:
    assert Attachment(CONTENT) == Attachment(bytes(CONTENT))
    assert hash(Attachment(CONTENT)) == hash(Attachment(bytes(CONTENT)))
    assert Attachment(CONTENT) != Attachment(CONTENT[1:])


def test_is_not_shown_whole_and_does_not_change() -> None:
    one = Attachment(CONTENT)
    assert len(repr(one)) < 100
    with pytest.raises(FrozenInstanceError):
        one.content = b"other"  # type: ignore[misc]


def test_a_preprocessing_names_it_by_its_hash_and_hands_it_over() -> None:
    files = [Attachment(b"one"), Attachment(b"two")]
    steps = Preprocessing().then("tokenize", tokenizer=files[0], longest=8, pad=0).then("channels_first")
    steps = steps.then("tokenize", tokenizer=files[1], longest=8, pad=0)
    assert steps.attachments() == files
    described = steps.describe()
    assert json.loads(json.dumps(described)) == described
    assert described[0] == ["tokenize", {"tokenizer": {"sha256": files[0].sha256}, "longest": 8, "pad": 0}]
    assert Preprocessing().then("channels_first").attachments() == []
