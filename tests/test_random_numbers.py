"""Random numbers of the GPU: kernels/random.cu in NumPy, which test_gpu.py compares with a real card."""

from fake_gpu import random_numbers


def test_philox_gives_the_known_answers_of_random123(monkeypatch):
    numbers = random_numbers(monkeypatch)
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    for (counter, key), words in (
        (((0, 0, 0, 0), (0, 0)), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (pi, [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    ):
        assert [int(word) for word in numbers.philox(counter, key)] == words
