"""The same product again and again: every result compared with the first, on a stand-in and on the card."""

import fake_gpu
from fake_gpu import skip_unless_supported

from roofline.measure.repeatability import repeat

gpu = fake_gpu.gpu  # the fixture


def test_the_same_product_gives_the_same_bits(gpu, monkeypatch):
    skip_unless_supported(gpu, "fp16")
    found = repeat(gpu, "fp16", 128, seconds=0.1)
    assert found["products"] >= 64 and found["memory_bytes"] >= 64 * 128 * 128 * 2
    assert (found["wrong_words"], found["wrong_places"], found["fault"]) == (0, 0, None)


def test_one_flipped_bit_is_counted(gpu, monkeypatch):
    """Wherever it came from: a word of one product's copy, changed behind the comparison's back."""
    skip_unless_supported(gpu, "fp16")
    copied, copy = [], gpu.copy

    def flip(source, destination):
        copy(source, destination)
        if len(copied) == 7:
            destination[:1] ^= 1
        copied.append(destination)

    monkeypatch.setattr(gpu, "copy", flip)
    found = repeat(gpu, "fp16", 128, seconds=0.05)
    assert (found["wrong_words"], found["wrong_places"]) == (1, 1)
