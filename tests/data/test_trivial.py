"""TrivialAugment: its changes against Pillow's, image by image, and how often each of them comes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from efcil.data import trivial
from efcil.data.trivial import CHANGES, blended, coarsened, evened, moved, trivial_augment

STRENGTHS = (-1.0, -0.4, 0.3, 1.0)


def photo(seed: int, side: int = 24) -> Tensor:
    """A smooth colour image (3, S, S) of whole numbers, so that nearest pixels and roundings hardly matter."""
    rng = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, 3, 5, 5, generator=rng) * 255
    smooth = torch.nn.functional.interpolate(coarse, size=side, mode="bicubic", align_corners=True)
    return smooth[0].round().clamp(0, 255)


def changed(image: Tensor, change: int, strength: float) -> Tensor:
    """The image changed by our function, among others that are changed differently."""
    kinds = {
        **dict.fromkeys(range(trivial.SHEAR_X, trivial.TURN + 1), (moved, (trivial.SHEAR_X, trivial.MOVE_Y))),
        **dict.fromkeys(range(trivial.BRIGHT, trivial.SHARP + 1), (blended, (trivial.BRIGHT, trivial.SHARP))),
        **dict.fromkeys((trivial.POSTERIZE, trivial.SOLARIZE), (coarsened, (trivial.POSTERIZE, trivial.SOLARIZE))),
        **dict.fromkeys((trivial.STRETCH, trivial.EQUALIZE), (evened, (trivial.STRETCH, trivial.EQUALIZE))),
    }
    function, others = kinds[change]
    batch = torch.stack([photo(8), image, photo(9)])
    return function(batch, torch.tensor([others[0], change, others[1]]), torch.tensor([0.5, strength, 0.7]))[1]


def with_pillow(image: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    picture = Image.fromarray(image.permute(1, 2, 0).numpy().astype(np.uint8))
    return torch.from_numpy(np.asarray(change(picture)).copy()).permute(2, 0, 1).float()


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize(
    ("change", "enhance"),
    [
        (trivial.BRIGHT, ImageEnhance.Brightness),
        (trivial.COLOUR, ImageEnhance.Color),
        (trivial.CONTRAST, ImageEnhance.Contrast),
        (trivial.SHARP, ImageEnhance.Sharpness),
    ],
)
def test_blends_are_pillows_enhancements(change: int, enhance: type, strength: float) -> None:
    for seed in range(3):
        expected = with_pillow(photo(seed), lambda picture: enhance(picture).enhance(1 + 0.99 * strength))
        found = changed(photo(seed), change, strength).round()
        assert (found - expected).abs().max() <= 2  # Pillow rounds grey and smoothed pixels on the way


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("change", range(trivial.SHEAR_X, trivial.TURN + 1))
def test_moves_are_pillows_affine_maps(change: int, strength: float) -> None:
    """About the centre of the image; black comes in."""
    side, shear, shift, angle = 24, 0.99 * strength, 32 * strength, math.radians(135 * strength)
    rows = {
        trivial.SHEAR_X: (1, shear, 0, 0, 1, 0),
        trivial.SHEAR_Y: (1, 0, 0, shear, 1, 0),
        trivial.MOVE_X: (1, 0, shift, 0, 1, 0),
        trivial.MOVE_Y: (1, 0, 0, 0, 1, shift),
        trivial.TURN: (math.cos(angle), -math.sin(angle), 0, math.sin(angle), math.cos(angle), 0),
    }
    a, b, c, d, e, f = rows[change]
    middle = side / 2
    about = (a, b, c + middle - a * middle - b * middle, d, e, f + middle - d * middle - e * middle)
    expected = with_pillow(photo(1), lambda picture: picture.transform((side, side), Image.Transform.AFFINE, about))
    found = changed(photo(1), change, strength)
    assert ((found - expected).abs() > 30).float().mean() < 0.03  # a pixel on the border of two may be either


@pytest.mark.parametrize("strength", (0.0, 0.3, 0.5, 1.0))
def test_fewer_bits_and_inverted_highlights_are_pillows(strength: float) -> None:
    posterized = with_pillow(photo(2), lambda picture: ImageOps.posterize(picture, 8 - round(6 * strength)))
    assert torch.equal(changed(photo(2), trivial.POSTERIZE, strength), posterized)
    solarized = with_pillow(photo(2), lambda picture: ImageOps.solarize(picture, math.ceil(255 * (1 - strength))))
    assert torch.equal(changed(photo(2), trivial.SOLARIZE, strength), solarized)


def test_stretched_and_equalized_images_are_pillows() -> None:
    dull = photo(3) * 0.3 + 70
    dull = dull.round()
    stretched = changed(dull, trivial.STRETCH, 0.5).round()
    assert (stretched - with_pillow(dull, ImageOps.autocontrast)).abs().max() <= 1
    assert torch.equal(changed(dull, trivial.EQUALIZE, 0.5), with_pillow(dull, ImageOps.equalize))


def test_an_image_of_one_colour_survives_every_change() -> None:
    grey = torch.full((400, 3, 8, 8), 77, dtype=torch.uint8)
    out = trivial_augment(grey, torch.Generator().manual_seed(0))
    assert out.dtype == torch.uint8 and out.shape == grey.shape
    for change in (trivial.STRETCH, trivial.EQUALIZE):
        assert (changed(torch.full((3, 24, 24), 77.0), change, 0.5) == 77).all()


def test_each_change_comes_equally_often_and_each_strength(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in fourteen stays as it is; signs of both kinds, strengths from none to the greatest."""
    seen: list[tuple[Tensor, Tensor]] = []

    def noting(x: Tensor, change: Tensor, amount: Tensor) -> Tensor:
        seen.append((change, amount))
        return x

    for name in ("moved", "blended", "coarsened", "evened"):
        monkeypatch.setattr(trivial, name, noting)
    x = torch.randint(256, (14000, 3, 2, 2), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    assert torch.equal(trivial_augment(x, torch.Generator().manual_seed(2)), x)
    changes, amounts = (torch.cat(parts) for parts in zip(*seen, strict=True))
    counts = changes.bincount(minlength=CHANGES)
    assert counts[trivial.KEPT] == 0 and 850 < 14000 - len(changes) < 1150
    assert ((counts[1:] - 1000).abs() < 150).all()
    signed = amounts[changes <= trivial.SHARP]
    assert 0.47 < float((signed < 0).float().mean()) < 0.53
    assert (amounts[changes > trivial.SHARP] >= 0).all()
    assert 0.48 < float(amounts.abs().mean()) < 0.52 and amounts.abs().max() > 0.99
