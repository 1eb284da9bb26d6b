"""What is done to images on the device, in the same compiled graph as the network."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Augment(nn.Module):
    """Maps uint8 [B, C, R, R] to float32 [B, C, S, S], S = image_size <= R + 2 padding, by indexing alone.

    Training: each image is cut out of itself at a random place, `padding` black pixels around it, and mirrored in half
    of the cases if `flip`. Evaluation: its middle. Then (pixel / 255 - mean) / std of each channel.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, image_size: int, padding: int, flip: bool, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        self.image_size, self.padding, self.flip = image_size, padding, flip
        self.register_buffer("scale", 1 / (255 * torch.tensor(std)).view(-1, 1, 1), persistent=False)
        self.register_buffer("shift", -(torch.tensor(mean) / torch.tensor(std)).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        num, channels, height, width = images.shape
        rows, columns = self._places(num, height, images.device), self._places(num, width, images.device)  # each [B, S]
        if self.training and self.flip:
            mirrored = torch.rand(num, 1, device=images.device) < 0.5
            columns = torch.where(mirrored, columns.flip(1), columns)
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None]
        cut = images[
            torch.arange(num, device=images.device)[:, None, None, None],
            torch.arange(channels, device=images.device)[None, :, None, None],
            rows.clamp(0, height - 1)[:, None, :, None],
            columns.clamp(0, width - 1)[:, None, None, :],
        ]  # [B, C, S, S]
        return torch.where(inside[:, None], cut, 0) * self.scale + self.shift

    def _places(self, num: int, length: int, device: torch.device) -> Tensor:
        """The rows or columns of each image that are kept: [B, S], from -padding on."""
        room = length + 2 * self.padding - self.image_size
        if self.training and room > 0:
            first = torch.randint(room + 1, (num, 1), device=device) - self.padding
        else:
            first = torch.full((num, 1), (length - self.image_size) // 2, device=device)
        return first + torch.arange(self.image_size, device=device)
