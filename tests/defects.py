"""Networks with one known defect each, its line marked `DEFECT <cause>`, and beside each the network with its remedy.

`<Name>Fixed` computes what its defect was for in a way that torch.compile takes; the clean ones have nothing to find.
"""

import copy
import datetime
import logging
import os
import random
import sys
import threading
import time
import warnings
import zlib

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

logger = logging.getLogger(__name__)


class Classifier(nn.Module):
    """A linear classifier of digits; the networks below do something with its logits."""

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int = 8):
        super().__init__()
        self.fc = nn.Linear(channels * image_size**2, num_classes)

    def logits(self, images: Tensor) -> Tensor:
        return self.fc(images.flatten(1))

    def forward(self, images: Tensor) -> Tensor:
        return self.logits(images)


class TensorBranch(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        if logits.sum() > 0:  # DEFECT tensor branch
            logits = logits * 2
        return logits


class TensorBranchFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return torch.where(logits.sum() > 0, logits * 2, logits)


class BranchInLoop(Classifier):
    """A list built of what a tensor decides; a break in a loop leaves the whole function uncompiled."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        kept = [logits[0]]
        for row in logits:
            if row.sum() > 0:  # DEFECT tensor branch
                kept.append(row)
        return logits + torch.stack(kept).mean(0)


class BranchInLoopFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        kept = (logits.sum(1, keepdim=True) > 0).float()
        return logits + (logits[0] + (logits * kept).sum(0)) / (kept.sum() + 1)


class Item(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        largest = logits.abs().max().item()  # DEFECT .item()
        return logits / (largest + 1)


class ItemFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits / (logits.abs().max().detach() + 1)


class ItemInIf(Classifier):
    """As a tensor, the number would be a branch that breaks the same line."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        if logits.mean().item() > 0:  # DEFECT tensor branch
            logits = logits * 2
        return logits


class ItemInIfFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return torch.where(logits.mean() > 0, logits * 2, logits)


class Print(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        print(logits.mean(), end="")  # DEFECT print
        return logits * 2


class PrintFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        if not torch.compiler.is_compiling():
            print(logits.mean(), end="")
        return logits * 2


class Warns(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        warnings.warn("be careful", stacklevel=1)  # DEFECT logging
        return logits * 2


class WarnsFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        if not torch.compiler.is_compiling():
            warnings.warn("be careful", stacklevel=1)
        return logits * 2


class Logs(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        logger.info("logits of %s", logits.shape)  # DEFECT logging
        return logits * 2


class LogsFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        if not torch.compiler.is_compiling():
            logger.info("logits of %s", logits.shape)
        return logits * 2


class NumpyCall(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        scale = float(np.mean(logits.detach().numpy()))  # DEFECT NumPy
        return logits * scale


class NumpyCallFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits * logits.detach().mean()


class NumpyRandom(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        if np.random.rand() > 0.5:  # DEFECT random number of Python or NumPy
            logits = logits * 2
        return logits


class NumpyRandomFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return torch.where(torch.rand((), device=logits.device) > 0.5, logits * 2, logits)


class Shuffle(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        order = list(range(len(logits)))
        random.shuffle(order)  # DEFECT random number of Python or NumPy
        return logits + logits[order]


class ShuffleFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits + logits[torch.randperm(len(logits), device=logits.device)]


class DataLoop(Classifier):
    """A list whose length a tensor decides."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        rounds = []
        for k in range(int(logits[0].argmax())):  # DEFECT data-dependent loop
            rounds.append(logits * k)
        return logits + sum(rounds)


class DataLoopFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        rounds = torch.arange(logits.shape[1], device=logits.device)
        rounds = torch.where(rounds < logits[0].argmax(), rounds, 0)
        return logits + logits * rounds.sum()


class While(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        while logits.norm() > 1:  # DEFECT data-dependent loop
            logits = logits / 2
        return logits


class WhileFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        for _ in range(8):
            logits = torch.where(logits.norm() > 1, logits / 2, logits)
        return logits


class BooleanMask(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        positive = logits[logits > 0]  # DEFECT data-dependent shape
        return logits + positive.sum()


class BooleanMaskFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits + torch.where(logits > 0, logits, 0).sum()


class Nonzero(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        places = torch.nonzero(logits > 0)  # DEFECT data-dependent shape
        return logits * len(places)


class NonzeroFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits * (logits > 0).sum()


@torch.compiler.disable
def doubled(logits: Tensor) -> Tensor:
    return logits * 2


class Disabled(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        logits = doubled(logits)  # DEFECT function kept out of torch.compile
        return logits + 1


class DisabledFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits * 2 + 1


class CExtension(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        salt = zlib.crc32(b"digits") % 3  # DEFECT library call
        return logits + salt


class CExtensionFixed(Classifier):
    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.salt = zlib.crc32(b"digits") % 3

    def forward(self, images: Tensor) -> Tensor:
        return self.logits(images) + self.salt


class Clock(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        self.seen_at = time.perf_counter()  # DEFECT clock
        return logits * 2


class ClockFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        return self.logits(images) * 2


class ItemInTry(Classifier):
    """A break inside of a try leaves the rest of the function uncompiled."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        try:
            scale = 1 / logits.sum().item()  # DEFECT .item()
        except ZeroDivisionError:
            scale = 1.0
        return logits * scale


class ItemInTryFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        total = logits.sum().detach()
        return logits * torch.where(total == 0, 1.0, 1 / total)


class OpenFile(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        size = open(os.devnull).close()  # DEFECT file
        return logits if size is None else logits * 2


class OpenFileFixed(Classifier):
    pass


LOCK = threading.Lock()


class Locked(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        with LOCK:  # DEFECT context manager
            return logits * 2


class LockedFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        return self.logits(images) * 2


class DeepCopy(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        kept = copy.deepcopy(logits.detach())  # DEFECT deepcopy
        return logits + kept


class DeepCopyFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits + logits.detach().clone()


class Counter(Classifier):
    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.calls = 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1  # DEFECT attribute counter
        return self.logits(images) * self.calls


class CounterFixed(Classifier):
    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        return self.logits(images) * self.calls


class Temperature(Classifier):
    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.temperature = 1.0

    def forward(self, images: Tensor) -> Tensor:
        self.temperature *= 0.99  # DEFECT number in an attribute that changes
        return self.logits(images) / self.temperature


class TemperatureFixed(Classifier):
    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.register_buffer("temperature", torch.ones(()))

    def forward(self, images: Tensor) -> Tensor:
        self.temperature = self.temperature * 0.99
        return self.logits(images) / self.temperature


class GrowingList(Classifier):
    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.means: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        self.means.append(logits.mean().detach())  # DEFECT list, tuple, dict or set that changes
        return logits


class GrowingListFixed(Classifier):
    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.register_buffer("means", torch.zeros(100))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        self.means.index_copy_(0, self.calls.view(1), logits.mean().detach().view(1))
        self.calls += 1
        return logits


CALLS = 0


class GlobalNumber(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        global CALLS
        CALLS += 1  # DEFECT argument or global number that changes
        return self.logits(images) * CALLS


class GlobalNumberFixed(CounterFixed):
    pass


class WritesToInput(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        images -= images.mean()  # DEFECT input that is written to
        return self.logits(images)


class WritesToInputFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        images = images - images.mean()
        return self.logits(images)


class ManyDefects(Classifier):
    """A break whose outcome can be held still, and one whose result is a tensor."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        if logits.mean() > -100:
            logits = logits * 2
        return logits + logits[logits > 0].sum()


class Private(Classifier):
    """A branch on an attribute whose name holds that of its class, and on what the class above computes."""

    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.__limit = 0.0

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        if logits.sum() > self.__limit:  # a private name
            logits = logits * 2
        return logits


def halved(x: Tensor) -> Tensor:
    if x.sum() > 0:  # in each block
        x = x / 2
    return x


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return halved(self.fc(x)) + x


class Blocks(Classifier):
    """A break in what is called by each of two blocks."""

    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.blocks = nn.ModuleList(Block(sizes["num_classes"]) for _ in range(2))

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        for block in self.blocks:
            logits = block(logits)
        return logits


class Talks(Classifier):
    """Says the same in each way that there is."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        print("loudly")
        print("loudly", file=sys.stderr)
        warnings.warn("loudly", stacklevel=1)
        logger.warning("loudly")
        return logits * 2


class OnlyEager(Classifier):
    """What torch makes of NumPy's percentile while it compiles raises an error."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits * float(np.percentile(images.numpy(), 90))  # compiled, it raises


class OnlyEagerWithoutBreak(Classifier):
    """The same in a function that runs uncompiled, for a break in its loop."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        for _ in range(2):
            if logits.sum() > -100:  # left out, the rest is compiled
                logits = logits * 2
        return logits * float(np.percentile(images.numpy(), 90))  # compiled without the break, it raises


class DrawsOfGenerator(Classifier):
    def __init__(self, *sizes: int, **more: int):
        super().__init__(*sizes, **more)
        self.rng = np.random.default_rng(0)

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        shift = int(self.rng.integers(1, 4))  # DEFECT random number of Python or NumPy
        return logits.roll(shift, 1)


class DrawsOfGeneratorFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        rolled = torch.stack([logits.roll(shift, 1) for shift in (1, 2, 3)])
        return rolled[torch.randint(3, (1,))][0]


class OwnRandom(Classifier):
    """A generator of its own, which torch.compile asks once."""

    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.rng = random.Random(0)

    def forward(self, images: Tensor) -> Tensor:
        scale = self.rng.uniform(0.5, 1.5)  # DEFECT random number that is drawn once
        return self.logits(images) * scale


class OwnRandomBranch(Classifier):
    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.rng = random.Random(0)

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        if self.rng.random() < 0.5:  # DROP
            logits = logits * 2
        return logits


class OwnRandomFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits * (torch.rand((), device=logits.device) + 0.5)


class RandomRounds(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        rounds = random.randint(1, 4)
        for _ in range(rounds):  # DEFECT random number of Python or NumPy
            logits = logits * 1.1
        return logits


class RandomRoundsFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        return self.logits(images) * 1.1 ** torch.randint(1, 5, ())


class WritesToStdout(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        sys.stdout.write("")  # DEFECT print
        return logits * 2


class WritesToStdoutFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        if not torch.compiler.is_compiling():
            sys.stdout.write("")
        return logits * 2


class TakesTheDate(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        self.last_used = datetime.datetime.now()  # DEFECT clock
        return self.logits(images)


class TakesTheDateFixed(Classifier):
    pass


class OneHot(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits * nn.functional.one_hot(logits.argmax(1)).float().mean()  # DEFECT one_hot without num_classes


class OneHotFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits * nn.functional.one_hot(logits.argmax(1), num_classes=logits.shape[1]).float().mean()


class LayerInForward(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits + nn.Linear(logits.shape[1], 1)(logits)  # DEFECT layer that is made in forward


class LayerInForwardFixed(Classifier):
    def __init__(self, channels: int, image_size: int, num_classes: int, width: int = 8):
        super().__init__(channels, image_size, num_classes, width)
        self.shift = nn.Linear(num_classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits + self.shift(logits)


class Recurrent(Classifier):
    def __init__(self, channels: int, image_size: int, num_classes: int, width: int = 8):
        super().__init__(channels, image_size, num_classes, width)
        self.lstm = nn.LSTM(num_classes, num_classes, batch_first=True)

    def forward(self, images: Tensor) -> Tensor:
        steps = self.logits(images)[:, None]
        return self.lstm(steps)[0][:, -1]  # DEFECT recurrent layer of torch.nn


class RecurrentFixed(Classifier):
    def __init__(self, channels: int, image_size: int, num_classes: int, width: int = 8):
        super().__init__(channels, image_size, num_classes, width)
        self.lstm = nn.LSTMCell(num_classes, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.lstm(self.logits(images))[0]


class Packed(Classifier):
    """A padded batch, packed for a recurrent layer: its output at the last valid step of each sequence."""

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int = 8):
        super().__init__(channels, image_size, num_classes, width)
        self.lstm = nn.LSTM(1, num_classes, batch_first=True)

    def forward(self, images: Tensor) -> Tensor:
        padded, lengths = self.padded(images)
        packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)  # PACKED
        return self.lstm(packed)[1][0][-1]

    def padded(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The logits as steps, of which 1, 2, 3, ... are valid."""
        steps = self.logits(images)[..., None]
        return steps, 1 + torch.arange(len(steps)) % steps.shape[1]


class Padded(Packed):
    """The same without packing."""

    def forward(self, images: Tensor) -> Tensor:
        padded, lengths = self.padded(images)
        steps = self.lstm(padded)[0]
        return steps[torch.arange(len(steps)), lengths - 1]


class Scripted(Classifier):
    def __init__(self, *sizes: int, **more: int):
        super().__init__(*sizes, **more)
        self.act = torch.jit.script(nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        return self.act(self.logits(images))  # DEFECT torch.jit.script


class ScriptedFixed(Classifier):
    def __init__(self, *sizes: int, **more: int):
        super().__init__(*sizes, **more)
        self.act = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        return self.act(self.logits(images))


class MadeAtFirstCall(Classifier):
    def __init__(self, *sizes: int, **more: int):
        super().__init__(*sizes, **more)
        self.state: Tensor | None = None

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        if self.state is None:  # DEFECT attribute that changes
            self.state = torch.zeros_like(logits)
        self.state = 0.9 * self.state + 0.1 * logits.detach()
        return logits + self.state


class MadeAtFirstCallFixed(Classifier):
    def __init__(self, channels: int, image_size: int, num_classes: int, width: int = 8):
        super().__init__(channels, image_size, num_classes, width)
        self.register_buffer("state", torch.zeros(1, num_classes))

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        self.state = 0.9 * self.state + 0.1 * logits.detach().mean(0, keepdim=True)
        return logits + self.state


class CachesByStep(Classifier):
    def __init__(self, *sizes: int, **more: int):
        super().__init__(*sizes, **more)
        self.cache: dict[int, Tensor] = {}

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        if len(images) not in self.cache:  # DEFECT dict that grows
            self.cache[len(images)] = torch.arange(len(images), dtype=logits.dtype)[:, None]
        return logits + self.cache[len(images)]


class CachesByStepFixed(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits + torch.arange(len(images), dtype=logits.dtype)[:, None]


class WritesByIndex(Classifier):
    """The backend has to know the value of the index."""

    def __init__(self, *sizes: int, **more: int):
        super().__init__(*sizes, **more)
        self.register_buffer("seen", torch.zeros(100))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        self.seen[self.place] = logits.detach().mean()  # REFUSED
        self.place = self.place + 1
        return logits


class ConditionOnSize(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        if len(images) % 16 == 0:  # FIXED
            logits = logits * 2
        return logits


class BlursBySciPy(Classifier):
    """What a library does below the break is no defect of its own."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return logits + torch.from_numpy(gaussian_filter(logits.detach().numpy(), 1.0))  # BREAK


class Clean(Classifier):
    """Nothing to find."""


class CleanDropout(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.dropout(self.logits(images), 0.1, self.training)


class CleanWhere(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return torch.where(logits > 0, logits, logits / 2)


class CleanLoop(Classifier):
    """A loop over a Python number, and a list of fixed length."""

    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.heads = nn.ModuleList(nn.Linear(sizes["num_classes"], sizes["num_classes"]) for _ in range(3))

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return torch.stack([head(logits) for head in self.heads]).mean(0)


class CleanBatchNorm(Classifier):
    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.norm = nn.BatchNorm1d(sizes["num_classes"])

    def forward(self, images: Tensor) -> Tensor:
        return self.norm(self.logits(images))


class CleanBranch(Classifier):
    """Branches on what is known before: the mode, a shape, a setting."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        if self.training and images.shape[0] > 1 and logits.ndim == 2:
            logits = logits * 2
        with torch.no_grad():
            shift = logits.mean()
        return logits - shift


class CleanRandom(Classifier):
    """Of the module random torch.compile draws anew in each step; a generator that is made anew draws the same."""

    def forward(self, images: Tensor) -> Tensor:
        return self.logits(images) * random.randint(1, 3) * random.Random(0).uniform(0.5, 1.5)


class CleanSeeded(Classifier):
    """A generator that is set to where it was draws the same in eager steps too."""

    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.rng = random.Random(0)

    def forward(self, images: Tensor) -> Tensor:
        self.rng.seed(5)
        return self.logits(images) * self.rng.uniform(0.5, 1.5)


class CleanCond(Classifier):
    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        return torch.cond(logits.sum() > 0, lambda x: x * 2, lambda x: x.clone(), (logits,))


class Steps(Classifier):
    def __init__(self, *sizes: int, **more: int):
        super().__init__(*sizes, **more)
        self.cell = nn.GRUCell(10, 10)

    def forward(self, images: Tensor) -> Tensor:
        rows = self.logits(images)
        state = rows / 2
        for _ in range(16):
            state = self.cell(rows, state) + rows  # in each step
        return state


class Layers(Classifier):
    def __init__(self, *sizes: int, **more: int):
        super().__init__(*sizes, **more)
        self.blocks = nn.ModuleList(Layer() for _ in range(16))

    def forward(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        for block in self.blocks:
            logits = block(logits)  # in each layer
        return logits


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(10, 10)

    def forward(self, logits: Tensor) -> Tensor:
        wide = self.fc(logits).relu()
        return logits + wide
