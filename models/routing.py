"""Control flow: samples that are picked for each of several branches, and all branches, weighted by an einsum."""

import torch
from torch import Tensor, nn


class Routing(nn.Module):
    """Classifies images [B, channels, image_size, image_size] into logits [B, num_classes].

    A router sends each sample to one of num_branches layers, its most probable one, and scales what it computes by that
    probability, after Fedus et al. 2022, https://arxiv.org/abs/2101.03961. rewritten=False: each layer gets the
    samples that a mask picks, tensors of shapes that only the data tell, which breaks the graph. True: each layer
    gets all samples, and an einsum weights what they compute, by 0 but for the chosen one; one graph, same numbers.
    """

    def __init__(
        self,
        channels: int,
        image_size: int,
        num_classes: int,
        width: int = 256,
        num_branches: int = 4,
        rewritten: bool = True,
    ):
        super().__init__()
        self.rewritten = rewritten
        self.fc1 = nn.Linear(channels * image_size**2, width)
        self.router = nn.Linear(width, num_branches)
        self.branches = nn.ModuleList(nn.Linear(width, width) for _ in range(num_branches))
        self.fc2 = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.fc1(images.flatten(1)).relu()  # [B, width]
        probability, branch = self.router(x).softmax(-1).max(-1)  # [B], [B]
        if self.rewritten:
            weights = nn.functional.one_hot(branch, len(self.branches)) * probability[:, None]  # [B, num_branches]
            x = torch.einsum("be,ebw->bw", weights, torch.stack([layer(x) for layer in self.branches]))
        else:
            x = self.picked(x, branch) * probability[:, None]
        return self.fc2(x.relu())  # [B, num_classes]

    def picked(self, x: Tensor, branch: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        for number, layer in enumerate(self.branches):
            samples = (branch == number).nonzero().flatten()
            y = y.index_add(0, samples, layer(x[samples]))
        return y
