"""Control flow: a loop whose count the data decide; in its place all steps under a mask, a selected step, or torch's
while_loop."""

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop  # torch 2.11 to 2.13 have no public name for it

REMEDIES = ("mask", "select", "while_loop")


class DataLoop(nn.Module):
    """Classifies images [B, channels, image_size, image_size] into logits [B, num_classes].

    One layer refines the hidden values again and again: 1 to max_steps times, the more the larger they are on average
    over the batch. rewritten=False: the count is read from the tensor (`.item()`), which breaks the graph. True: one
    graph, same numbers. Remedy "mask": all max_steps are computed, and steps beyond the count change nothing; "select":
    all are computed, and the values after the count's step are selected; "while_loop": as many as the count are
    computed, by a loop within the graph. ValueError for max_steps below 1 or another remedy.
    """

    def __init__(
        self,
        channels: int,
        image_size: int,
        num_classes: int,
        width: int = 256,
        max_steps: int = 4,
        rewritten: bool = True,
        remedy: str = "mask",
    ):
        super().__init__()
        if max_steps < 1:
            raise ValueError(f"max_steps={max_steps} refines nothing; at least 1")
        if remedy not in REMEDIES:
            raise ValueError(f"remedy={remedy} is unknown; one of {', '.join(REMEDIES)}")
        self.max_steps, self.rewritten, self.remedy = max_steps, rewritten, remedy
        self.fc1 = nn.Linear(channels * image_size**2, width)
        self.refine = nn.Linear(width, width)
        self.fc2 = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.fc1(images.flatten(1)).tanh()  # [B, width]
        count = (x.abs().mean() * self.max_steps).long().clamp(1, self.max_steps)  # []
        if not self.rewritten:
            for _ in range(count.item()):
                x = self.step(x)
        elif self.remedy == "mask":
            for step in range(self.max_steps):
                x = torch.where(step < count, self.step(x), x)
        elif self.remedy == "select":
            x = self.all_steps(x).index_select(0, count.reshape(1) - 1)[0]
        else:
            x = self.loop(x, count)
        return self.fc2(x)  # [B, num_classes]

    def step(self, x: Tensor) -> Tensor:
        return x + self.refine(x).tanh()

    def all_steps(self, x: Tensor) -> Tensor:
        """The values after each step: [B, width] -> [max_steps, B, width]."""
        steps = [self.step(x)]
        for _ in range(self.max_steps - 1):
            steps.append(self.step(steps[-1]))
        return torch.stack(steps)

    def loop(self, x: Tensor, count: Tensor) -> Tensor:
        """The values after `count` steps. x needs a gradient if the weights do: from a start without one, torch 2.11
        and 2.13 compute a wrong gradient of the weights."""

        def goes_on(done: Tensor, _: Tensor) -> Tensor:
            return done < count

        def refined(done: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return done + 1, self.step(x)

        return while_loop(goes_on, refined, (torch.zeros_like(count), x))[1]
