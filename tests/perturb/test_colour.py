import numpy as np
import torch
from PIL import Image

from testbed.perturb.colour import greyscale


def test_greyscale_is_pils_luma_on_three_channels():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    found = greyscale(torch.from_numpy(pixels).permute(2, 0, 1) / 255)
    expected = np.asarray(Image.fromarray(pixels).convert("L"), dtype=float)
    assert found.shape == (3, 5, 6)
    np.testing.assert_allclose(255 * found.numpy(), np.stack([expected] * 3), atol=1)
