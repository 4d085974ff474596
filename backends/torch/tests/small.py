"""A small network on which Captum is right: modules only, each ReLU used once, no ReLU6."""

from __future__ import annotations

from torch import Tensor, nn

CLASSES = 5


class Net(nn.Module):
    """Two convolutions, and one score for each class."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.relu1 = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.second = nn.Conv2d(8, 8, 3, stride=2)
        self.relu2 = nn.ReLU()
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.relu1(self.first(x)))
        return self.head(self.relu2(self.second(x)).mean((2, 3)))
