"""The defects of tests/defects.py as subjects of a diagnosis, and their source lines."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests import defects

FILE = "tests/defects.py"
SOURCE = Path(defects.__file__).read_text().splitlines()
CALL = "return self.fc(images.flatten(1))"  # the first line of all networks there
FIRST_CALL = f"# {defects.__file__}:{SOURCE.index(f'        {CALL}') + 1}: {CALL}"  # as in a file of generated code


@pytest.fixture
def subject_of(compose):
    """(name, overrides...) -> the Subject of a class of tests/defects.py."""
    from trainkit.diagnosis.trial import build_subject

    def build(name: str, *overrides: str):
        settings = (f"model._target_=tests.defects.{name}", "compile.backend=eager", "data.batch_size=16", *overrides)
        return build_subject(compose(*settings))

    return build


@pytest.fixture(scope="session")
def own_backend():
    """The name of a backend of the user's, which might generate code: it is aot_eager by another name."""
    from torch._dynamo import lookup_backend, register_backend

    register_backend(lookup_backend("aot_eager"), "own")
    return "own"


def with_shorter_batches(subject):
    """The subject with batches of 16, 8 and 4 samples."""
    sizes = zip((16, 8, 4), subject.batches, strict=False)
    return replace(subject, batches=[(inputs[:size], targets[:size]) for size, (inputs, targets) in sizes])


def marked_line(name: str) -> tuple[int, str]:
    """The marked line of a class, and the cause that its comment names."""
    first = SOURCE.index(f"class {name}(Classifier):")
    line = next(number for number in range(first, len(SOURCE)) if "  # DEFECT " in SOURCE[number])
    return line + 1, SOURCE[line].partition("  # DEFECT ")[2]


def line_of(code: str) -> int:
    """The one line of tests/defects.py that ends in this code."""
    (line,) = (number for number, text in enumerate(SOURCE, 1) if text.endswith(code))
    return line
