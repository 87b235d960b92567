"""Groups of published sets: the folder that a set is told with."""

import numpy as np
import pytest

from testbed.data.autoeval import find_sets, group_of


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("/data/val/cifar-10.1-c/fog", "cifar-10.1-c"),
        ("/data/val/cifar-10.1/v6", "cifar-10.1"),
        ("/data/val/cifar-10.1", "cifar-10.1"),  # the set is the benchmark
        ("/data/cifar10/cifar-10.1", "cifar-10.1"),  # below a folder named after CIFAR-10 itself
        ("/data/cifar-10.1-c/cifar-10.1-c-fog", "cifar-10.1-c"),
        ("/data/flowers-c/fog", "flowers-c"),
        ("/data/train_data/new_data_000", "train_data"),
    ],
)
def test_group_is_the_benchmark_that_a_set_belongs_to(path, group):
    assert group_of(path) == group


def test_set_that_is_named_by_itself_is_its_own_group():
    assert group_of("/data/flowers", named_by_itself=True) == "flowers"
    assert group_of("/data/cifar-10.1-c/fog", named_by_itself=True) == "cifar-10.1-c"


def test_link_to_a_folder_above_is_not_followed(tmp_path):
    (tmp_path / "deep" / "set").mkdir(parents=True)
    np.save(tmp_path / "deep" / "set" / "data.npy", np.zeros((1, 2, 2, 3), dtype=np.uint8))
    (tmp_path / "deep" / "up").symlink_to(tmp_path)
    assert find_sets(str(tmp_path)) == ([str(tmp_path / "deep" / "set")], [str(tmp_path / "deep" / "up")])
