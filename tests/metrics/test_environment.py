"""The columns of a row that tell its machine."""

import re
import subprocess
import sys

from trainkit.metrics.environment import machine_id


def test_a_machine_has_the_same_digits_in_every_process():
    command = [sys.executable, "-c", "from trainkit.metrics.environment import machine_id; print(machine_id())"]
    other = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert machine_id() == other
    assert re.fullmatch("[0-9a-f]{8}", other)
