"""Control flow: a selection whose size the data decide, and a mask in its place."""

from torch import Tensor, nn


class DataShape(nn.Module):
    """Classifies images [B, channels, H, W] of any H and W into logits [B, num_classes].

    Features of the pixels that are brighter than the image's mean are computed and averaged. rewritten=False: those
    pixels are selected by a mask, a tensor of a shape that only the data tell, which breaks the graph. True: the
    features of all pixels are computed, and those of dark ones multiplied by 0; one graph, same numbers.
    """

    def __init__(self, channels: int, num_classes: int, width: int = 64, rewritten: bool = True):
        super().__init__()
        self.rewritten = rewritten
        self.pixel = nn.Sequential(nn.Linear(channels, width), nn.ReLU(), nn.Linear(width, width))
        self.fc = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.flatten(2).transpose(1, 2)  # [B, H W, channels]
        brightness = pixels.mean(-1)  # [B, H W]
        bright = brightness > brightness.mean(1, keepdim=True)  # [B, H W]
        total = self.masked(pixels, bright) if self.rewritten else self.selected(pixels, bright)  # [B, width]
        return self.fc(total / bright.sum(1, keepdim=True).clamp(min=1))  # [B, num_classes]

    def selected(self, pixels: Tensor, bright: Tensor) -> Tensor:
        image, _ = bright.nonzero(as_tuple=True)  # which image each bright pixel is of
        features = self.pixel(pixels[bright])  # [bright pixels, width]
        return features.new_zeros(len(pixels), features.shape[-1]).index_add(0, image, features)

    def masked(self, pixels: Tensor, bright: Tensor) -> Tensor:
        return (self.pixel(pixels) * bright[..., None]).sum(1)
