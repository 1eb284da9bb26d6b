"""Crops, flips and normalisation on the device."""

import torch

from trainkit.data.augment import Augment

BYTES = torch.randint(256, (5, 3, 10, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


MEAN, STD = torch.tensor([0.4, 0.5, 0.6]).view(-1, 1, 1), torch.tensor([0.2, 0.3, 0.1]).view(-1, 1, 1)


def augment(image_size: int = 8, padding: int = 0, flip: bool = True) -> Augment:
    return Augment(image_size, padding, flip, [0.4, 0.5, 0.6], [0.2, 0.3, 0.1])


def pixels(normalised: torch.Tensor) -> torch.Tensor:
    return (255 * (normalised * STD + MEAN)).round().to(torch.uint8)


def test_evaluation_sees_the_normalised_middle():
    out = augment().eval()(BYTES)
    torch.testing.assert_close(out, (BYTES[..., 1:9, 1:9] / 255 - MEAN) / STD)


def test_training_sees_every_place_and_both_directions():
    """Each output is the image at one of the nine places, as it is or mirrored; in time all eighteen come."""
    seen = set()
    torch.manual_seed(0)
    prepare = augment()
    for _ in range(60):
        out = pixels(prepare(BYTES))
        for image, cut in zip(BYTES, out, strict=True):
            found = [
                (top, left, mirrored)
                for top in range(3)
                for left in range(3)
                for mirrored in (False, True)
                if torch.equal(cut, (lambda part: part.flip(-1) if mirrored else part)(
                    image[:, top : top + 8, left : left + 8]
                ))
            ]  # fmt: skip
            assert len(found) == 1
            seen.add(found[0])
    assert len(seen) == 18


def test_padding_is_black():
    torch.manual_seed(0)
    out = pixels(augment(10, padding=4, flip=False)(torch.full((64, 3, 10, 10), 255, dtype=torch.uint8)))
    kept = (out == 255).all(1).sum((1, 2))  # of 100 pixels
    assert set(out.unique().tolist()) == {0, 255}
    assert kept.min() < 60 < kept.max() <= 100


def test_it_is_one_graph_and_the_middle_of_a_larger_image():
    prepare = augment(4)
    prepare.compile(backend="aot_eager", fullgraph=True)
    assert prepare(BYTES).shape == (5, 3, 4, 4)
    torch.testing.assert_close(prepare.eval()(BYTES), (BYTES[..., 3:7, 3:7] / 255 - MEAN) / STD)
