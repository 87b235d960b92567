"""The test images of CIFAR-10, shared by the files that declare settings on them."""

from testbed import ArrayDataset

NPZ = "as an .npz file with `images` (n, 32, 32, 3) uint8 and `labels`"
TEST = ArrayDataset(
    name="cifar10/cifar10_test.npz", num_classes=10, source=f"the test batch of cs.toronto.edu/~kriz/cifar.html {NPZ}"
)
TEST_SIZE = 10_000
