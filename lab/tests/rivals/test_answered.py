import torch

from offramp_bench.rivals.answered import AnsweredSource
from tests.methods.examples import clusters


def test_only_the_labels_change() -> None:
    plain = clusters(50, own_heads=(1,), seed=4)
    source = AnsweredSource(plain)
    assert (source.num_samples, source.num_classes) == (50, 3)
    assert (source.widths, source.own_heads) == (plain.widths, (1, 2))
    assert source.ids().tolist() == plain.ids().tolist()
    assert torch.equal(source.sizes(), plain.sizes())
    shuffled = plain.shuffled(batch_size=20, seed=1, epoch=2), source.shuffled(batch_size=20, seed=1, epoch=2)
    ordered = plain.in_order(batch_size=20), source.in_order(batch_size=20)
    differing = 0
    for before, after in (*zip(*shuffled, strict=True), *zip(*ordered, strict=True)):
        assert torch.equal(before.features, after.features)
        assert torch.equal(before.ids, after.ids)
        assert torch.equal(after.labels, before.own_logits[2].argmax(1))
        differing += int((before.labels != after.labels).sum())
    assert differing > 0
