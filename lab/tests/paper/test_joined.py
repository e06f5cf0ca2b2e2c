import torch

from offramp.features._batch import MemorySource
from offramp_bench.paper.joined import JoinedSource


def source(count: int, first: int) -> MemorySource:
    ids = torch.arange(first, first + count)
    return MemorySource(ids[:, None].float(), {0: torch.zeros(count, 2)}, ids % 2, (1,), ids=ids)


class TestJoinedSource:
    joined = JoinedSource([source(10, 0), source(5, 100)])

    def test_every_sample_comes_once(self) -> None:
        batches = list(self.joined.shuffled(batch_size=4, seed=0, epoch=0))
        assert sorted(int(one) for batch in batches for one in batch.ids) == sorted(self.joined.ids().tolist())
        assert self.joined.num_samples == 15

    def test_the_order_follows_from_seed_and_epoch(self) -> None:
        def order(epoch: int) -> list[int]:
            return [int(one) for b in self.joined.shuffled(batch_size=4, seed=3, epoch=epoch) for one in b.ids]

        assert order(0) == order(0) != order(1)

    def test_in_order_goes_source_by_source(self) -> None:
        ids = [int(one) for batch in self.joined.in_order(batch_size=4) for one in batch.ids]
        assert ids == self.joined.ids().tolist()
