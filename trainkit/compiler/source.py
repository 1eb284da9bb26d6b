"""Source locations: which frames and files are the user's, and their lines."""

import linecache
import os
import re
import sysconfig
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from traceback import FrameSummary

import torch

from trainkit.compiler.dynamo import shorten_filename

TORCH = f"{Path(torch.__file__).parent}{os.sep}"  # not torchvision
INSTALLED = f"-packages{os.sep}"  # site-, and dist- of Debian
CALLERS = tuple(f"{INSTALLED}{package}{os.sep}" for package in ("hydra", "lightning"))  # of what a user wrote
REGION_CALL = str(Path(__file__).with_name("apply.py"))  # its frames call a region that is compiled by itself
PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
NETWORKS = f"{PACKAGE}models{os.sep}"  # in the package, and written as a user would
NOT_USER_CODE = (sysconfig.get_path("stdlib"), "<")  # "<": frozen or generated code, which has no file


@dataclass(frozen=True)
class SourceLocation:
    """A line of source. `file` is relative to the working directory if it is inside; `code` is the line's text."""

    file: str | None = None
    line: int | None = None
    code: str = ""


def source_location(file: str | None, line: int | None) -> SourceLocation:
    """The location of a line; without a file the location is unknown."""
    if file is None:
        return SourceLocation()
    return SourceLocation(shortened(file), line, source_line(file, line))


def user_frames(stack: Iterable[FrameSummary]) -> list[FrameSummary]:
    """The frames that the user can change, innermost last. Frames of other libraries only if there are no others, as
    in a library's network."""
    frames = list(stack)
    in_user_code = [frame for frame in frames if is_user_code(frame.filename)]
    return in_user_code or [frame for frame in frames if _is_other_library(frame.filename)]


def is_user_code(file: str) -> bool:
    """Whether a file, by its path or its path from the working directory, belongs to no library."""
    path = str(Path.cwd() / file)
    is_library = INSTALLED in file or file.startswith(NOT_USER_CODE) or path.startswith(TORCH)
    return not is_library and not is_trainkit_code(path)


def _is_other_library(file: str) -> bool:
    is_caller = any(caller in file for caller in CALLERS)
    return INSTALLED in file and not is_caller and not file.startswith(TORCH) and not is_trainkit_code(file)


def is_trainkit_code(file: str) -> bool:
    """Whether a file is trainkit's, which calls every network. Its networks are not: they are diagnosed as a user's."""
    return file.startswith(PACKAGE) and not file.startswith(NETWORKS)


def user_location(stack: Iterable[FrameSummary]) -> tuple[str | None, int | None]:
    """File and line of the innermost frame that the user can change, else of the innermost one outside of trainkit."""
    frames = list(stack)
    candidates = user_frames(frames) or [frame for frame in frames if not is_trainkit_code(frame.filename)]
    if not candidates:
        return None, None
    return candidates[-1].filename, candidates[-1].lineno


def raising_line(error: BaseException) -> SourceLocation:
    """The innermost line of the user's code that raised an error. Lines of other libraries count only if there are no
    others, as in a library's network.

    What was traced by torch.compile, or ran in another process, is in the error's message alone.
    """
    frames = list(traceback.extract_tb(error.__traceback__))
    for file, line in re.findall(r'File "([^"]+)", line (\d+)', str(error)):
        frames.append(FrameSummary(file, int(line), "", lookup_line=False))
    in_user_code = user_frames(frames)
    if not in_user_code:
        return SourceLocation()
    return source_location(in_user_code[-1].filename, in_user_code[-1].lineno)


def shortened(text: str) -> str:
    """A text whose paths are relative to the working directory: rows are read elsewhere."""
    here = f"{Path.cwd()}{os.sep}"
    # In a guard's comment torch has cut off the beginning of a path that it shares with torch's own.
    return text.replace(here, "").replace(f"  # {shorten_filename(here)}", "  # ")


def source_line(file: str | None, line: int | None) -> str:
    """A line of source without its indentation; "" if it cannot be read."""
    if not file or not line:
        return ""
    return linecache.getline(file, line).strip()
