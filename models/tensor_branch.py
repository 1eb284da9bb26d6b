"""Control flow: a branch in Python on a tensor's value, and torch.where or torch.cond instead of it."""

import torch
from torch import Tensor, nn

REMEDIES = ("where", "cond")


class TensorBranch(nn.Module):
    """Classifies images [B, channels, image_size, image_size] into logits [B, num_classes].

    The activation depends on the mean of all hidden values of the batch. rewritten=False: `if mean > 0`, a
    graph break of torch.compile. True: one graph, same numbers; with remedy "where" both are computed and torch.where
    takes one, with "cond" torch.cond computes one. Raises ValueError for another remedy.
    """

    def __init__(
        self,
        channels: int,
        image_size: int,
        num_classes: int,
        width: int = 512,
        rewritten: bool = True,
        remedy: str = "where",
    ):
        super().__init__()
        if remedy not in REMEDIES:
            raise ValueError(f"remedy={remedy} is unknown; one of {', '.join(REMEDIES)}")
        self.rewritten, self.remedy = rewritten, remedy
        self.fc1 = nn.Linear(channels * image_size**2, width)
        self.fc2 = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.fc1(images.flatten(1))  # [B, width]
        if self.rewritten and self.remedy == "cond":
            x = torch.cond(x.mean() > 0, torch.relu, torch.tanh, (x,))
        elif self.rewritten:
            x = torch.where(x.mean() > 0, x.relu(), x.tanh())
        elif x.mean() > 0:
            x = x.relu()
        else:
            x = x.tanh()
        return self.fc2(x)  # [B, num_classes]
