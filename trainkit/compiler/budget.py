"""The budget of recompiles, `compile.max_recompiles`, and its end."""

from contextlib import ExitStack

import torch

from trainkit.compiler import dynamo
from trainkit.compiler.dynamo import FAIL_ON_RECOMPILE
from trainkit.compiler.errors import RecompileLimitError
from trainkit.compiler.observer import Shapes


class RecompileBudget:
    """From `max_recompiles` on torch compiles nothing more: compiled variants are used, all other calls run uncompiled
    or, with on_recompile_limit=raise, fail.

    `spent`: the budget is used up; `exceeded`: and a call ran uncompiled since.
    """

    def __init__(self, max_recompiles: int, raises: bool):
        self.max_recompiles, self.raises = max_recompiles, raises
        self.spent = self.exceeded = False

    def raise_torch_limits(self, undo: ExitStack) -> None:
        """Keep torch's own limits from coming first."""
        least = self.max_recompiles + 2
        limits = {name: max(limit, least) for name, limit in dynamo.recompile_limits().items()}
        undo.enter_context(dynamo.settings(**limits))

    def spend(self, num_recompiles: int, shapes: Shapes, undo: ExitStack) -> None:
        """Account for the recompiles after a call with a batch of these shapes."""
        if self.spent or num_recompiles < self.max_recompiles:
            return
        self.spent = True
        stance = FAIL_ON_RECOMPILE if self.raises else "eager_on_recompile"
        undo.enter_context(torch.compiler.set_stance(stance))  # until the end of the run: it holds for backward too
        if self.raises and num_recompiles > self.max_recompiles:  # one call may cause several
            raise self.error(shapes)

    def caused(self, error: Exception) -> bool:
        """Whether an error says that a call needs one more recompile."""
        return self.spent and isinstance(error, RuntimeError) and FAIL_ON_RECOMPILE in str(error)

    def error(self, shapes: Shapes) -> RecompileLimitError:
        batch = " and ".join(map(str, shapes))
        return RecompileLimitError(f"compile.max_recompiles = {self.max_recompiles}: {batch} needed one more")
