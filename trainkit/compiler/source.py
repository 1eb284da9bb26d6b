"""Where something is in the source of who uses torch: their frames, and their lines."""

import linecache
import os
import sysconfig
from pathlib import Path
from typing import Any

import torch
from torch.utils._traceback import shorten_filename

TORCH = f"{Path(torch.__file__).parent}{os.sep}"  # not torchvision
INSTALLED = f"-packages{os.sep}"  # site-, and dist- of Debian
PART_CALL = str(Path(__file__).with_name("apply.py"))  # whose frame calls a part that is compiled by itself
PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
NETWORKS = f"{PACKAGE}models{os.sep}"  # in the package, and written as a user would
NOT_THE_USERS = (sysconfig.get_path("stdlib"), "<")  # of what has no file: frozen, or generated


def users_frames(stack: Any) -> list[Any]:
    """The frames that the user can change, innermost last: those of other libraries only where nothing else is there,
    as where the network is a library's."""
    installed = [
        f for f in stack if INSTALLED in f.filename and not f.filename.startswith(TORCH) and not is_own(f.filename)
    ]
    return [frame for frame in stack if is_users(frame.filename)] or installed


def is_users(file: str) -> bool:
    """Whether a file, by its path or that from the working directory, is of no library."""
    whole = str(Path.cwd() / file)
    return (
        INSTALLED not in file
        and not file.startswith(NOT_THE_USERS)
        and not whole.startswith(TORCH)
        and not is_own(whole)
    )


def is_own(file: str) -> bool:
    """Whether a file is trainkit's, through which every network is called. Its networks are not: who diagnoses one of
    them looks at it as at one of their own."""
    return file.startswith(PACKAGE) and not file.startswith(NETWORKS)


def users_place(stack: Any) -> tuple[str | None, int | None]:
    """The innermost place that the user can change; where there is none, the innermost one that is not trainkit's."""
    own = users_frames(stack) or [frame for frame in stack if not is_own(frame.filename)]
    return (own[-1].filename, own[-1].lineno) if own else (None, None)


def shortened(text: str) -> str:
    """Paths in the working directory as they are from there: rows are read elsewhere."""
    here = f"{Path.cwd()}{os.sep}"
    # In a guard's comment torch has cut off what a path shares with its own.
    return text.replace(here, "").replace(f"  # {shorten_filename(here)}", "  # ")


def source_line(file: str | None, line: int | None) -> str:
    """A line of source without its indentation; "" where it cannot be read."""
    return linecache.getline(file, line).strip() if file and line else ""
