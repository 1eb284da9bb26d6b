"""Random crops, flips and normalisation of images on the device, in the compiled graph of the network."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Augment(nn.Module):
    """Maps uint8 [B, C, R, R] to float32 [B, C, S, S], S = image_size <= R + 2 padding, by indexing alone.

    Training: a random crop of each image with `padding` black pixels around it, mirrored in half of the cases if
    `flip`. Evaluation: the middle of the image. Then (pixel / 255 - mean) / std of each channel.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, image_size: int, padding: int, flip: bool, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        self.image_size = image_size
        self.padding = padding
        self.flip = flip
        self.register_buffer("scale", 1 / (255 * torch.tensor(std)).view(-1, 1, 1), persistent=False)
        self.register_buffer("shift", -(torch.tensor(mean) / torch.tensor(std)).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        num, channels, height, width = images.shape
        rows = self._crop(num, height, images.device)  # [B, S]
        columns = self._crop(num, width, images.device)  # [B, S]
        if self.training and self.flip:
            mirrored = torch.rand(num, 1, device=images.device) < 0.5
            columns = torch.where(mirrored, columns.flip(1), columns)
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None]
        cropped = images[
            torch.arange(num, device=images.device)[:, None, None, None],
            torch.arange(channels, device=images.device)[None, :, None, None],
            rows.clamp(0, height - 1)[:, None, :, None],
            columns.clamp(0, width - 1)[:, None, None, :],
        ]  # [B, C, S, S]
        return torch.where(inside[:, None], cropped, 0) * self.scale + self.shift

    def _crop(self, num: int, length: int, device: torch.device) -> Tensor:
        """The rows or columns of each image's crop: [B, S], from -padding on."""
        room = length + 2 * self.padding - self.image_size
        if self.training and room > 0:
            first = torch.randint(room + 1, (num, 1), device=device) - self.padding
        else:
            first = torch.full((num, 1), (length - self.image_size) // 2, device=device)
        return first + torch.arange(self.image_size, device=device)
