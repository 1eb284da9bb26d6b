"""What the processes that load batches print when the process that trains is killed."""

from tests import forked

PROGRAM = """
import os
from multiprocessing import process, resource_sharer
from multiprocessing.connection import Client
from trainkit.data.workers import begin_worker

begin_worker(0)
address, key = resource_sharer.DupFd(os.dup(0))._id
connection = Client(address, authkey=process.current_process().authkey)
{request}
connection.close()
resource_sharer.stop(timeout=60)
"""


def errors_of_worker(request, folder):
    script = folder / "program.py"
    script.write_text(PROGRAM.format(request=request))
    return forked.python(script, cwd=folder).stderr


def test_a_worker_says_nothing_of_a_reader_that_is_gone(tmp_path):
    assert errors_of_worker("", tmp_path) == ""


def test_a_worker_shows_its_other_errors(tmp_path):
    assert errors_of_worker("connection.send((-1, 0))", tmp_path).endswith("KeyError: -1\n")
