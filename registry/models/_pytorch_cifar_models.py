"""The CIFAR networks of chenyaofo/pytorch-cifar-models: ResNets with convolutional shortcuts, and RepVGG.

Layers have the names of the published weights.
"""

import torch
from torch import nn
from torch.nn import functional


def _normalised(channels_in, channels, size, stride=1):
    """A convolution without bias that keeps the size at stride 1, and a batch norm."""
    convolution = nn.Conv2d(channels_in, channels, size, stride, padding=size // 2, bias=False)
    return convolution, nn.BatchNorm2d(channels)


def _averaged(x):
    return torch.mean(x, dim=(2, 3))


# ---- ResNet ----------------------------------------------------------------------------------------------


class _BasicBlock(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1, self.bn1 = _normalised(channels_in, channels, 3, stride)
        self.conv2, self.bn2 = _normalised(channels, channels, 3)
        # Option B of He et al. (2016): where the shape changes, the shortcut is a 1 x 1 convolution.
        plain = stride == 1 and channels_in == channels
        self.downsample = None if plain else nn.Sequential(*_normalised(channels_in, channels, 1, stride))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + shortcut)


class ResNet(nn.Module):
    """A network of 6n + 2 layers: three stages of n blocks with two layers each, and the first and last layer."""

    def __init__(self, depth, classes):
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1, self.bn1 = _normalised(3, 16, 3)
        self.layer1 = _stage(_BasicBlock, 16, 16, blocks, 1)
        self.layer2 = _stage(_BasicBlock, 16, 32, blocks, 2)
        self.layer3 = _stage(_BasicBlock, 32, 64, blocks, 2)
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        return self.fc(_averaged(self.layer3(self.layer2(self.layer1(x)))))


# ---- RepVGG ----------------------------------------------------------------------------------------------


class _RepVGGBlock(nn.Module):
    """The sum of a 3 x 3 convolution, a 1 x 1 convolution and, where the shape stays, the input, all normalised."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        plain = stride == 1 and channels_in == channels
        self.rbr_identity = nn.BatchNorm2d(channels) if plain else None
        self.rbr_dense = _branch(channels_in, channels, 3, stride)
        self.rbr_1x1 = _branch(channels_in, channels, 1, stride)

    def forward(self, x):
        out = self.rbr_dense(x) + self.rbr_1x1(x)
        return functional.relu(out if self.rbr_identity is None else out + self.rbr_identity(x))


def _branch(channels_in, channels, size, stride):
    branch = nn.Sequential()
    convolution, norm = _normalised(channels_in, channels, size, stride)
    branch.add_module("conv", convolution)
    branch.add_module("bn", norm)
    return branch


class RepVGG(nn.Module):
    """RepVGG-A as it is trained, with all branches. For CIFAR the first two stages keep the size of the picture."""

    def __init__(self, width, last_width, classes):
        super().__init__()
        first = min(64, int(64 * width))
        stages = [int(64 * width), int(128 * width), int(256 * width), int(512 * last_width)]
        self.stage0 = _RepVGGBlock(3, first, 1)
        self.stage1 = _stage(_RepVGGBlock, first, stages[0], 2, 1)
        self.stage2 = _stage(_RepVGGBlock, stages[0], stages[1], 4, 2)
        self.stage3 = _stage(_RepVGGBlock, stages[1], stages[2], 14, 2)
        self.stage4 = _stage(_RepVGGBlock, stages[2], stages[3], 1, 2)
        self.linear = nn.Linear(stages[3], classes)

    def forward(self, x):
        x = self.stage4(self.stage3(self.stage2(self.stage1(self.stage0(x)))))
        return self.linear(_averaged(x))


def _stage(block, channels_in, channels, blocks, stride):
    return nn.Sequential(
        block(channels_in, channels, stride), *(block(channels, channels, 1) for _ in range(blocks - 1))
    )
