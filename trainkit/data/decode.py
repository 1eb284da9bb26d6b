"""Image files to pixels."""

from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from trainkit.data.location import DataLocation

DECODING = 3  # part of a cache's key; raise it when the code below makes other pixels of the same file
MODES = {1: "L", 3: "RGB"}  # of Pillow, by the number of channels


def decode_image(image: dict[str, Any], *, channels: int, side: int, location: DataLocation) -> np.ndarray:
    """The middle of an image {path, bytes} with its shorter side scaled to `side`: uint8 [channels, side, side].

    Raises ConfigError naming the file if it cannot be read.
    """
    picture = _open(image, MODES[channels], side, location)
    scale = side / min(picture.size)
    width, height = (max(round(scale * length), side) for length in picture.size)
    if scale != 1:
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - side) // 2, (height - side) // 2
    pixels = np.asarray(picture.crop((left, top, left + side, top + side)))  # [side, side] or [side, side, C]
    if pixels.ndim == 2:
        return pixels[None]
    return pixels.transpose(2, 0, 1)


def _open(image: dict[str, Any], mode: str, side: int, location: DataLocation) -> Image.Image:
    """The whole image in Pillow's `mode`; no side of a larger one is below `side`."""
    source = image["path"] if image["bytes"] is None else BytesIO(image["bytes"])
    try:
        with Image.open(source) as opened:
            opened.draft(mode, (side, side))  # a JPEG decodes to the next larger size that is cheap
            return _eight_bits(opened).convert(mode)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        problem = f"{image['path']} cannot be read ({error})"
        raise location.error(problem, "fix it or leave it out") from error


def _eight_bits(opened: Image.Image) -> Image.Image:
    """Grey of 16 bits scaled to 8. Pillow's own conversion turns everything above 255 into white.

    Raises ValueError for 32 bits, whose range is unknown.
    """
    # "I" is of 32 bits, except for these formats, which have no more than 16.
    if opened.mode.startswith("I;16") or (opened.mode == "I" and opened.format in ("PNG", "PPM")):
        pixels = np.asarray(opened).astype(np.int64)
        return Image.fromarray(((pixels + 128) // 257).astype(np.uint8))
    if opened.mode in ("I", "F"):
        raise ValueError("pixels of 32 bits")
    return opened
