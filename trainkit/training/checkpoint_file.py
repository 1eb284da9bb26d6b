"""The file of a checkpoint: written whole or not at all, and checked before it is read."""

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO

from trainkit.compiler.errors import first_line
from trainkit.config.errors import ConfigError

NET_PREFIX = "objective.net."  # of the names of the network's tensors in a checkpoint


class CheckpointWriteError(OSError):
    """A checkpoint could not be written."""


class WholeCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place and renames it, so that its name is that of a whole file.

    A write that fails leaves the checkpoint before it, and nothing else. Lightning's own leaves a file that is cut off.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write the checkpoint. Raises CheckpointWriteError with the path and the reason."""
        target = Path(path)
        temporary = target.with_name(f".{target.name}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except (OSError, RuntimeError) as error:  # torch's writer raises RuntimeError after a write that failed
            cause = error if isinstance(error, OSError) else error.__context__
            reason = getattr(cause, "strerror", None) or error
            way_out = "make room, or choose another hydra.run.dir"
            raise CheckpointWriteError(f"{target}: the checkpoint was not written: {reason}; {way_out}") from error
        finally:
            temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what runs left that were killed while they wrote a checkpoint."""
    for path in folder.glob(".*.ckpt.tmp"):
        path.unlink(missing_ok=True)


def damage(path: Path) -> str | None:
    """The problem with the file of a checkpoint, by the checksums in it; None if it is whole.

    torch.load checks none of them: with a flipped byte it loads other parameters.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged_entry = archive.testzip()
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError) as error:
        return f"is cut off, or no checkpoint ({error})"
    if damaged_entry is None:
        return None
    return f"is damaged ({damaged_entry} fails its checksum)"


def read_checkpoint(path: Path, subject: str) -> dict[str, Any]:
    """The content of a checkpoint of a run, on the CPU. Raises ConfigError, which begins with `subject`."""
    problem = damage(path)
    if problem is not None:
        raise ConfigError(f"{subject}: {problem}; use another checkpoint")
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        lacking = sorted({"state_dict", "global_step", "epoch"} - content.keys())
    except pickle.UnpicklingError as error:  # torch's words advise to run the code in the file
        problem = "holds other objects than tensors and plain values"
        raise ConfigError(f"{subject}: not a checkpoint of a run: {problem}; give another one") from error
    except Exception as error:  # torch.load raises nearly anything for a file that is no checkpoint
        raise ConfigError(f"{subject}: not a checkpoint of a run: {first_line(error)}; give another one") from error
    if lacking:
        raise ConfigError(f"{subject}: not a checkpoint of a run: has no {', '.join(lacking)}; give another one")
    return content
