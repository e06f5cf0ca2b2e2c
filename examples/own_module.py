"""Early exits for a torch module of your own: python examples/own_module.py.

A small residual network is trained on handwritten digits, as yours was on your data; then it is frozen. `offramp.fit`
cuts it where its blocks repeat, and fits exits. The last lines save the model and load it again. Needs
`offramp[demo]`.
"""

import tempfile

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import offramp
from offramp.demo import PREPROCESSING, digits


class Block(nn.Module):
    """Two convolutions beside an identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norm = nn.BatchNorm2d(width)

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps of the same shape."""
        return maps + self.second(self.norm(self.first(maps)).relu())


class Network(nn.Module):
    """A residual network for images `N x 1 x 8 x 8`."""

    def __init__(self, width: int = 24, depth: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return class scores `N x 10`."""
        maps = self.stem(images)
        for block in self.blocks:
            maps = block(maps)
        return self.head(maps.mean((2, 3)))


# Your own training. The data is already in three parts: train, validation, test.
torch.manual_seed(0)
data, network = digits(), Network()
rows = data.train.read(0, len(data.train))
images, labels = PREPROCESSING(rows.inputs), torch.as_tensor(rows.labels)
optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
for _ in range(8):
    for batch in torch.randperm(len(labels)).split(32):
        optimizer.zero_grad()
        cross_entropy(network(images[batch]), labels[batch]).backward()
        optimizer.step()
network.eval()

# Fit exits; the network stays as it is. `validation` must be new to the network.
model = offramp.fit(network, data.train, data.validation, preprocessing=PREPROCESSING)
print(model.frontier)

# Choose a point, and measure it on samples that nothing was fitted on.
fast = model.at(cost=0.5)
print(fast.evaluate(data.test))

# The class is only in this file: save the exits, and give the network to `load`.
folder = tempfile.mkdtemp()
fast.save(folder)
loaded = offramp.load(folder, backbone=model.backbone)
for row in loaded.predict(data.test.read(0, 5).inputs).to_dicts():
    print(row)
