"""The images of CIFAR-10 and CIFAR-100, shared by the files that declare settings on them.

Both are read as published (the Python or the binary batches, torchvision's folder) or from an .npz file.
"""

from testbed import ArrayDataset
from testbed.data.cifar_files import FOLDERS

NPZ = "as an .npz file with `images` (n, 32, 32, 3) uint8 and `labels`"


def _images(data: str, part: str, num_classes: int) -> ArrayDataset:
    return ArrayDataset(
        name=f"{data}/{data}_{part}.npz",
        also=FOLDERS[data],
        part=part,
        num_classes=num_classes,
        source=f"cs.toronto.edu/~kriz/cifar.html, unpacked, or its {part} images {NPZ}",
    )


TEST, TRAIN = _images("cifar10", "test", 10), _images("cifar10", "train", 10)
TEST_100, TRAIN_100 = _images("cifar100", "test", 100), _images("cifar100", "train", 100)
TEST_SIZE, TRAIN_SIZE = 10_000, 50_000
