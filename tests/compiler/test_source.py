"""A source location is one that the user can change."""

import os
from pathlib import Path
from types import SimpleNamespace

import torch

from trainkit.compiler import source
from trainkit.compiler.source import user_location


def test_what_is_named_as_torch_is_and_lies_beside_it_is_the_users():
    torchs = Path(torch.__file__).parent
    beside = str(torchs.with_name("torchvision") / "models" / "resnet.py")
    stack = [SimpleNamespace(filename=file, lineno=7) for file in (beside, str(torchs / "nn" / "functional.py"))]
    assert user_location(stack) == (beside, 7)


def test_a_place_is_the_users_own_and_of_what_is_installed_only_where_nothing_else_is_there():
    library = str(Path(torch.__file__).parents[1] / "scipy" / "ndimage.py")
    of_trainkit = str(Path(source.__file__).with_name("task.py"))
    for files, found in (
        ((of_trainkit, "net.py", library), "net.py"),
        ((of_trainkit, "net.py", "<frozen genericpath>"), "net.py"),
        ((of_trainkit, library, os.__file__), library),  # a network of a library's
    ):
        stack = [SimpleNamespace(filename=file, lineno=number) for number, file in enumerate(files)]
        assert user_location(stack) == (found, files.index(found))
