"""The CIFAR residual network of He et al. (2016), section 4.2, with parameter-free shortcuts (option A)."""

import torch
from torch import nn
from torch.nn import functional


class _Block(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self._stride = stride
        self._more = channels - channels_in

    def forward(self, x):
        out = functional.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self._more:  # option A: every second pixel, and zeros for the new channels, half of them before the others
            x = functional.pad(
                x[:, :, :: self._stride, :: self._stride], (0, 0, 0, 0, self._more // 2, self._more // 2)
            )
        return functional.relu(out + x)


class CifarResNet(nn.Module):
    """A network of 6n + 2 layers. Layer names are those of the weights: akamaster/pytorch_resnet_cifar10."""

    def __init__(self, depth, classes=10):
        super().__init__()
        blocks = (depth - 2) // 6  # per stage: three stages of blocks with two layers, and the first and last layer
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = self._stage(16, 16, blocks, 1)
        self.layer2 = self._stage(16, 32, blocks, 2)
        self.layer3 = self._stage(32, 64, blocks, 2)
        self.linear = nn.Linear(64, classes)

    @staticmethod
    def _stage(channels_in, channels, blocks, stride):
        first = _Block(channels_in, channels, stride)
        return nn.Sequential(first, *(_Block(channels, channels, 1) for _ in range(blocks - 1)))

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(torch.mean(x, dim=(2, 3)))
