"""Networks that misbehave in one known way each; tests name them by `model._target_`."""

import ctypes
import os
import random
import signal
import time

import numpy as np
import torch
from torch import Tensor, nn


def network(name: str) -> str:
    """The override that chooses a network of this module."""
    return f"model._target_=tests.networks.{name}"


class Plain(nn.Module):
    """A linear classifier of digits."""

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int):
        super().__init__()
        self.fc = nn.Linear(channels * image_size**2, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(images.flatten(1))


class Regresses(Plain):
    """One number for each image."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).mean(-1)


class ReturnsDict(Plain):
    """Detections, in place of logits."""

    def forward(self, images: Tensor) -> dict[str, Tensor | tuple[Tensor, Tensor]]:
        scores = super().forward(images)
        return {"scores": scores.sigmoid(), "boxes": (scores[:, :4], scores[:, :4] + 1)}


class WrongCompiled(Plain):
    """Returns other logits when it is compiled."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        return logits * 1.01 if torch.compiler.is_compiling() else logits


class DrawsInEvaluation(Plain):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images + torch.rand_like(images))


class Raises(Plain):
    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            raise ArithmeticError("this network always fails")
        return super().forward(images)


class TellsAttention(Plain):
    """Raises the kernels that scaled_dot_product_attention may choose from."""

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            from torch.backends import cuda

            found = (cuda.flash_sdp_enabled(), cuda.math_sdp_enabled(), cuda.cudnn_sdp_enabled())
            raise ArithmeticError("flash {}, math {}, cudnn {}".format(*found))
        return super().forward(images)


class ReportsDeterministic(Plain):
    """Raises whether torch uses deterministic algorithms alone."""

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            raise ArithmeticError(f"deterministic: {torch.are_deterministic_algorithms_enabled()}")
        return super().forward(images)


class Attends(Plain):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(nn.functional.scaled_dot_product_attention(images, images, images))


class Killed(Plain):
    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(images)


class Crashes(Plain):
    def forward(self, images: Tensor) -> Tensor:
        ctypes.string_at(0)
        return super().forward(images)


class OutOfMemory(Plain):
    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return super().forward(images)


class NotANumber(Plain):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) * float("nan" if self.training else 1)


class Sleeps(Plain):
    """Takes far longer than any time limit of a test."""

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            signal.pause()
        return super().forward(images)


class Breaks(Plain):
    """One graph break, in the line of the print."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        print("here", end="")
        return logits * 2


class BreaksLate(Plain):
    """Raises in its 31st training step."""

    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.steps = 0

    def forward(self, images: Tensor) -> Tensor:
        self.steps += self.training
        if self.steps == 31:
            raise ArithmeticError("thirty steps are enough")
        return super().forward(images)


class PrintsLate(Plain):
    """Has a graph break in its second variant, which the first validation brings."""

    def forward(self, images: Tensor) -> Tensor:
        if not self.training:
            print("validating", end="")
        return super().forward(images)


class FailsInValidation(Plain):
    trained = False

    def forward(self, images: Tensor) -> Tensor:
        if self.trained and not self.training:  # before the first step it is tried out
            raise ArithmeticError("nothing is validated")
        self.trained = self.training
        return super().forward(images)


class Blocks(Plain):
    """With dropout and BatchNorm, and blocks to checkpoint."""

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int):
        super().__init__(channels, image_size, num_classes, width)
        size = channels * image_size**2
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(size, size), nn.BatchNorm1d(size), nn.ReLU(), nn.Dropout(0.2)) for _ in range(2)
        )

    def forward(self, images: Tensor) -> Tensor:
        hidden = images.flatten(1)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.fc(hidden)


class ManyBreaks(Plain):
    """Four graph breaks, each in the line that its comment names."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        print("here", end="")  # BREAK print
        logits = logits + logits.sum().item()  # BREAK item
        if logits.sum() > 0:  # BREAK branch
            logits = logits * 2
        if np.random.rand() > 0.5:  # BREAK numpy
            logits = logits * 3
        return logits


class BreaksInTry(Plain):
    """A break from which torch.compile can go on, and one from which it cannot."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        print("here", end="")  # BREAK before
        logits = logits * 2 + 1
        logits = logits * 3
        try:  # BREAK last place
            logits = logits / max(1, round(logits.sum().item()))  # BREAK in try
        except OverflowError:
            logits = logits * 0
        print("there", end="")  # never looked at
        return logits


class BreaksInLoop(Plain):
    """A break from which torch.compile can go on, and then one that leaves the rest of the function to Python."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        print("here", end="")  # LOOP before
        for scale in (2, 3):
            if logits.sum() > 0:  # LOOP break
                logits = logits * scale
        return logits


class TriesFirst(Plain):
    """The break from which torch.compile cannot go on is the first."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        try:  # FIRST last place
            if logits.sum() > 0:  # FIRST break
                logits = logits * 2
        except OverflowError:
            logits = logits * 0
        print("there", end="")  # never looked at
        return logits


class Counts(Plain):
    """A new value of an attribute in every call: each is a recompile."""

    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.calls = 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(images) * self.calls


class Residual(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.fc = nn.Linear(size, size)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.fc(self.norm(hidden)).relu()


class Deep(Plain):
    """`depth` equal blocks, of a class of ours or of torch.nn alone, and a head that is never called."""

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int, depth: int = 2, own: bool = True):
        super().__init__(channels, image_size, num_classes, width)
        size = channels * image_size**2
        self.blocks = nn.ModuleList(
            Residual(size) if own else nn.Sequential(nn.LayerNorm(size), nn.Linear(size, size)) for _ in range(depth)
        )
        self.idle = nn.Linear(size, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        hidden = images.flatten(1)
        for block in self.blocks:
            hidden = block(hidden)
        return self.fc(hidden)


class Narrows(Plain):
    """Nine blocks of one class, each narrower than the one before it."""

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int):
        super().__init__(channels, image_size, num_classes, width)
        size = channels * image_size**2
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(size - n, size - n - 1), nn.ReLU()) for n in range(9))
        self.fc = nn.Linear(size - 9, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        hidden = images.flatten(1)
        for block in self.blocks:
            hidden = block(hidden)
        return self.fc(hidden)


class Within(nn.Module):
    """A network within another one, as Hugging Face's have them."""

    def __init__(self, **sizes: int):
        super().__init__()
        self.inner = Deep(**sizes)

    def forward(self, images: Tensor) -> Tensor:
        return self.inner(images)


class Naps(Plain):
    """Sleeps for so many milliseconds in every call, or in one of so many, and for `least_ms` in the others."""

    def __init__(
        self,
        channels: int,
        image_size: int,
        num_classes: int,
        width: int,
        ms: float = 0.0,
        one_of: int = 1,
        least_ms: float = 0.0,
    ):
        super().__init__(channels, image_size, num_classes, width)
        self.ms, self.one_of, self.least_ms, self.calls = ms, one_of, least_ms, 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        time.sleep((self.ms if self.calls % self.one_of == 0 else self.least_ms) / 1e3)
        return super().forward(images)


class EndsAtCall(Plain):
    """Raises in its 31st call, whatever it is called for."""

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int, how: str = "failed"):
        super().__init__(channels, image_size, num_classes, width)
        self.how, self.calls = how, 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 31:
            if self.how == "sigterm":
                os.kill(os.getpid(), signal.SIGTERM)
            if self.how == "oom":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
            raise KeyboardInterrupt if self.how == "interrupted" else ArithmeticError("thirty calls are enough")
        return super().forward(images)


class Dropout(Plain):
    """Draws random numbers of three kinds in training."""

    def forward(self, images: Tensor) -> Tensor:
        logits = nn.functional.dropout(super().forward(images), 0.2, self.training)
        if self.training:
            logits = logits * (1 + 0.1 * random.random() + 0.1 * np.random.rand())
        return logits


class KilledOnce(Dropout):
    """Rank 1 is killed in its ninth training step, unless torchrun has restarted it."""

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int):
        super().__init__(channels, image_size, num_classes, width)
        self.calls = 0

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
            restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            if self.calls == 9 and os.environ["RANK"] == "1" and restarts == "0" and "KILLED" in os.environ:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(images)


def no_groups(net: nn.Module) -> list[dict]:
    return []


def groups_of_another_network(net: nn.Module) -> list[dict]:
    return [{"params": net.backbone.parameters()}]


class PartlyIgnored(torch.utils.data.Dataset):
    """Images, some with the target that does not count."""

    def __init__(self, size: int, ignored: list[int]):
        self.images = torch.rand(size, 1, 8, 8, generator=torch.Generator().manual_seed(size))
        self.ignored = set(ignored)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], -100 if index in self.ignored else index % 10


def partly_ignored(ignored: list[int]) -> list[str]:
    """The overrides that train `Plain` on eight images and validate it on ten, of which these have no target that
    counts, in batches of two."""
    words = ["model=own", network("Plain"), "+model.channels=1", "+model.image_size=8", "+model.num_classes=10"]
    words += ["+model.width=1", "data=dataset", "+data.num_classes=10", "data.batch_size=2"]
    for kind, size, of_kind in (("train", 8, []), ("val", 10, ignored)):
        target = f"{{_target_: tests.networks.PartlyIgnored, size: {size}, ignored: {of_kind}}}"
        words.append(f"++data.{kind}={target}")
    return words


class FailingDataset(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.zeros(1, 8, 8), {"class": 0}[3]
