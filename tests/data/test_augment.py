"""Augmentations: what they may do to an image and what they may not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from efcil.data.augment import AUGMENTATIONS, augmented_size, chosen, cifar_reference, crop, flip, stored_size

quick = settings(deadline=None, max_examples=20)
seeds = st.integers(0, 2**32 - 1)
every = pytest.mark.parametrize("name", sorted(AUGMENTATIONS))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int = 6, size: int = 16, seed: int = 0, least: int = 0) -> Tensor:
    return torch.randint(least, 256, (count, 3, size, size), generator=generator(seed), dtype=torch.uint8)


def is_window(small: Tensor, padded: Tensor) -> bool:
    """Whether the image (3, S, S) is found somewhere in the padded one."""
    size = small.shape[-1]
    places = range(padded.shape[-1] - size + 1)
    return any(torch.equal(small, padded[:, r : r + size, c : c + size]) for r in places for c in places)


@every
@quick
@given(seed=seeds, count=st.integers(1, 4), size=st.sampled_from([8, 16, 32, 33]))
def test_output_is_a_batch_of_bytes_of_the_promised_size(name: str, seed: int, count: int, size: int) -> None:
    out = AUGMENTATIONS[name](images(count, size), generator(seed))
    side = augmented_size(name, size)
    assert out.dtype == torch.uint8
    assert out.shape == (count, 3, side, side)


@every
def test_no_images_give_no_images(name: str) -> None:
    """A mixed batch of prototypes and images (Eq. 17) may ask for none of the images."""
    side = augmented_size(name, 16)
    assert AUGMENTATIONS[name](images(0, 16), generator()).shape == (0, 3, side, side)


@every
def test_generator_decides_everything(name: str) -> None:
    x = images()
    first, again = (AUGMENTATIONS[name](x, generator(4)) for _ in range(2))
    assert torch.equal(first, again)
    if name != "none":
        assert not torch.equal(first, AUGMENTATIONS[name](x, generator(5)))


@every
def test_input_is_not_changed(name: str) -> None:
    x = images()
    AUGMENTATIONS[name](x, generator())
    assert torch.equal(x, images())


def test_none_is_the_identity() -> None:
    assert torch.equal(AUGMENTATIONS["none"](images(), generator()), images())


@quick
@given(seed=seeds, size=st.sampled_from([4, 8, 16, 24]))
def test_crop_is_a_window_of_the_zero_padded_image(seed: int, size: int) -> None:
    x = images(3, size, least=1)
    padded = F.pad(x, (max(1, size // 8),) * 4)
    out = crop(x, generator(seed))
    assert all(is_window(small, large) for small, large in zip(out, padded, strict=True))


def test_crop_reaches_every_offset_about_equally() -> None:
    """At 8 pixels the padding is 1: nine offsets, told apart by where the zero border shows."""
    out = crop(torch.ones(9000, 3, 8, 8, dtype=torch.uint8), generator())[:, 0]
    edges = torch.stack(
        [out[:, 0].sum(1) == 0, out[:, -1].sum(1) == 0, out[:, :, 0].sum(1) == 0, out[:, :, -1].sum(1) == 0]
    )
    patterns, times = edges.T.unique(dim=0, return_counts=True)
    assert len(patterns) == 9
    assert ((times - 1000).abs() < 5 * 30).all()


def test_all_channels_of_an_image_are_cut_at_one_place() -> None:
    grey = images()[:, :1].expand(-1, 3, -1, -1).contiguous()
    for name in ("crop", "crop_flip", "cifar_reference", "resized_crop_flip"):
        out = AUGMENTATIONS[name](grey, generator())
        assert torch.equal(out[:, 0], out[:, 1])
        assert torch.equal(out[:, 0], out[:, 2])


def test_flip_mirrors_about_half_and_leaves_the_rest() -> None:
    x = images(1000, 4)
    out = flip(x, generator())
    same = (out == x).flatten(1).all(1)
    mirrored = (out == x.flip(3)).flatten(1).all(1)
    assert (same ^ mirrored).all()
    assert 420 < int(mirrored.sum()) < 580


@quick
@given(seed=seeds)
def test_crop_flip_is_a_window_or_its_mirror(seed: int) -> None:
    x = images(3, 16, least=1)
    out = AUGMENTATIONS["crop_flip"](x, generator(seed))
    for small, large in zip(out, F.pad(x, (2,) * 4), strict=True):
        assert is_window(small, large) or is_window(small.flip(2), large)


@pytest.mark.parametrize("level", [0, 1, 130, 255])
def test_resized_crop_of_one_colour_stays_that_colour(level: int) -> None:
    """No padding, so no other colour may come in from outside the image."""
    out = AUGMENTATIONS["resized_crop_flip"](torch.full((400, 3, 32, 32), level, dtype=torch.uint8), generator())
    assert (out == level).all()


@pytest.mark.parametrize("name", ["cifar_reference", "resized_crop_flip"])
@quick
@given(seed=seeds)
def test_resized_crop_invents_no_brighter_colour(name: str, seed: int) -> None:
    """Bilinear interpolation is a mean of pixels (and of the zero padding)."""
    x = images(4, 16, seed) // 2
    out = AUGMENTATIONS[name](x, generator(seed))
    assert (out.amax((1, 2, 3)) <= x.amax((1, 2, 3))).all()


def test_resized_crop_stretches_the_image() -> None:
    """A ramp from left to right stays a ramp, flatter than before, in one direction or the other."""
    ramp = (4 * torch.arange(64, dtype=torch.uint8)).expand(50, 3, 64, 64).contiguous()
    out = AUGMENTATIONS["resized_crop_flip"](ramp, generator()).int()
    slope = out[:, :, :, 2:-2].diff(dim=3)
    rising, falling = (slope >= 0).flatten(1).all(1), (slope <= 0).flatten(1).all(1)
    assert (rising | falling).all()
    assert rising.any()
    assert falling.any()
    spread = (out.amax((1, 2, 3)) - out.amin((1, 2, 3))).double()
    assert spread.min() < 130 < spread.max()  # from boxes of 8 % to nearly the whole


def test_cifar_reference_shows_the_zero_padding_only_sometimes() -> None:
    out = cifar_reference(torch.full((300, 3, 32, 32), 255, dtype=torch.uint8), generator())
    black_border = torch.stack([out[:, 0, 0].amax(1), out[:, 0, -1].amax(1), out[:, 0, :, 0].amax(1)]).amin(0) == 0
    assert 0.1 < black_border.double().mean() < 0.9
    assert (out[:, :, 14:18, 14:18] == 255).flatten(1).all(1).double().mean() > 0.9


@pytest.mark.parametrize("name", ["crop", "cifar_reference"])
def test_zero_padding_shows_equally_often_on_all_sides(name: str) -> None:
    out = AUGMENTATIONS[name](torch.full((2000, 3, 32, 32), 255, dtype=torch.uint8), generator())[:, 0]
    sides = torch.stack([out[:, 0].amax(1), out[:, -1].amax(1), out[:, :, 0].amax(1), out[:, :, -1].amax(1)])
    often = (sides == 0).double().mean(1)
    assert often.min() > 0.1
    assert often.max() - often.min() < 0.07


@pytest.mark.parametrize(("size", "name"), [(8, "crop_flip"), (64, "crop_flip"), (65, "resized_crop_flip")])
def test_auto_chooses_by_the_image_size(size: int, name: str) -> None:
    assert chosen("auto", size) == name


def test_a_named_augmentation_is_kept_at_any_size() -> None:
    assert all(chosen(name, size) == name for name in AUGMENTATIONS for size in (None, 8, 224))


@every
@quick
@given(size=st.integers(1, 600))
def test_stored_size_gives_back_the_size_the_network_sees(name: str, size: int) -> None:
    stored = stored_size(name, size)
    assert stored >= size
    assert augmented_size(name, stored) == size


def test_paper_sizes_at_224() -> None:
    assert stored_size("resized_crop_flip", 224) == 256
