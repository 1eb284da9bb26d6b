"""Networks of a user's own."""

import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.hidden = nn.Linear(64, width)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.hidden(images.flatten(1)).relu())


class NetWithFeatures(Net):
    """Returns a dict."""

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        features = self.hidden(images.flatten(1)).relu()
        return {"features": features, "logits": self.head(features)}


class TwoHeads(Net):
    """Returns two outputs; lab.objectives.WithReconstruction takes both."""

    def __init__(self, width: int):
        super().__init__(width)
        self.decoder = nn.Linear(width, 64)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.hidden(images.flatten(1)).relu()
        return self.head(features), self.decoder(features)


class Regressor(nn.Module):
    """A table's rows [B, num_columns] -> one number each, [B]."""

    def __init__(self, num_columns: int, width: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(num_columns, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, columns: Tensor) -> Tensor:
        return self.layers(columns).squeeze(-1)


class UNet(nn.Module):
    """Images [B, 1, H, W] -> logits of each pixel, [B, num_classes, H, W]."""

    def __init__(self, num_classes: int, width: int):
        super().__init__()
        self.down = nn.Conv2d(1, width, 3, padding=1)
        self.deep = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.head = nn.Conv2d(2 * width, num_classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        shallow = self.down(images).relu()
        deep = self.up(self.deep(shallow).relu())
        return self.head(torch.cat([shallow, deep], dim=1))


class ImageAndTable(nn.Module):
    """Takes two inputs by keyword."""

    def __init__(self, num_columns: int, num_classes: int):
        super().__init__()
        self.image = nn.Linear(64, 16)
        self.table = nn.Linear(num_columns, 16)
        self.head = nn.Linear(16, num_classes)

    def forward(self, *, image: Tensor, table: Tensor) -> Tensor:
        return self.head((self.image(image.flatten(1)) + self.table(table)).relu())


class Embedder(nn.Module):
    """Embeds both views of each sample: two tensors [B, D]."""

    def __init__(self, width: int):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, width))

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoder(first.flatten(1)), self.encoder(second.flatten(1))


class Rotations(nn.Module):
    """A network with complex parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.randn(64, 10, dtype=torch.complex64))

    def forward(self, images: Tensor) -> Tensor:
        return (images.flatten(1).to(torch.complex64) @ self.turn).abs()
