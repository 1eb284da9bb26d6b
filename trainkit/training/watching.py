"""How a Trainer and its run's Watch work together: where the rank is, why it fails, and the step it stops after."""

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from trainkit.distributed.collectives import is_communication_error
from trainkit.distributed.stop import Stop
from trainkit.distributed.watch import Watch
from trainkit.training.status import end_reason, end_status


class WatchedFit(Callback):
    """Tells the Watch where a fit is. It comes before callbacks that may wait for other ranks after an error."""

    def __init__(self, watch: Watch):
        self._watch = watch

    def setup(self, trainer: Trainer, task: LightningModule, stage: str) -> None:
        self._watch.ranks.find_place = lambda: _place(trainer)

    def on_train_start(self, trainer: Trainer, task: LightningModule) -> None:
        self._watch.stops_in_order = True
        self._watch.warn_of_unseen_ranks()

    def on_train_end(self, trainer: Trainer, task: LightningModule) -> None:
        self._watch.stops_in_order = False
        self._watch.ranks.find_place = lambda: "after training"

    def on_exception(self, trainer: Trainer, task: LightningModule, exception: BaseException) -> None:
        record_error(self._watch, exception)


def record_error(watch: Watch, error: BaseException) -> None:
    """Note why this rank ends."""
    watch.record(end_status(error), end_reason(error) or "", follows=is_communication_error(error))


def _place(trainer: Trainer) -> str:
    if trainer.validating:
        batch = trainer.fit_loop.epoch_loop.val_loop.batch_progress.current.ready
        return f"validation batch {batch} (epoch {trainer.current_epoch})"
    if trainer.training:
        return f"step {trainer.global_step + 1} (epoch {trainer.current_epoch})"
    return "building"


class StopSignals:
    """In place of Lightning's connector of signals, whose handler begins a collective that no other rank may join, and
    whose loop asks all ranks before each batch and waits for the answer: so the host could not run ahead of the GPU.

    No issue of Lightning's is known. `received_sigterm` is true after the same step on all ranks, only at the end of
    an epoch, behind its validation and its checkpoint. Within an epoch the StepLoop stops, and writes one itself.
    """

    def __init__(self, trainer: Trainer, stop: Stop):
        self._trainer, self._stop = trainer, stop

    @property
    def received_sigterm(self) -> bool:
        trainer = self._trainer
        return self._stop.is_due and not trainer.validating and trainer.fit_loop.epoch_loop._is_training_done

    def register_signal_handlers(self) -> None:
        """The Watch handles them."""

    def teardown(self) -> None:
        """The Watch handles them."""
