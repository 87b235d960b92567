"""Small data in the published forms: the AutoEval folders, CIFAR-10's own files, and a network that fits them."""

import io
import pickle
import struct

import numpy as np

CORRUPTED, FLICKR = ("fog", "frost"), ("Sept_24", "Oct_01")


def pictures(labels, noise, seed):
    """32 x 32 pictures of level stripes, whose colour tells the class; `noise` hides both."""
    rng = np.random.default_rng(seed)
    colours = np.random.default_rng(1).uniform(0, 1, (10, 3))
    stripes = np.where(np.arange(32) % 4 < 2, 1.0, 0.2)[:, None, None]
    clean = colours[labels][:, None, None, :] * stripes * np.ones((1, 32, 1))
    noisy = clean + noise * rng.normal(size=(len(labels), 32, 32, 3)) + noise * rng.normal(size=(len(labels), 1, 1, 3))
    return (255 * np.clip(noisy, 0, 1)).astype(np.uint8)


def save_set(folder, n, noise, seed, name="data.npy"):
    labels = np.arange(n) % 10
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / name, pictures(labels, noise, seed))
    np.save(folder / "labels.npy", labels)


def save_benchmark(root, fit_sets=5, n=20):
    """The published layout some folders down, with CIFAR-10.1 directly in its folder."""
    for number in range(fit_sets):
        save_set(root / "train" / "train_data", n, 0.1 * number, number, f"new_data_{number:03d}.npy")
    save_set(root / "val" / "cifar-10.1", n, 0.1, 100)
    for number, name in enumerate(CORRUPTED):
        save_set(root / "val" / "cifar-10.1-c" / name, n, 0.15 * (1 + number), 200 + number)
    for number, name in enumerate(FLICKR):
        save_set(root / "val" / "cifar10-f-32" / name, n, 0.1 * (1 + number), 300 + number)
    save_batches(root / "own" / "cifar-10-batches-py", n=20)


def batches(n=40):
    """File name of the Python form -> images and labels."""
    labels = np.arange(n) % 10
    names = ["test_batch", *(f"data_batch_{i}" for i in range(1, 6))]
    return {name: (pictures(labels, 0.1, 400 + i), labels) for i, name in enumerate(names)}


def planes(images):
    """Rows of 3,072 bytes: all of red, then green, then blue."""
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


class _Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote its strings: names and pixels of the published files are such."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012, the base class has it so

    def save_string(self, text):
        self.write(b"U" + bytes([len(text)]) + text if len(text) < 256 else b"T" + struct.pack("<i", len(text)) + text)
        self.memoize(text)

    dispatch[bytes] = save_string


def python2_pickle(content):
    file = io.BytesIO()
    _Python2Pickler(file, 2).dump(content)
    return file.getvalue()


def save_batches(folder, n=40):
    folder.mkdir(parents=True)
    for name, (images, labels) in batches(n).items():
        content = {b"data": planes(images), b"labels": labels.tolist(), b"batch_label": name.encode()}
        (folder / name).write_bytes(python2_pickle(content))


def save_binary(folder, n=40):
    folder.mkdir(parents=True)
    for name, (images, labels) in batches(n).items():
        rows = np.concatenate([labels[:, None].astype(np.uint8), planes(images)], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())


def save_weights(model, path):
    """Random convolutions under a last layer that was fitted to clean pictures: it knows the classes."""
    import torch

    torch.manual_seed(0)
    network = model.classifier_loader.network().eval()
    # Shortcuts alone, and large: a rotation head then learns within a few steps which way stripes run.
    for name, parameter in network.named_parameters():
        if name.endswith("bn2.weight"):
            torch.nn.init.constant_(parameter, 0.0)
    torch.nn.init.constant_(network.bn1.weight, 30.0)
    labels = np.arange(200) % 10
    images = torch.from_numpy(pictures(labels, 0.05, 500)).permute(0, 3, 1, 2) / 255
    seen = []
    handle = network.fc.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (model.normalization.mean, model.normalization.std))
    with torch.inference_mode():
        network((images - mean) / std)
    handle.remove()
    features = torch.cat([seen[0], torch.ones(len(labels), 1)], dim=1).double()
    wanted = 6 * torch.nn.functional.one_hot(torch.from_numpy(labels), 10).double()
    solved = torch.linalg.lstsq(features, wanted, driver="gelsd").solution.float()
    state = network.state_dict() | {"fc.weight": solved[:-1].T.contiguous(), "fc.bias": solved[-1].contiguous()}
    torch.save(state, path)
