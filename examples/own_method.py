"""A method and a policy of your own, beside others of the laboratory: python examples/own_method.py.

`fit` trains linear exits on the labels; `ahead` leaves where the two largest probabilities differ enough. The
laboratory (`offramp-bench`) registers the methods of publications; all see the same features here. When your file
works, the same names join the committed comparison, on its samples and seeds:

    offramp-bench run --method own_method:fit --trust own_method:fit --track exits --task superpixels

Needs `offramp[demo]`, and the laboratory installed: pip install ./lab.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

import offramp
from offramp.demo import PREPROCESSING, digits, trained_networks
from offramp.exits import LinearExits
from offramp.methods import FittedExits
from offramp.policy import Policy


@dataclass(frozen=True)
class Settings:
    """Options of the method."""

    epochs: int = 15


DEFAULT = Settings()


def fit(fit, tune, costs, settings=DEFAULT):
    """Train one linear layer after each stage on cached features."""
    torch.manual_seed(0)
    early = tuple(stage for stage in range(len(fit.widths)) if stage not in fit.own_heads)
    exits = LinearExits(fit.widths, early, fit.num_classes)
    optimizer = torch.optim.Adam(exits.parameters(), lr=0.003)
    for epoch in range(settings.epochs):
        for batch in fit.shuffled(batch_size=64, seed=0, epoch=epoch):
            optimizer.zero_grad()
            sum(cross_entropy(logits[0], batch.labels) for logits in exits(batch.features.float())).backward()
            optimizer.step()
    return FittedExits(exits.eval())


class Ahead(Policy):
    """Leave where the largest probability is far enough ahead of the next."""

    name = "own_method:ahead"
    reads, parameters, per_exit = frozenset({"margin"}), frozenset({"threshold"}), frozenset()
    stay_values = {"threshold": 2.0}  # noqa: RUF012

    def step(self, observation, carry, parameters):
        """Decide for each sample."""
        return observation.margin >= parameters["threshold"], carry

    def candidates(self, tuning):
        """Propose thresholds: quantiles of the margins on the tune split."""
        levels = tuning.margin[:, list(tuning.early)].quantile(torch.linspace(0, 1, 30))
        return [tuning.point(self.name, threshold=level) for level in [*levels, torch.tensor(2.0)]]

    def mul_adds(self, num_classes):
        """Return the operations of a decision."""
        return 3 * num_classes + 1


ahead = Ahead()

if __name__ == "__main__":
    data = digits()
    _, network = trained_networks(data.train)
    names = ["own_method:fit", "own_method:ahead"]
    options = {"preprocessing": PREPROCESSING, "trust": names}
    print("method          policy            mean accuracy over all budgets, tune split")
    for method, policy in (names, ("default", "threshold"), ("boosted", "entropy")):
        model = offramp.fit(network, data.train, data.validation, method=method, policies=[policy], **options)
        print(f"{method:<15} {policy:<17} {100 * model.frontier.area:.2f} %")
