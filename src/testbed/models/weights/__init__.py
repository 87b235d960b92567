"""Weights of a classifier: found locally before any download, read without running code, and loaded strictly."""

from testbed.models.weights.checkpoints import (
    UNSAFE_VARIABLE,
    is_refused_code,
    only_tensors,
    read_tensors,
    state_sha256,
    unwrapped,
)
from testbed.models.weights.heads import Head
from testbed.models.weights.loading import (
    bytes_of,
    checkpoint_is_given,
    checkpoint_override,
    hub_without_network,
    load_checkpoint,
    local_downloads,
    note_file,
    noting_files,
    with_weights,
)
from testbed.models.weights.places import (
    WEIGHTS_VARIABLE,
    MissingWeights,
    Published,
    download,
    find_local,
    folders,
    hint,
    package_file,
    read_published,
)

__all__ = [
    "UNSAFE_VARIABLE",
    "WEIGHTS_VARIABLE",
    "Head",
    "MissingWeights",
    "Published",
    "bytes_of",
    "checkpoint_is_given",
    "checkpoint_override",
    "download",
    "find_local",
    "folders",
    "hint",
    "hub_without_network",
    "is_refused_code",
    "load_checkpoint",
    "local_downloads",
    "note_file",
    "noting_files",
    "only_tensors",
    "package_file",
    "read_published",
    "read_tensors",
    "state_sha256",
    "unwrapped",
    "with_weights",
]
