from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from testbed.data.folders import StandardDataset
from testbed.data.images import decode_rgb, file_state, packed_samples, read_rgb
from testbed.errors import ImageError

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "CMYK", "1", "LA"])
def test_every_mode_comes_as_rgb_as_pil_converts_it(tmp_path, mode):
    path = tmp_path / f"picture.{'tif' if mode == 'CMYK' else 'png'}"
    Image.fromarray(PIXELS).convert(mode).save(path)
    found = read_rgb(path)
    with Image.open(path) as expected:
        assert (np.asarray(found) == np.asarray(expected.convert("RGB"))).all()
    assert found.mode == "RGB"


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".bmp", ".tif"])
def test_truncated_file_is_named(tmp_path, suffix):
    path = tmp_path / f"picture{suffix}"
    Image.fromarray(PIXELS).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ImageError, match=r"^unreadable image .*/picture") as error:
        read_rgb(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"GIF? no", None])
def test_what_is_no_picture_is_named(tmp_path, content):
    path = tmp_path / "picture.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ImageError, match=r"^unreadable image .*/picture\.png"):
        read_rgb(path)


def test_packed_pictures_are_the_data_that_a_folder_of_them_is(tmp_path):
    for name in ("a/1.png", "b/2.png"):
        (tmp_path / name).parent.mkdir()
        Image.fromarray(PIXELS).convert("L").save(tmp_path / name)
    folder = StandardDataset(path=tmp_path).open([])
    pictures = [(tmp_path / name).read_bytes() for name in folder.ids]
    pack = tmp_path / "pack"
    pack.write_bytes(b"".join(pictures))
    packed = packed_samples(
        folder.ids, folder.targets, [len(p) for p in pictures], pictures.__getitem__, {pack: file_state(pack)}
    )
    assert packed.fingerprint == folder.fingerprint
    assert packed.cache_salt != folder.cache_salt
    assert [packed.load(i).tobytes() for i in (0, 1)] == [folder.load(i).tobytes() for i in (0, 1)]


@pytest.mark.parametrize("data", [b"", b"GIF? no"])
def test_bytes_that_are_no_picture_are_named(data):
    with pytest.raises(ImageError, match=r"^unreadable image 7\.jpg in some\.tar: expected one of JPEG, "):
        decode_rgb(data, "7.jpg in some.tar")
